"""GIST of 32 × 32 tiles (Oliva & Torralba, IJCV 2001).

It is the energy of each frequency and orientation in 4 × 4 cells.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from mercore.stores.errors import InputError, ShapeError
from mercore.stores.formats.images import Images

SIDE = 32
N_SCALES = 3
N_ORIENTATIONS = 8
N_CELLS = 4
DIMENSION = N_SCALES * N_ORIENTATIONS * N_CELLS * N_CELLS

_PAD = 8
_WIDE = SIDE + 2 * _PAD
_STEP = 2  # the envelope of every filter is read at each second pixel
_FOLDED = _WIDE // _STEP
_TOP_FREQUENCY = 0.3  # cycles per pixel; each further scale is _RATIO lower
_RATIO = 1.85
_RADIAL = 3.5  # Gaussian widths in frequency and in angle, as in Oliva & Torralba's filters
_ANGULAR = np.pi
_CUTOFF = 4.0  # cycles per tile: the prefilter removes slower changes of light
_CONTRAST_FLOOR = 0.2  # keeps flat tiles from being raised to full contrast
# grey levels added before the logarithm: noise in dark corners counts less than edges in light
_DARK = 16


def gist(tiles: NDArray[np.uint8], *, workers: int = 1, block: int = 256) -> NDArray[np.float32]:
    """Describe each tile by the mean energy of 3 × 8 Gabor filters in 4 × 4 cells.

    The grey values pass Oliva & Torralba's prefilter (logarithm, slow changes removed, local
    contrast made even), then each filter. Column
    ``((scale * 8 + orientation) * 4 + cell_y) * 4 + cell_x`` is the mean modulus of the response.
    Orientation ``o`` answers to a grating whose
    brightness changes along the direction ``o * 22.5°`` (x to the right, y down); scale 0 is the
    finest. A row depends on its own tile alone, not on ``block``.

    Parameters
    ----------
    tiles : uint8[n, 32, 32, 3] or uint8[n, 32, 32]
        Colour tiles (described by the mean of their three channels) or grey ones.
    workers : int, ≥ 1
        Threads; each holds one block.
    block : int, ≥ 1
        Tiles per task; a thread needs about 50 kB per tile.

    Returns
    -------
    float32[n, 384]
        Finite and ≥ 0; zero if a tile has a single grey value.

    Raises
    ------
    ShapeError
        If the tiles are not 32 × 32, or ``workers`` or ``block`` is below 1.
    InputError
        If the tiles are not uint8.
    """
    _check(tiles, workers, block)
    rows = np.empty((len(tiles), DIMENSION), np.float32)
    starts = range(0, len(tiles), block)

    def describe(start: int) -> None:
        rows[start : start + block] = _describe(tiles[start : start + block])

    if workers == 1 or len(starts) < 2:
        _exhaust(map(describe, starts))
    else:
        with ThreadPoolExecutor(workers) as threads:
            _exhaust(threads.map(describe, starts))
    return rows


class GistSource:
    """A ``Source`` of the GIST of images, float32[n, 384], from ``workers`` threads."""

    def __init__(self, images: Images, workers: int) -> None:
        self.name, self.source_dtype = images.name, images.source_dtype
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self._images, self._workers = images, workers

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, 384)``."""
        return self._images.shape[0], DIMENSION

    @property
    def open_ended(self) -> bool:
        """Whether the number of images is not known."""
        return self._images.open_ended

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the GIST of images [start, stop), float32[stop − start, 384]."""
        return gist(self._images.tiles(start, stop), workers=self._workers)

    def fingerprint(self) -> str:
        """Return the fingerprint of the pixels."""
        return self._images.fingerprint()


def texture(tiles: NDArray[np.uint8], *, block: int = 256) -> NDArray[np.float32]:
    """Measure the texture of each tile: the standard deviation of its prefiltered grey values.

    Plain sky has less than 0.05, out-of-focus ground less than 0.1, a clear outline 0.2, foliage
    0.5. Kernels of histograms compare the shape of a GIST, not its sum: they would compare a tile
    without texture by its noise.

    Parameters
    ----------
    tiles : uint8[n, 32, 32, 3] or uint8[n, 32, 32]
        Colour tiles (measured by the mean of their three channels) or grey ones.
    block : int, ≥ 1
        Tiles per step.

    Returns
    -------
    float32[n]
        Finite and ≥ 0.

    Raises
    ------
    ShapeError
        If the tiles are not 32 × 32, or ``block`` is below 1.
    InputError
        If the tiles are not uint8.
    """
    _check(tiles, 1, block)
    deviations = np.empty(len(tiles), np.float32)
    for start in range(0, len(tiles), block):
        part = slice(start, start + block)
        deviations[part] = _prefilter(_gray(tiles[part])).std(axis=(1, 2))
    return deviations


def _check(tiles: NDArray[np.uint8], workers: int, block: int) -> None:
    """Refuse tiles of another type or shape, and counts below 1."""
    if tiles.dtype != np.uint8:
        raise InputError(
            f"tiles have the wrong type: found {tiles.dtype}, expected uint8. Fix: scale to "
            "0…255 first."
        )
    if tiles.ndim not in (3, 4) or tiles.shape[1:] not in ((SIDE, SIDE), (SIDE, SIDE, 3)):
        expected = f"[n, {SIDE}, {SIDE}] or [n, {SIDE}, {SIDE}, 3]"
        raise ShapeError(
            f"tiles have the wrong shape: found {list(tiles.shape)}, expected {expected}. Fix: "
            "resize them first."
        )
    if workers < 1 or block < 1:
        raise ShapeError(
            f"workers or block is out of range: found {workers} and {block}, expected 1 or "
            "more. Fix: raise them."
        )


def _exhaust(results: Iterable[None]) -> None:
    """Wait for all tasks; raise the first error."""
    for _ in results:
        pass


def _describe(tiles: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Describe one block of tiles: float32[b, 384]."""
    gray = _gray(tiles)
    even = np.pad(_prefilter(gray), ((0, 0), (_PAD, _PAD), (_PAD, _PAD)), mode="symmetric")
    spectrum = scipy.fft.fft2(even).reshape(len(tiles), _WIDE * _WIDE)
    energy = np.empty((len(tiles), N_SCALES * N_ORIENTATIONS, N_CELLS, N_CELLS), np.float32)
    positions, weights = _folded_bank()
    for band, (position, weight) in enumerate(zip(positions, weights, strict=True)):
        folded = (spectrum.take(position, axis=1) * weight).reshape(-1, _FOLDED, _FOLDED)
        energy[:, band] = _cell_means(scipy.fft.ifft2(folded, overwrite_x=True))
    energy[np.ptp(gray, axis=(1, 2)) == 0] = 0  # else rounding would pass for a picture
    return energy.reshape(len(tiles), DIMENSION)


