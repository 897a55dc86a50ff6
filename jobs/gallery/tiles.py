"""Cut photographs into tiles at several scales; hold some out as queries that overlap no other."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.pipeline.gist import texture
from mercore.stores.errors import InputError, ShapeError

SCALES = (1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35, 0.3, 0.25)

_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Level:
    """One photograph at one scale: ``pixels`` uint8[h, w, 3], ``shape`` its original size."""

    photograph: int
    scale: float
    shape: tuple[int, int]
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class TileOrigin:
    """The origin of a tile: a rectangle of its photograph, in pixels of the photograph."""

    photograph: int
    scale: float
    top: float
    left: float
    bottom: float
    right: float
    mirrored: bool


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Square tiles, kept as positions in their levels: 11 bytes per tile without its pixels.

    ``level`` int16[n] indexes ``levels``; ``y`` and ``x`` int32[n] are the top left corner in
    pixels of the level; ``mirrored`` bool[n]: left and right are exchanged.
    """

    levels: tuple[Level, ...]
    size: int
    level: NDArray[np.int16]
    y: NDArray[np.int32]
    x: NDArray[np.int32]
    mirrored: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of tiles."""
        return len(self.level)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Tiles":
        """Return the tiles at ``rows`` (int64[m], or a mask bool[n]), in that order."""
        return replace(
            self,
            level=self.level[rows],
            y=self.y[rows],
            x=self.x[rows],
            mirrored=self.mirrored[rows],
        )

    def pixels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """Return the pixels of tiles [start, stop), uint8[stop - start, size, size, 3]."""
        part = slice(start, stop)
        level, y, x, mirrored = self.level[part], self.y[part], self.x[part], self.mirrored[part]
        pixels = np.empty((len(level), self.size, self.size, 3), np.uint8)
        for index in np.unique(level):
            rows = np.flatnonzero(level == index)
            every = np.lib.stride_tricks.sliding_window_view(
                self.levels[index].pixels, (self.size, self.size), (0, 1)
            )
            pixels[rows] = every[y[rows], x[rows]].transpose(0, 2, 3, 1)
        pixels[mirrored] = pixels[mirrored, :, ::-1]
        return pixels

    def rectangles(self) -> NDArray[np.float64]:
        """Return top, left, bottom and right of every tile in its photograph, float64[n, 4]."""
        steps = np.array([np.divide(level.shape, level.pixels.shape[:2]) for level in self.levels])[
            self.level
        ]
        corner = np.stack([self.y, self.x], axis=1)
        return np.hstack([corner * steps, (corner + self.size) * steps])

    def photographs(self) -> NDArray[np.int64]:
        """Return the number of each tile's photograph: int64[n]."""
        return np.array([level.photograph for level in self.levels], np.int64)[self.level]

    def place(self, row: int) -> TileOrigin:
        """Return the origin of tile ``row``."""
        level = self.levels[self.level[row]]
        one = np.array([row])
        top, left, bottom, right = self.take(one).rectangles()[0].tolist()
        return TileOrigin(
            photograph=level.photograph,
            scale=level.scale,
            top=top,
            left=left,
            bottom=bottom,
            right=right,
            mirrored=bool(self.mirrored[row]),
        )


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A base to search, and the queries held out of it.

    ``windows`` float64[w, 5] contain the queries: photograph, top, left, bottom, right.
    """

    base: Tiles
    queries: Tiles
    windows: NDArray[np.float64]


def cut_tiles(
    photographs: Sequence[NDArray[np.uint8]],
    *,
    size: int = 32,
    stride: int = 2,
    scales: Sequence[float] = SCALES,
) -> Tiles:
    """Cut every tile whose corner lies on a grid of ``stride`` pixels, at every scale.

    Parameters
    ----------
    photographs : list of uint8[h, w, 3]
        In RGB; they may differ in size.
    size, stride : int, ≥ 1
        In pixels of the scaled photograph: a tile of scale 0.5 is twice as wide as one of scale 1.
    scales : list of float, 0 < scale ≤ 1
        A scale at which a photograph is smaller than a tile gives no tiles.

    Returns
    -------
    Tiles
        Ordered by photograph, scale, row, column; none is mirrored.

    Raises
    ------
    InputError
        If a photograph is not uint8 or a scale is not above 0 and at most 1.
    ShapeError
        If a photograph is not [h, w, 3], ``size`` or ``stride`` is below 1, or no tile fits.
    """
    _check_cut(photographs, size, stride, scales)
    levels = tuple(
        _level(number, photograph, scale)
        for number, photograph in enumerate(photographs)
        for scale in scales
    )
    grids = [_corners(level, size, stride) for level in levels]
    corners = np.concatenate([np.zeros((0, 2), np.int32), *grids])
    if not len(corners):
        sizes = [list(photograph.shape[:2]) for photograph in photographs]
        raise ShapeError(
            f"no tile fits: found photographs of {sizes}, expected one of {size} × {size} or "
            "more at some scale. "
            "Fix: larger photographs."
        )
    return Tiles(
        levels=levels,
        size=size,
        level=np.repeat(np.arange(len(levels), dtype=np.int16), [len(grid) for grid in grids]),
        y=corners[:, 0],
        x=corners[:, 1],
        mirrored=np.zeros(len(corners), np.bool_),
    )


def drop_plain(tiles: Tiles, *, min_texture: float = 0.15, workers: int = 1) -> Tiles:
    """Drop tiles without texture, such as sky: their normalised GIST is mostly noise.

    Parameters
    ----------
    tiles : Tiles
        Of 32 × 32 pixels.
    min_texture : float
        The least `mercore.pipeline.gist.texture` of a tile that is kept.
    workers : int, ≥ 1
        Threads.

    Returns
    -------
    Tiles
        The tiles that are kept, in their order.

    Raises
    ------
    ShapeError
        If the tiles are not 32 × 32, or ``workers`` is below 1.
    """
    if workers < 1:
        raise ShapeError(
            f"workers count threads: found {workers}, expected 1 or more. Fix: raise it."
        )

    def rich(start: int) -> NDArray[np.bool_]:
        return texture(tiles.pixels(start, start + _BLOCK)) >= min_texture

    with ThreadPoolExecutor(workers) as threads:
        kept = list(threads.map(rich, range(0, len(tiles), _BLOCK)))
    return tiles.take(np.concatenate([np.zeros(0, np.bool_), *kept]))


def add_mirror_images(tiles: Tiles) -> Tiles:
    """Return the tiles followed by their mirror images, in the same order."""
    twice = tiles.take(np.tile(np.arange(len(tiles)), 2))
    return replace(twice, mirrored=np.concatenate([tiles.mirrored, ~tiles.mirrored]))


def hold_out(
    tiles: Tiles, n_queries: int, *, random_state: int, n_windows: int = 24, window: int = 64
) -> HeldOut:
    """Hold out ``n_queries`` tiles as queries, and drop every tile that overlaps their windows.

    Each photograph is divided into square windows. ``n_windows`` of them are drawn, equally many
    per photograph, among the half with the most tiles. Tiles wholly inside a window may become
    queries, tiles wholly outside all windows are the base, and the others are dropped: at no scale
    is a neighbour the query itself, moved by a few pixels. Queries are drawn from the windows in
    turn, and within a window from its scales with equal probability; none is mirrored, and none is
    drawn twice.

    Parameters
    ----------
    tiles : Tiles
        Of any scales, mirrored or not.
    n_queries : int, ≥ 1
        The first ``n_windows`` queries come from different windows.
    random_state : int
        The seed of the draw.
    n_windows : int
        Number of windows in all photographs together. Small photographs may hold fewer.
    window : int
        Side of a window in the photograph's pixels.

    Returns
    -------
    HeldOut
        The base in the order of ``tiles``, the queries in the order drawn.

    Raises
    ------
    ShapeError
        If the windows hold fewer than ``n_queries`` tiles, or no tile is left as the base.
    """
    random = np.random.default_rng(random_state)
    windows = _draw_windows(tiles, n_windows, window, random)
    inside, touched = _against_windows(tiles, windows)
    eligible = np.flatnonzero((inside >= 0) & ~tiles.mirrored)
    if len(eligible) < n_queries or touched.all():
        found = (
            f"{len(eligible)} in {len(windows)} windows and {np.count_nonzero(~touched)} outside"
        )
        raise ShapeError(
            f"too few tiles to hold out {n_queries} queries: found {found}, expected at least "
            f"{n_queries} and 1. "
            "Fix: fewer queries, a smaller stride or larger photographs."
        )
    drawn = _draw_in_turn(inside[eligible], tiles.level[eligible], n_queries, random)
    return HeldOut(base=tiles.take(~touched), queries=tiles.take(eligible[drawn]), windows=windows)


def _check_cut(
    photographs: Sequence[NDArray[np.uint8]], size: int, stride: int, scales: Sequence[float]
) -> None:
    """Refuse photographs of another type or shape, and sizes and scales out of range."""
    for number, photograph in enumerate(photographs):
        if photograph.dtype != np.uint8:
            raise InputError(
                f"photograph {number} has the wrong type: found {photograph.dtype}, expected "
                "uint8. "
                "Fix: scale to 0…255."
            )
        if photograph.ndim != 3 or photograph.shape[2] != 3:
            raise ShapeError(
                f"photograph {number} has the wrong shape: found {list(photograph.shape)}, "
                "expected [h, w, 3]. "
                "Fix: convert it to RGB."
            )
    if size < 1 or stride < 1:
        raise ShapeError(
            f"size and stride count pixels: found {size} and {stride}, expected 1 or more. Fix: "
            "raise them."
        )
    if not all(0 < scale <= 1 for scale in scales):
        raise InputError(
            f"scales are shares of the photograph: found {list(scales)}, expected 0 < scale ≤ "
            "1. Fix: lower them."
        )


def _level(number: int, photograph: NDArray[np.uint8], scale: float) -> Level:
    """Scale one photograph down; Pillow widens its filter by the factor, which avoids aliasing."""
    height, width = photograph.shape[:2]
    wanted = (max(1, round(width * scale)), max(1, round(height * scale)))
    scaled = Image.fromarray(photograph).resize(wanted, Image.Resampling.LANCZOS)
    return Level(photograph=number, scale=scale, shape=(height, width), pixels=np.asarray(scaled))


def _corners(level: Level, size: int, stride: int) -> NDArray[np.int32]:
    """Return the top left corners of the level's tiles, row by row: int32[m, 2]."""
    height, width = level.pixels.shape[:2]
    y, x = (
        np.arange(0, max(0, side - size + 1), stride, dtype=np.int32) for side in (height, width)
    )
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)


