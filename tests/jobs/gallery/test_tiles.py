"""Tiles come from where they say, and no query overlaps the base."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.jobs.gallery.tiles import (
    HeldOut,
    Tiles,
    add_mirror_images,
    cut_tiles,
    drop_plain,
    hold_out,
)
from mercore.pipeline.gist import texture


def noise(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def photographs() -> list[NDArray[np.uint8]]:
    return [noise(200, 260, 0), noise(180, 300, 1)]


@pytest.fixture(scope="module")
def tiles(photographs: list[NDArray[np.uint8]]) -> Tiles:
    return add_mirror_images(cut_tiles(photographs, stride=6, scales=(1.0, 0.7, 0.4)))


@pytest.fixture(scope="module")
def held(tiles: Tiles) -> HeldOut:
    return hold_out(tiles, 40, random_state=3, n_windows=6)


def overlap(one: NDArray[np.float64], many: NDArray[np.float64]) -> NDArray[np.float64]:
    """Area that rectangle ``one`` shares with each of ``many``."""
    height = np.minimum(one[2], many[:, 2]) - np.maximum(one[0], many[:, 0])
    width = np.minimum(one[3], many[:, 3]) - np.maximum(one[1], many[:, 1])
    return np.asarray(np.maximum(height, 0) * np.maximum(width, 0))


def test_tiles_of_scale_one_are_the_photograph(photographs: list[NDArray[np.uint8]]) -> None:
    tiles = cut_tiles(photographs, stride=10, scales=(1.0,))
    pixels, corners = tiles.pixels(), tiles.rectangles()[:, :2].astype(int)
    assert pixels.shape == (len(tiles), 32, 32, 3)
    for row in range(0, len(tiles), 37):
        top, left = corners[row]
        photograph = photographs[tiles.photographs()[row]]
        np.testing.assert_array_equal(pixels[row], photograph[top : top + 32, left : left + 32])


def test_number_of_tiles_follows_from_stride_and_scale() -> None:
    tiles = cut_tiles([noise(64, 96, 0)], stride=8, scales=(1.0, 0.5, 0.4))  # 0.4 is too small
    assert len(tiles) == 5 * 9 + 1 * 3
    assert tiles.rectangles()[-1].tolist() == [0.0, 32.0, 64.0, 96.0]


def test_smaller_scales_are_averaged_not_sampled() -> None:
    checkered = np.indices((128, 128)).sum(axis=0) % 2 * 255
    photograph = np.repeat(checkered[:, :, None], 3, axis=2).astype(np.uint8)
    inner = cut_tiles([photograph], scales=(0.25,)).pixels()[:, 4:-4, 4:-4]
    assert np.ptp(inner) <= 2
    assert abs(float(inner.mean()) - 127.5) < 2


def test_mirror_images_follow_in_the_same_order(tiles: Tiles) -> None:
    half = len(tiles) // 2
    assert not tiles.mirrored[:half].any()
    assert tiles.mirrored[half:].all()
    np.testing.assert_array_equal(tiles.pixels(half, half + 50), tiles.pixels(0, 50)[:, :, ::-1])
    np.testing.assert_array_equal(tiles.rectangles()[half:], tiles.rectangles()[:half])


def test_pixels_of_a_range_are_those_of_the_whole(tiles: Tiles) -> None:
    np.testing.assert_array_equal(tiles.pixels(100, 900), tiles.pixels()[100:900])
    np.testing.assert_array_equal(tiles.take(np.array([7, 3])).pixels(), tiles.pixels()[[7, 3]])


def test_rectangles_stay_inside_their_photographs(
    tiles: Tiles, photographs: list[NDArray[np.uint8]]
) -> None:
    shapes = np.array([photograph.shape[:2] for photograph in photographs])[tiles.photographs()]
    rectangles = tiles.rectangles()
    assert (rectangles[:, :2] >= 0).all()
    assert (rectangles[:, 2:] <= shapes + 1e-9).all()


def test_plain_tiles_are_dropped() -> None:
    photograph = noise(64, 128, 0)
    photograph[:, :64] = 200
    tiles = cut_tiles([photograph], stride=32, scales=(1.0,))
    kept = drop_plain(tiles, workers=2)
    assert kept.x.tolist() == [64, 96, 64, 96]
    assert (texture(kept.pixels()) >= 0.15).all()


def test_no_base_tile_overlaps_a_query_or_a_window(held: HeldOut) -> None:
    base, photographs = held.base.rectangles(), held.base.photographs()
    kept_out = [
        *np.column_stack([held.queries.photographs(), held.queries.rectangles()]),
        *held.windows,
    ]
    for photograph, *rectangle in kept_out:
        same = base[photographs == photograph]
        assert overlap(np.array(rectangle), same).max() == 0


def test_queries_come_from_windows_in_turn_unmirrored_and_once(held: HeldOut) -> None:
    rectangles, photographs = held.queries.rectangles(), held.queries.photographs()
    area = np.prod(rectangles[:, 2:] - rectangles[:, :2], axis=1)
    inside = np.stack(
        [(photographs == w[0]) & np.isclose(overlap(w[1:], rectangles), area) for w in held.windows]
    )
    np.testing.assert_array_equal(inside.sum(axis=0), 1)
    assert sorted(inside[:, :6].argmax(axis=0).tolist()) == list(range(6))
    assert sorted(held.windows[:, 0].tolist()) == [0, 0, 0, 1, 1, 1]
    assert not held.queries.mirrored.any()
    places = {
        (int(a), int(b), int(c))
        for a, b, c in zip(held.queries.level, held.queries.y, held.queries.x, strict=True)
    }
    assert len(places) == len(held.queries) == 40
    assert len(set(held.queries.level.tolist())) >= 4


def test_the_draw_depends_on_the_seed_alone(tiles: Tiles, held: HeldOut) -> None:
    again = hold_out(tiles, 40, random_state=3, n_windows=6)
    np.testing.assert_array_equal(again.queries.pixels(), held.queries.pixels())
    np.testing.assert_array_equal(again.base.y, held.base.y)
    other = hold_out(tiles, 40, random_state=4, n_windows=6)
    assert other.windows.tolist() != held.windows.tolist()
