"""GIST against a plain tile-by-tile truth, and against what must hold for gratings, mirrors, turns
and light."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.gist import DIMENSION, gabor_bank, gist, texture
from mercore.stores.errors import InputError, ShapeError
from mercore.testing.cases import loop_over

FREQUENCIES = (0.3, 0.3 / 1.85, 0.3 / 1.85**2)


def smooth_noise(n: int, seed: int = 0) -> NDArray[np.uint8]:
    """Coloured tiles with structure at every scale."""
    random = np.random.default_rng(seed)
    tiles = np.zeros((n, 32, 32, 3))
    for step in (1, 4, 8):
        tiles += (
            random.uniform(0, 85, (n, 32 // step, 32 // step, 3))
            .repeat(step, axis=1)
            .repeat(step, axis=2)
        )
    return tiles.astype(np.uint8)


def grating(frequency: float, angle: float, phase: float = 0.7) -> NDArray[np.uint8]:
    """A grating whose brightness changes along ``angle``: uint8[1, 32, 32]."""
    y, x = np.indices((32, 32))
    wave = np.cos(2 * np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    return np.asarray(127.5 + 60 * wave, dtype=np.uint8)[None]


def cells(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Take a description apart: float32[n, scale, orientation, cell_y, cell_x]."""
    return rows.reshape(-1, 3, 8, 4, 4)


