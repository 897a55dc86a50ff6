"""The beam search of residual quantisation: centroids whose sum is near a point.

With ŷ = Σ c, ‖y − ŷ‖² = ‖y‖² − 2 g, and the gain g = Σ ⟨y, c⟩ − ‖c‖² / 2 − Σ ⟨c, c'⟩ over pairs of
the chosen. ‖ŷ‖² = 2 (⟨y, ŷ⟩ − g). A scan takes the norm that the last centroid stands for instead.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.vectors import (
    FLOAT32,
    add,
    exceeds,
    load_float32,
    lowest_bit,
    multiply,
    splat_float32,
    store,
    subtract,
)

Singles = NDArray[np.float32]

CENTROIDS = np.uint64(256)
LANES = np.uint64(FLOAT32.count)


@jit(inline="always")
def insert(found: Any, room: int, value: np.float32, gain: np.float32, origin: np.uint64) -> None:
    """Insert a value into the descending list, after its equals; the last falls out."""
    values, gains, origins = found
    at = room - 1
    while at > 0 and values[at - 1] < value:
        values[at], gains[at], origins[at] = values[at - 1], gains[at - 1], origins[at - 1]
        at -= 1
    values[at], gains[at], origins[at] = value, gain, origin


@jit(inline="always")
def gains_of(
    first: Any, own: np.uint64, level: np.uint64, places: Any, arrays: Any, gain: Any
) -> Any:
    """Return the gains of 16 centroids of a codebook from ``first`` on, behind a beam's sum."""
    products, halves, _, cross = arrays
    gains = subtract(
        load_float32(products, own + first), load_float32(halves, level * CENTROIDS + first)
    )
    gains = add(gain, gains)
    for j in range(level):
        gains = subtract(gains, load_float32(cross, places[j] + first))
    return gains


@jit(inline="always")
def valued(along: Any, gains: Any, weight: Any) -> Any:
    """Return g − w (⟨y, ŷ⟩ − g − ‖ŷ‖² / 2)² of 16 sums, with the norms that a scan takes."""
    error = subtract(along, gains)
    return subtract(gains, multiply(weight, multiply(error, error)))


@jit
def extend(
    own: np.uint64,
    level: Any,
    beam: Any,
    arrays: Any,
    weight: np.float32,
    room: int,
    found: Any,
    buffer: Singles,
) -> None:
    """Set ``found`` to the ``room`` sums of greatest value that one more centroid makes.

    The value is the gain; where ``weight`` is above 0, less ``weight`` times the squared error of
    half the norm.
    """
    count, chosen, gains, alongs, places = beam
    products, _, norms, _ = arrays
    values, _, _ = found
    values[:room] = -np.inf
    found[2][:room] = 0
    for b in range(count):
        for j in range(level):
            # codebooks of a level lie side by side, and levels behind one another
            book = level * (level - np.uint64(1)) // np.uint64(2) + j
            places[j] = (book * CENTROIDS + chosen[b, j]) * CENTROIDS
        gain, along = splat_float32(gains[b]), splat_float32(alongs[b])
        for first in range(np.uint64(0), CENTROIDS, LANES):
            sums = gains_of(first, own, level, places, arrays, gain)
            value = sums
            if weight > 0:
                side = subtract(load_float32(products, own + first), load_float32(norms, first))
                value = valued(add(along, side), sums, splat_float32(weight))
            hits = np.uint64(exceeds(value, splat_float32(values[room - 1])))
            if hits:
                store(buffer, np.uint64(0), value)
                store(buffer, LANES, sums)
            while hits:
                lane = np.uint64(lowest_bit(hits))
                hits &= hits - np.uint64(1)
                if buffer[lane] > values[room - 1]:
                    origin = np.uint64(b) * CENTROIDS + first + lane
                    insert(found, room, buffer[lane], buffer[LANES + lane], origin)


@jit
def search(
    products: Singles,
    halves: Singles,
    norms: Singles,
    cross: Singles,
    width: int,
    weight: np.float32,
    code: NDArray[np.uint8],
    squares: Singles,
) -> None:
    """Set ``code`` to the centroids of greatest gain, less w e² for the error e of ‖ŷ‖² / 2.

    Parameters
    ----------
    products : float32[n · M · 256], ⟨y, c⟩ of n points
    halves : float32[M · 256], ‖c‖² / 2
    norms : float32[256], ‖ŷ‖² / 2 that the last centroids stand for
    cross : float32[M (M − 1) / 2 · 65536], ⟨c, c'⟩: of codebook 1 and 0, of 2 and 0, of 2 and 1, …
    width : the sums that are kept behind every codebook but the last
    weight : w; without one, norms count for nothing
    code : uint8[n, kept, M], the best first
    squares : float32[n], ‖ŷ‖² / 2 of the points' other groups; that of the best code is added
    """
    n, kept, size = code.shape
    most = max(kept, width)
    arrays = products, halves, norms, cross
    buffer, places = np.empty(2 * LANES, np.float32), np.empty(size, np.uint64)
    chosen, other = np.empty((most, size), np.uint64), np.empty((most, size), np.uint64)
    gains, alongs, sides = (
        np.empty(most, np.float32),
        np.empty(most, np.float32),
        np.empty(most, np.float32),
    )
    found = np.empty(most, np.float32), np.zeros(most, np.float32), np.empty(most, np.uint64)
    for i in range(n):
        count = 1
        gains[0], alongs[0] = np.float32(0), squares[i]
        for m in range(np.uint64(size)):
            last = m == np.uint64(size - 1)
            room, own = kept if last else width, (np.uint64(i * size) + m) * CENTROIDS
            beam = count, chosen, gains, alongs, places
            push = weight if last else np.float32(0)
            extend(own, m, beam, arrays, push, room, found, buffer)
            for k in range(room):
                b, c = found[2][k] // CENTROIDS, found[2][k] % CENTROIDS
                other[k, :m] = chosen[b, :m]
                other[k, m] = c
                sides[k] = alongs[b] + products[own + c]
            chosen, other, alongs, sides = other, chosen, sides, alongs
            gains[:room], count = found[1][:room], room
        code[i] = chosen[:kept]
        squares[i] = alongs[0] - gains[0]
