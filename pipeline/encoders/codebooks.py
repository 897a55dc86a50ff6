"""Codebooks of product quantisation: 256 centroids per sub-quantizer, by k-means."""

import multiprocessing
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from mercore.pipeline.arrays import Float32

Learned = TypeVar("Learned")

CENTROIDS = 256  # of a sub-quantizer: its code is a byte
ITERATIONS = 25  # of k-means; faiss takes as many
SEEDED = 4  # k-means++ takes every fourth point, if these are many


def learn_codebooks(sample: Float32, count: int, random_state: int) -> Float32:
    """Return centroids by k-means (Jégou et al. 2011), float32[count · 256, E / count].

    Threads share the sub-quantizers out; each of them is learned on one thread.
    """
    parts = [np.ascontiguousarray(part) for part in np.split(sample, count, axis=1)]
    seeds = range(random_state, random_state + count)
    return np.concatenate(on_threads(find_centroids, parts, seeds))


def on_threads(learn: Callable[..., Learned], *arguments: Iterable[Any]) -> list[Learned]:
    """Return the results of ``learn``, one per set of arguments: threads share the calls out.

    Each call runs on one thread. No library takes further threads: sums have one order.
    """
    import sklearn.cluster  # noqa: F401 - a limit from before the import would not hold
    from threadpoolctl import threadpool_limits

    cores = multiprocessing.cpu_count()
    with (
        threadpool_limits(1),
        warnings.catch_warnings(),
        # limits hold for the thread that sets them
        ThreadPoolExecutor(cores, initializer=threadpool_limits, initargs=(1,)) as threads,
    ):
        warnings.simplefilter("ignore")  # of centroids that fall together: they do no harm
        return list(threads.map(learn, *arguments))


def find_centroids(points: Float32, random_state: int) -> Float32:
    """Return 256 centroids, float32[256, s]: k-means++ on a quarter of the points, then Lloyd's.

    If at most 256 points are distinct, they are the centroids, and the last is repeated: no row is
    ever assigned to a repeat.
    """
    from sklearn.cluster import KMeans, kmeans_plusplus

    centers = np.unique(points, axis=0)
    if len(centers) > CENTROIDS:
        few = points[::SEEDED] if len(points) >= SEEDED * SEEDED * CENTROIDS else points
        first, _ = kmeans_plusplus(few, CENTROIDS, random_state=random_state)
        means = KMeans(CENTROIDS, init=first, n_init=1, max_iter=ITERATIONS)
        centers = means.fit(points).cluster_centers_.astype(np.float32)
    return np.concatenate([centers, np.repeat(centers[-1:], CENTROIDS - len(centers), axis=0)])