def reference_prefiltered(gray: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prefilter one tile by two-dimensional transforms, then pad it: float64[48, 48]."""
    y, x = np.meshgrid(np.fft.fftfreq(48) * 32, np.fft.fftfreq(48) * 32, indexing="ij")
    lowpass = 2.0 ** -((x**2 + y**2) / 4.0**2)

    def blurred(image: NDArray[np.float64]) -> NDArray[np.float64]:
        padded = np.pad(image, 8, mode="symmetric")
        return np.asarray(np.fft.ifft2(np.fft.fft2(padded) * lowpass).real[8:40, 8:40])

    detail = np.log(gray + 16)
    detail = detail - blurred(detail)
    detail = detail / (0.2 + np.sqrt(np.maximum(blurred(detail**2), 0)))
    return np.pad(detail, 8, mode="symmetric")


def reference_gist(tile: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Describe one tile with whole filters at every pixel, a loop a filter and a cell:
    float64[384]."""
    spectrum = np.fft.fft2(reference_prefiltered(tile.astype(float).mean(axis=2)))
    y, x = np.meshgrid(np.fft.fftfreq(48), np.fft.fftfreq(48), indexing="ij")
    row = []
    for frequency in FREQUENCIES:
        for orientation in range(8):
            turn = np.arctan2(y, x) - np.pi * orientation / 8
            turn = (turn + np.pi) % (2 * np.pi) - np.pi
            transfer = np.exp(-3.5 * (np.hypot(x, y) / frequency - 1) ** 2 - 2 * np.pi * turn**2)
            transfer[0, 0] = 0
            modulus = np.abs(np.fft.ifft2(spectrum * transfer))[8:40, 8:40]
            row += [
                modulus[v : v + 8, u : u + 8].mean()
                for v in range(0, 32, 8)
                for u in range(0, 32, 8)
            ]
    return np.array(row)


def reference_sampled(tile: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Describe one tile with the filters as cut off, at every second pixel from half a pixel on:
    float64[384]."""
    spectrum = np.fft.fft2(reference_prefiltered(tile.astype(float).mean(axis=2)))
    frequency = np.fft.fftfreq(48)
    at = 8 + np.arange(0.5, 32, 2)
    inverse = np.exp(2j * np.pi * at[:, None] * frequency) / 48
    row = []
    for transfer in gabor_bank().astype(float):
        modulus = np.abs(inverse @ (spectrum * transfer) @ inverse.T)
        row += [
            modulus[v : v + 4, u : u + 4].mean() for v in range(0, 16, 4) for u in range(0, 16, 4)
        ]
    return np.array(row)


def test_agrees_with_the_plain_truth() -> None:
    tiles = smooth_noise(6)
    rows = gist(tiles)
    assert rows.dtype == np.float32
    assert rows.shape == (6, DIMENSION) == (6, 384)
    np.testing.assert_allclose(
        rows, [reference_sampled(tile) for tile in tiles], rtol=2e-4, atol=2e-6
    )


def test_sampling_and_cutting_off_change_little() -> None:
    tiles = smooth_noise(6, seed=1)
    rows, truth = gist(tiles), np.array([reference_gist(tile) for tile in tiles])
    assert (np.linalg.norm(rows - truth, axis=1) < 0.04 * np.linalg.norm(truth, axis=1)).all()


@loop_over("block", [1, 7, 64])
@loop_over("workers", [1, 3])
def test_a_row_depends_on_its_own_tile_alone(block: int, workers: int) -> None:
    tiles = smooth_noise(50)
    np.testing.assert_array_equal(gist(tiles, block=block, workers=workers), gist(tiles, block=50))


def test_tiles_by_planes_have_the_same_bits() -> None:
    tiles = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), np.uint8)
    by_planes = np.ascontiguousarray(tiles.transpose(0, 3, 2, 1)).transpose(0, 3, 2, 1)
    np.testing.assert_array_equal(gist(by_planes), gist(tiles))


def test_finite_and_not_negative_even_for_extreme_tiles() -> None:
    flat = np.broadcast_to(np.array([0, 1, 128, 255], np.uint8)[:, None, None], (4, 32, 32))
    checkered = (np.indices((32, 32)).sum(axis=0) % 2 * 255).astype(np.uint8)[None]
    rows = gist(np.concatenate([flat, checkered, 255 - checkered]))
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    assert (rows[:4] == 0).all()


def test_gray_tiles_are_described_like_equal_channels() -> None:
    gray = smooth_noise(5)[..., 0]
    np.testing.assert_allclose(
        gist(gray), gist(np.repeat(gray[..., None], 3, axis=3)), rtol=1e-4, atol=1e-6
    )


@loop_over("orientation", range(8))
@loop_over("scale", range(3))
def test_a_grating_lights_its_channel(scale: int, orientation: int) -> None:
    energy = cells(gist(grating(FREQUENCIES[scale], np.pi * orientation / 8))).mean(axis=(0, 3, 4))
    assert np.unravel_index(energy.argmax(), energy.shape) == (scale, orientation)


def test_energy_of_a_grating_does_not_depend_on_its_phase() -> None:
    rows = np.concatenate([gist(grating(0.25, 0.3, phase)) for phase in (0.0, 1.0, 2.0, 3.0)])
    energy = cells(rows).mean(axis=(3, 4)).max(axis=(1, 2))
    assert np.ptp(energy) < 0.05 * energy.mean()


def test_a_mirrored_tile_has_mirrored_cells_and_orientations() -> None:
    tiles = smooth_noise(8)
    mirrored = cells(gist(tiles[:, :, ::-1]))
    expected = cells(gist(tiles))[:, :, [0, 7, 6, 5, 4, 3, 2, 1], :, ::-1]
    np.testing.assert_allclose(mirrored, expected, rtol=1e-3, atol=1e-5)


def test_a_quarter_turn_moves_orientations_by_four() -> None:
    tiles = smooth_noise(8)
    turned = cells(gist(np.rot90(tiles, axes=(1, 2)).copy()))
    expected = np.rot90(np.roll(cells(gist(tiles)), 4, axis=2), axes=(3, 4))
    np.testing.assert_allclose(turned, expected, rtol=1e-3, atol=1e-5)


def test_light_changes_little() -> None:
    tiles = smooth_noise(8) // 2 + 30
    rows = gist(tiles)
    for other in (gist(tiles + np.uint8(40)), gist((tiles * 1.4).astype(np.uint8))):
        cosine = (
            (rows * other).sum(axis=1)
            / np.linalg.norm(rows, axis=1)
            / np.linalg.norm(other, axis=1)
        )
        assert (cosine > 0.99).all()


def test_texture_ranks_flat_below_outline_below_noise() -> None:
    flat = np.full((1, 32, 32), 90, np.uint8)
    slope = np.broadcast_to(np.linspace(80, 120, 32).astype(np.uint8), (1, 32, 32))
    outline = np.where(np.arange(32) < 16, 60, 200).astype(np.uint8) * np.ones((1, 32, 1), np.uint8)
    noise = smooth_noise(1)[..., 0]
    found = texture(np.concatenate([flat, slope, outline, noise]), block=3)
    assert found.dtype == np.float32
    assert found[0] < 1e-5
    assert found[0] < found[1] < 0.15 < found[2] < found[3]


def test_no_tiles_give_no_rows() -> None:
    assert gist(np.zeros((0, 32, 32, 3), np.uint8)).shape == (0, 384)
    assert texture(np.zeros((0, 32, 32), np.uint8)).shape == (0,)


def test_what_is_no_tile_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^tiles have the wrong type: found float32, expected uint8\. Fix: "
    ):
        gist(np.zeros((1, 32, 32), np.float32))
    for shape in ((1, 16, 16), (32, 32), (1, 32, 32, 4)):
        with pytest.raises(ShapeError, match=r"^tiles have the wrong shape: found \["):
            gist(np.zeros(shape, np.uint8))
    with pytest.raises(
        ShapeError,
        match=r"^workers or block is out of range: found 0 and 256, expected 1 or more\.",
    ):
        gist(np.zeros((1, 32, 32), np.uint8), workers=0)