def _gray(tiles: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return grey values 0…255: float32[b, 32, 32].

    They lie row by row, whatever the layout of the tiles: a matrix product rounds by the layout.
    """
    gray = tiles if tiles.ndim == 3 else tiles.mean(axis=3, dtype=np.float32)
    return np.ascontiguousarray(gray, np.float32)


def _prefilter(gray: NDArray[np.float32]) -> NDArray[np.float32]:
    """Even out light and contrast by Oliva & Torralba's prefilter: float32[b, 32, 32], about ±3.

    The logarithm of the grey value loses its low frequencies, then is divided by its local standard
    deviation.
    """
    blur = _blur()
    detail = np.log(gray + np.float32(_DARK))
    detail -= blur @ detail @ blur.T
    deviation = np.sqrt(blur @ np.square(detail) @ blur.T)
    detail /= deviation + np.float32(_CONTRAST_FLOOR)
    return np.asarray(detail)


def _cell_means(response: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Average the modulus over each cell: complex64[b, 24, 24] to float32[b, 4, 4]."""
    inside = slice(_PAD // _STEP, (_PAD + SIDE) // _STEP)
    part = response[:, inside, inside]
    modulus = np.sqrt(np.square(part.real) + np.square(part.imag))
    mean = _cell_average()
    return np.asarray(mean @ modulus @ mean.T)


@lru_cache(maxsize=1)
def _cell_average() -> NDArray[np.float32]:
    """Return the matrix that averages 16 samples into 4 cells: float32[4, 16]."""
    samples = SIDE // _STEP // N_CELLS
    return np.kron(np.eye(N_CELLS), np.full((1, samples), 1 / samples)).astype(np.float32)


@lru_cache(maxsize=1)
def _blur() -> NDArray[np.float32]:
    """Return the matrix that blurs one axis of a padded tile: float32[32, 32], rows sum to 1."""
    frequency = scipy.fft.fftfreq(_WIDE) * SIDE
    response = np.exp(-np.log(2) * (frequency / _CUTOFF) ** 2)
    padding = np.pad(np.eye(SIDE), ((_PAD, _PAD), (0, 0)), mode="symmetric")
    blurred = scipy.fft.ifft(scipy.fft.fft(padding, axis=0) * response[:, None], axis=0).real[
        _PAD : _PAD + SIDE
    ]
    # A Gaussian cut to 48 frequencies undershoots by ~1e-9; the squares under a root must not
    # become negative.
    blurred = np.maximum(blurred, 0)
    return np.asarray(blurred / blurred.sum(axis=1, keepdims=True), dtype=np.float32)


def gabor_bank() -> NDArray[np.float32]:
    """Return the transfer functions of the 24 filters: float32[24, 48, 48], real and ≥ 0.

    Each is a Gaussian around its frequency and around its orientation, on one side of the origin
    only: the modulus of the complex response is the local energy, whatever the phase. It is cut off
    beyond 11 frequencies along either axis (less than 1 % of its energy).
    """
    frequency = scipy.fft.fftfreq(_WIDE)
    y, x = np.meshgrid(frequency, frequency, indexing="ij")
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    bank = np.empty((N_SCALES, N_ORIENTATIONS, _WIDE, _WIDE))
    for scale in range(N_SCALES):
        radial = np.exp(-_RADIAL * (radius * _RATIO**scale / _TOP_FREQUENCY - 1) ** 2)
        for orientation in range(N_ORIENTATIONS):
            turn = np.angle(np.exp(1j * (angle - np.pi * orientation / N_ORIENTATIONS)))
            bank[scale, orientation] = radial * np.exp(-2 * _ANGULAR * turn**2)
            bank[scale, orientation][~_kept(scale, orientation)] = 0
    bank[..., 0, 0] = 0  # no response to mean light
    return bank.reshape(-1, _WIDE, _WIDE).astype(np.float32)


@lru_cache(maxsize=1)
def _folded_bank() -> tuple[NDArray[np.intp], NDArray[np.complex64]]:
    """Return the positions of each filter's 24 × 24 frequencies in the spectrum, and its weights.

    With frequency ``f`` at position ``f mod 24``, an inverse transform of a quarter of the size
    gives the exact response at every second pixel, as the filter is zero at all other frequencies.
    """
    frequency = scipy.fft.fftfreq(_WIDE, 1 / _WIDE)
    # Half a pixel further: samples at 0.5, 2.5 … 30.5 are symmetric, so the mirrored tile has the
    # same ones.
    shift = np.exp(1j * np.pi * frequency / _WIDE)
    bank = gabor_bank() * shift[:, None] * shift / _STEP**2
    positions = np.empty((len(bank), _FOLDED * _FOLDED), np.intp)
    for band in range(len(bank)):
        rows, columns = (_places(lowest) for lowest in _box(*divmod(band, N_ORIENTATIONS)))
        positions[band] = (rows[:, None] * _WIDE + columns).ravel()
    weights = np.take_along_axis(bank.reshape(len(bank), -1), positions, axis=1)
    return positions, weights.astype(np.complex64)


def _box(scale: int, orientation: int) -> tuple[int, int]:
    """Return the lowest of the 24 frequencies around a filter's centre, along y and along x."""
    centre = _WIDE * _TOP_FREQUENCY / _RATIO**scale
    turn = np.pi * orientation / N_ORIENTATIONS
    lowest = [round(centre * float(part)) - _FOLDED // 2 for part in (np.sin(turn), np.cos(turn))]
    y, x = (min(max(edge, -_WIDE // 2), _WIDE // 2 - _FOLDED) for edge in lowest)
    return y, x


def _places(lowest: int) -> NDArray[np.intp]:
    """Return 24 frequencies from ``lowest`` up as indices into the spectrum, ordered modulo 24."""
    frequencies = lowest + np.arange(_FOLDED)
    return frequencies[np.argsort(frequencies % _FOLDED)] % _WIDE


def _kept(scale: int, orientation: int) -> NDArray[np.bool_]:
    """Return the frequencies at which a filter is not cut off: bool[48, 48]."""
    kept = np.zeros((_WIDE, _WIDE), np.bool_)
    # The lowest is left out: it has no counterpart in the mirrored filter's box, and may be the
    # Nyquist frequency.
    rows, columns = (lowest + np.arange(1, _FOLDED) for lowest in _box(scale, orientation))
    kept[np.ix_(rows % _WIDE, columns % _WIDE)] = True
    return kept