def _draw_windows(
    tiles: Tiles, n_windows: int, side: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw windows in turn, among the half of each photograph with most tiles: float64[w, 5]."""
    shapes = {level.photograph: level.shape for level in tiles.levels}
    drawn = []
    for order, (photograph, shape) in enumerate(sorted(shapes.items())):
        grid = _grid(photograph, shape, side)
        counts = np.bincount(_against_windows(tiles, grid)[0] + 1, minlength=len(grid) + 1)[1:]
        fullest = grid[counts >= max(1, np.median(counts))] if len(grid) else grid
        share = n_windows // len(shapes) + (order < n_windows % len(shapes))
        drawn.append(random.permutation(fullest)[:share])
    turns = np.concatenate([np.arange(len(part)) for part in drawn])
    return np.concatenate(drawn)[np.argsort(turns, kind="stable")]


def _grid(photograph: int, shape: tuple[int, int], side: int) -> NDArray[np.float64]:
    """Divide a photograph into whole windows: float64[c, 5]."""
    rows, columns = (range(0, length - side + 1, side) for length in shape)
    corners = [(photograph, top, left, top + side, left + side) for top in rows for left in columns]
    return np.array(corners, np.float64).reshape(-1, 5)


def _against_windows(
    tiles: Tiles, windows: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each tile's window (int64[n], -1: not inside any) and if it touches any (bool[n])."""
    top, left, bottom, right = tiles.rectangles().T
    photographs = tiles.photographs()
    inside = np.full(len(tiles), -1, np.int64)
    touched = np.zeros(len(tiles), np.bool_)
    for number, (photograph, y0, x0, y1, x1) in enumerate(windows):
        here = photographs == photograph
        touched |= here & (top < y1) & (bottom > y0) & (left < x1) & (right > x0)
        inside[here & (top >= y0) & (bottom <= y1) & (left >= x0) & (right <= x1)] = number
    return inside, touched


def _draw_in_turn(
    window: NDArray[np.int64], level: NDArray[np.int16], n_draws: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw rows without repetition, windows in turn, the levels of a window equally likely."""
    left = {number: np.flatnonzero(window == number) for number in np.unique(window)}
    drawn: list[int] = []
    while len(drawn) < n_draws:
        for number in list(left):
            rows = left[number]
            chosen = random.choice(rows[level[rows] == random.choice(np.unique(level[rows]))])
            drawn.append(int(chosen))
            left[number] = rows[rows != chosen]
            if not len(left[number]):
                del left[number]
    return np.array(drawn[:n_draws], np.int64)
