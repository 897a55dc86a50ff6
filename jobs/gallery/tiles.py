"""Cut photographs into tiles at several scales; hold some out as queries that overlap no other."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mercore.pipeline.gist import texture

SCALES = (1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35, 0.3, 0.25)
SIDE = 32  # pixels of a tile
LEAST_TEXTURE = 0.15  # of a tile whose normalised GIST is not mostly noise
BLOCK = 1024  # tiles that are described at once


class Level(NamedTuple):
    """One photograph at one scale: ``pixels`` uint8[h, w, 3], ``shape`` its original size."""

    photograph: int
    scale: float
    shape: tuple[int, int]
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Square tiles, kept as positions in their levels: 11 bytes per tile without its pixels.

    ``level`` int16[n] indexes ``levels``; ``y`` and ``x`` int32[n] are the top left corner in
    pixels of the level; ``mirrored`` bool[n]: left and right are exchanged.
    """

    levels: tuple[Level, ...]
    level: NDArray[np.int16]
    y: NDArray[np.int32]
    x: NDArray[np.int32]
    mirrored: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of tiles."""
        return len(self.level)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Tiles":
        """Return the tiles at ``rows`` (int64[m], or a mask bool[n]), in that order."""
        columns = ("level", "y", "x", "mirrored")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def pixels(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """Return the pixels of tiles [start, stop), uint8[stop - start, 32, 32, 3]."""
        part = slice(start, stop)
        level, y, x, mirrored = self.level[part], self.y[part], self.x[part], self.mirrored[part]
        pixels = np.empty((len(level), SIDE, SIDE, 3), np.uint8)
        for index in np.unique(level):
            rows = np.flatnonzero(level == index)
            every = np.lib.stride_tricks.sliding_window_view(
                self.levels[index].pixels, (SIDE, SIDE), (0, 1)
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
        return np.hstack([corner * steps, (corner + SIDE) * steps])

    def photographs(self) -> NDArray[np.int64]:
        """Return the number of each tile's photograph: int64[n]."""
        return np.array([level.photograph for level in self.levels], np.int64)[self.level]


class HeldOut(NamedTuple):
    """A base to search, and the queries held out of it.

    ``windows`` float64[w, 5] contain the queries: photograph, top, left, bottom, right.
    """

    base: Tiles
    queries: Tiles
    windows: NDArray[np.float64]


def cut_tiles(
    photographs: Sequence[NDArray[np.uint8]], *, stride: int = 2, scales: Sequence[float] = SCALES
) -> Tiles:
    """Cut every tile whose corner lies on a grid of ``stride`` pixels, at every scale.

    Photographs are uint8[h, w, 3], and scales at most 1: a tile of scale 0.5 is twice as wide in
    its photograph as one of scale 1. The tiles are ordered by photograph, scale, row and column.
    """
    levels = tuple(
        _scale_down(number, photograph, scale)
        for number, photograph in enumerate(photographs)
        for scale in scales
    )
    grids = [_corners(level, stride) for level in levels]
    corners = np.concatenate(grids)
    return Tiles(
        levels=levels,
        level=np.repeat(np.arange(len(levels), dtype=np.int16), [len(grid) for grid in grids]),
        y=corners[:, 0],
        x=corners[:, 1],
        mirrored=np.zeros(len(corners), np.bool_),
    )


def drop_plain(tiles: Tiles, *, workers: int = 1) -> Tiles:
    """Drop tiles without texture, such as sky; ``workers`` threads compute the texture."""

    def rich(start: int) -> NDArray[np.bool_]:
        return texture(tiles.pixels(start, start + BLOCK)) >= LEAST_TEXTURE

    with ThreadPoolExecutor(workers) as threads:
        return tiles.take(np.concatenate(list(threads.map(rich, range(0, len(tiles), BLOCK)))))


def add_mirror_images(tiles: Tiles) -> Tiles:
    """Return the tiles followed by their mirror images, in the same order."""
    twice = tiles.take(np.tile(np.arange(len(tiles)), 2))
    return replace(twice, mirrored=np.concatenate([tiles.mirrored, ~tiles.mirrored]))


def hold_out(
    tiles: Tiles, n_queries: int, *, random_state: int, n_windows: int = 24, window: int = 64
) -> HeldOut:
    """Hold out ``n_queries`` tiles as queries, and drop every tile that overlaps their windows.

    Each photograph is divided into square windows of ``window`` pixels. ``n_windows`` of them are
    drawn, equally many per photograph, among the half with the most tiles. Tiles wholly inside a
    window may become queries, tiles wholly outside all windows are the base, and the others are
    dropped: at no scale is a neighbour the query itself, moved by a few pixels. Queries are drawn
    from the windows in turn, and within a window from its scales with equal probability; none is
    mirrored, and none is drawn twice.
    """
    random = np.random.default_rng(random_state)
    windows = _draw_windows(tiles, n_windows, window, random)
    inside, touched = _against_windows(tiles, windows)
    eligible = np.flatnonzero((inside >= 0) & ~tiles.mirrored)
    assert len(eligible) >= n_queries
    drawn = _draw_in_turn(inside[eligible], tiles.level[eligible], n_queries, random)
    return HeldOut(tiles.take(~touched), tiles.take(eligible[drawn]), windows)


def _scale_down(number: int, photograph: NDArray[np.uint8], scale: float) -> Level:
    """Scale one photograph down; Pillow widens its filter by the factor, which avoids aliasing."""
    height, width = photograph.shape[:2]
    wanted = (max(1, round(width * scale)), max(1, round(height * scale)))
    scaled = Image.fromarray(photograph).resize(wanted, Image.Resampling.LANCZOS)
    return Level(number, scale, (height, width), np.asarray(scaled))


def _corners(level: Level, stride: int) -> NDArray[np.int32]:
    """Return the top left corners of the level's tiles, row by row: int32[m, 2]."""
    y, x = (
        np.arange(0, max(0, side - SIDE + 1), stride, dtype=np.int32)
        for side in level.pixels.shape[:2]
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
        fullest = grid[counts >= max(1, np.median(counts))]
        share = n_windows // len(shapes) + (order < n_windows % len(shapes))
        drawn.append(random.permutation(fullest)[:share])
    turns = np.concatenate([np.arange(len(part)) for part in drawn])
    return np.concatenate(drawn)[np.argsort(turns, kind="stable")]


def _grid(photograph: int, shape: tuple[int, int], side: int) -> NDArray[np.float64]:
    """Divide a photograph into windows: float64[c, 5]."""
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
