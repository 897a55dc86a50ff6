"""Nearest neighbours under a kernel, as an estimator of scikit-learn."""

from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from mercore.jobs import api
from mercore.jobs.custom_kernel import load_custom
from mercore.jobs.encoder_options import CHOOSE
from mercore.jobs.options import names_file, refuse_unused
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.session import opening
from mercore.jobs.session.open_store import OpenStore
from mercore.pipeline.encoders import ENCODERS
from mercore.pipeline.kernels import KINDS, Kernel, canonical_name
from mercore.stores.errors import InputError
from mercore.stores.formats.array import matrix_of
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_vectors
from mercore.stores.vectors import blocks, original_ids

CODES = "codes.zarr"
DTYPES = [np.float32, np.float64, np.float16, np.uint8, np.int8]
RERANKED, RERANKED_PER = 100, 20  # codes that are scored again: at least, and per neighbour
ROUNDING = 1e-12  # of scores that become distances
BLOCK_ROWS = 1024  # rows that search for their own neighbours within a radius at a time
EXACT = (CHOOSE, *(name for name, kind in ENCODERS.items() if kind.bounds))
Ids = NDArray[np.int64]
Distances = NDArray[np.float64]


class KernelNeighbors(BaseEstimator):  # type: ignore[misc]
    """The nearest rows under a kernel, with the methods of ``sklearn.neighbors.NearestNeighbors``.

    ``fit`` writes the rows into a store, and codes of them into another if an encoder is named.
    Searches read these stores, so the rows may exceed the memory.

    Parameters
    ----------
    n_neighbors : neighbours per query
    kernel : name of a kernel, or the path of a Python file that declares one
    gamma : γ of the kernel, if it takes one; ``"median"`` chooses it by a sample of the rows
    transform_scale : s, to use exp(s (κ − 1)) in place of the kernel κ
    encoder : None to score every row by the kernel; ``"bound"`` to find the same neighbours by
        bounds, and ``"kpca-pq"``, ``"map-pq"``, ``"pca-pq"`` or ``"pq"`` by codes with proofs;
        another encoder, or a text such as ``"kpca-pq:components=64,proof=none"``, to find
        approximate neighbours
    rerank : number of best codes per query that are scored again by the true kernel; by default
        20 per neighbour and at least 100. With codes that prove, ``None`` finds the true
        neighbours
    radius : distance within which ``radius_neighbors`` finds rows
    path : folder of the stores; by default a temporary folder, which goes with the estimator
    memory : bytes of the stores that stay in memory, or a text such as ``"4GB"``
    n_jobs : number of threads; by default and for −1 all cores, for −2 all but one

    Attributes
    ----------
    n_samples_fit_ : number of rows
    n_features_in_ : dimension of the rows

    Notes
    -----
    The distance of two rows is that of their images in the feature space of the kernel κ:
    √(κ(x, x) + κ(y, y) − 2 κ(x, y)). Under ``euclidean`` it is ‖x − y‖. Inner products are no
    distances: ``inner_product`` is refused, and a custom kernel with ``SEMIDEFINITE = False``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercore import KernelNeighbors
    >>> rows = np.array([[4.0, 0.0], [1.0, 3.0], [0.0, 2.0]])
    >>> nearest = KernelNeighbors(n_neighbors=2, kernel="intersection").fit(rows)
    >>> nearest.kneighbors([[1.0, 4.0]], return_distance=False)
    array([[1, 2]])
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        kernel: str = "euclidean",
        gamma: float | str | None = None,
        transform_scale: float | None = None,
        encoder: str | None = None,
        rerank: int | None = None,
        radius: float = 1.0,
        path: str | None = None,
        memory: int | str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.kernel = kernel
        self.gamma = gamma
        self.transform_scale = transform_scale
        self.encoder = encoder
        self.rerank = rerank
        self.radius = radius
        self.path = path
        self.memory = memory
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike | Path, y: object = None) -> Self:
        """Write the rows into stores.

        Parameters
        ----------
        X : dtype[n, d], an array, a tensor, a data frame, an Arrow table or a CSR matrix; a column
            of lists; or the path of a vector store
        y : has no meaning, and is there for pipelines
        """
        if self._kind is not None and not (self._kind.normalised or self._kind.ascending):
            raise InputError(
                f"kernel {self.kernel} gives no distances, which neighbours have here. Fix: "
                "kernel='euclidean', or mercore.search, which ranks by the products."
            )
        custom = load_custom(api.plain_path(self.kernel)) if self._kind is None else None
        if custom is not None and not custom.normalised:
            raise custom.lacks("distances")
        if self._proves:
            refuse_unused("bounds find the true neighbours", rerank=self.rerank)
        self._temporary = TemporaryDirectory(prefix="mercore-")
        folder = Path(self._temporary.name if self.path is None else self.path)
        if isinstance(X, str | Path):
            self._vectors = Path(X)
        else:
            rows = validate_data(self, matrix_of(X), accept_sparse="csr", dtype=DTYPES)
            if self._positive:
                check_non_negative(rows, type(self).__name__)
            self._vectors = folder / "vectors.zarr"
            api.ingest(rows, self._vectors)
        if self.encoder is not None:
            api.encode(
                self._vectors,
                folder / CODES,
                kernel=self.kernel,
                gamma=self.gamma,
                transform=self.transform_scale,
                encoder=self.encoder,
                force=self.encoder == CHOOSE,  # bounds were asked for, though they may not pay
                workers=self._threads,
            )
        self._folder = folder
        self._open()
        self.n_samples_fit_, self.n_features_in_ = self._rows.rows, self._rows.dims
        return self

    def kneighbors(
        self,
        X: ArrayLike | None = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Any:  # noqa: ANN401 - one array or two
        """Return the nearest rows of each query.

        Parameters
        ----------
        X : dtype[nq, d], the queries; by default the rows; no row is its own neighbour
        n_neighbors : neighbours per query; by default those of the estimator
        return_distance : whether to return the distances too

        Returns
        -------
        distances : float64[nq, n_neighbors], ascending; only if ``return_distance``
        ids : int64[nq, n_neighbors]
        """
        check_is_fitted(self)
        most = self.n_samples_fit_ - (X is None)
        k = _checked(self.n_neighbors if n_neighbors is None else n_neighbors, most)
        hits = self._nearest(self._queries(X), k) if X is not None else self._others(k)
        return (self._distances(hits.scores), hits.ids) if return_distance else hits.ids

    def kneighbors_graph(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None, mode: str = "connectivity"
    ) -> csr_matrix:
        """Return the nearest rows of each query as a sparse matrix, float64[nq, n].

        Parameters
        ----------
        X, n_neighbors : as of ``kneighbors``
        mode : ``"connectivity"`` for ones, ``"distance"`` for distances
        """
        distances, ids = self.kneighbors(X, n_neighbors)
        starts = np.arange(0, ids.size + 1, ids.shape[1])
        return self._graph(mode, distances.ravel(), ids.ravel(), starts)

    def radius_neighbors_graph(
        self, X: ArrayLike | None = None, radius: float | None = None, mode: str = "connectivity"
    ) -> csr_matrix:
        """Return all rows within a distance of each query as a sparse matrix, float64[nq, n].

        Parameters
        ----------
        X, radius : as of ``radius_neighbors``
        mode : ``"connectivity"`` for ones, ``"distance"`` for distances
        """
        distances, ids = self.radius_neighbors(X, radius)
        starts = np.cumsum([0, *map(len, ids)])
        return self._graph(mode, np.concatenate(distances), np.concatenate(ids), starts)

    def _graph(self, mode: str, distances: Distances, ids: Ids, starts: Ids) -> csr_matrix:
        """Return neighbours as a sparse matrix [queries, ids]."""
        if mode not in ("connectivity", "distance"):
            raise InputError(
                f"mode is {mode!r}: expected connectivity or distance. Fix: mode='distance'."
            )
        values = np.ones(len(ids)) if mode == "connectivity" else distances
        width = self.n_samples_fit_ + len(self._rows.dropped)  # ids count dropped rows too
        return csr_matrix((values, ids, starts), shape=(len(starts) - 1, width))

    def radius_neighbors(
        self,
        X: ArrayLike | None = None,
        radius: float | None = None,
        return_distance: bool = True,
    ) -> Any:  # noqa: ANN401 - one array or two
        """Return all rows within a distance of each query, by an exact search.

        Parameters
        ----------
        X : dtype[nq, d], the queries; by default the rows; no row is its own neighbour
        radius : the distance; by default that of the estimator
        return_distance : whether to return the distances too

        Returns
        -------
        distances : object[nq], of float64[any], ascending; only if ``return_distance``
        ids : object[nq], of int64[any]
        """
        check_is_fitted(self)
        within = self.radius if radius is None else radius
        found = [
            pair for queries, own in self._blocks(X) for pair in self._within(queries, within, own)
        ]
        distances, ids = (_as_objects(values) for values in zip(*found, strict=True))
        return (distances, ids) if return_distance else ids

    def _blocks(self, X: ArrayLike | None) -> Iterator[tuple[Any, Ids | None]]:
        """Yield the queries, or blocks of the rows with their own ids."""
        if X is not None:
            yield self._queries(X), None
            return
        vectors = open_vectors(str(self._vectors))
        for first, rows in blocks(vectors, 0, vectors.rows, BLOCK_ROWS):
            yield rows, original_ids(np.arange(first, first + len(rows)), vectors.dropped)

    def _within(self, queries: Any, radius: float, own: Ids | None) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - rows of any kind
        """Yield the distances and ids of all rows within a radius, per query."""
        codes, ascending = self._codes, self._rows.kernel.ascending
        store = codes if codes is not None and codes.proves else self._rows
        # a little less than the score of the radius: the distances decide
        threshold = radius if ascending else 1 - max(0.0, radius) ** 2 / 2 - ROUNDING
        hits = store.search_within(queries, threshold, exact=True)
        for query in range(len(hits)):
            ids, scores = hits.of(query)
            distances = self._distances(scores)
            kept = distances <= radius
            if own is not None:
                kept &= ids != own[query]
            yield distances[kept], ids[kept]

    def _nearest(self, queries: Any, k: int) -> Hits:  # noqa: ANN401 - rows of any kind
        """Return the k nearest rows of each query by the encoder, or by every row."""
        reranked = self._reranked(k)
        if self._codes is None or reranked is None:
            return self._exact(queries, k)
        return self._codes.search(queries, k=k, rerank=reranked)

    def _reranked(self, k: int) -> int | None:
        """Return the number of best codes to score again, None for the true neighbours."""
        if self._codes is None or (self.rerank is None and self._codes.proves):
            return None
        reranked = max(RERANKED, RERANKED_PER * k) if self.rerank is None else self.rerank
        return min(reranked, self._codes.rows)

    def _exact(self, queries: Any, k: int) -> Hits:  # noqa: ANN401 - rows of any kind
        """Return the true k nearest rows of each query."""
        if self._codes is None or not self._codes.proves:
            return self._every_row(queries, k)
        return self._codes.search(queries, k=k, exact=True)

    def _every_row(self, queries: Any, k: int) -> Hits:  # noqa: ANN401 - rows of any kind
        """Return the true k nearest rows of each query, from the scores of every row."""
        return self._rows.search(queries, k=k)

    def _others(self, k: int) -> Hits:
        """Return the k nearest other rows of each row."""
        store, given = self._folder / CODES, dict[str, Any](vectors=self._vectors)
        if self._codes is None:
            store, given = self._vectors, {"kernel": self.kernel, "gamma": self.gamma}
            given["transform"] = self.transform_scale
        _, found = api.graph(
            store, k=k, rerank=self._reranked(k), threads=self._threads, memory=self.memory, **given
        )
        return Hits(ids=found.ids.reshape(-1, k), scores=found.scores.reshape(-1, k))

    def _queries(self, X: ArrayLike) -> Any:  # noqa: ANN401 - rows of any kind
        given = matrix_of(X)
        return validate_data(self, given, reset=False, accept_sparse="csr", dtype=DTYPES)

    @property
    def _proves(self) -> bool:
        """Whether the encoder makes bounds alone, which rerank nothing."""
        return self.encoder is not None and self.encoder.partition(":")[0] in EXACT

    @property
    def _threads(self) -> int | None:
        """The number of threads, None for all cores."""
        if self.n_jobs is None or self.n_jobs >= 0:
            return self.n_jobs
        return max(1, available_cores() + 1 + self.n_jobs)

    @property
    def _positive(self) -> bool:
        """Whether the kernel takes no negative values; a custom one says so later."""
        return self._kind is not None and not self._kind.signed

    @property
    def _kind(self) -> type[Kernel] | None:
        """The class of the kernel, or None for a custom one."""
        name = api.plain_path(self.kernel)
        return None if names_file(name) else KINDS[canonical_name(name)]

    def _distances(self, scores: NDArray[np.floating[Any]] | None) -> Distances:
        """Return the distances of hits with some scores."""
        assert scores is not None
        exact: Distances = scores.astype(np.float64)
        return exact if self._rows.kernel.ascending else np.sqrt(np.maximum(0.0, 2 - 2 * exact))

    def _open(self) -> None:
        """Open the stores."""
        self._rows = opening.open(
            self._vectors,
            kernel=self.kernel,
            gamma=self.gamma,
            transform=self.transform_scale,
            threads=self._threads,
            memory=self.memory,
        )
        self._codes: OpenStore | None = None
        if self.encoder is not None:
            codes = self._folder / CODES
            self._codes = opening.open(
                codes, vectors=self._vectors, threads=self._threads, memory=self.memory
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, with the files of a temporary folder."""
        state: dict[str, Any] = dict(super().__getstate__())
        if state.pop("_temporary", None) is not None and self.path is None:
            state["_files"] = {
                str(path.relative_to(self._folder)): path.read_bytes()
                for path in self._folder.rglob("*")
                if path.is_file()
            }
        return {key: value for key, value in state.items() if key not in ("_rows", "_codes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._temporary = TemporaryDirectory(prefix="mercore-")
            before, self._folder = self._folder, Path(self._temporary.name)
            if self._vectors.is_relative_to(before):
                self._vectors = self._folder / self._vectors.relative_to(before)
            for name, data in files.items():
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        if hasattr(self, "n_samples_fit_"):
            self._open()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self._positive
        return tags


def _checked(k: object, most: int) -> int:
    """Return a number of neighbours.

    Raises
    ------
    InputError
        If it is not a whole number from 1 to ``most``, the number of rows that can be neighbours.
    """
    if not isinstance(k, Integral) or not 1 <= int(k) <= most:
        fix = f"n_neighbors={min(5, most)}" if most else "fit two rows or more"
        raise InputError(
            f"n_neighbors is {k!r}: expected a whole number from 1 to {most}, the rows that can be "
            f"neighbours. Fix: {fix}."
        )
    return int(k)


def _as_objects(values: tuple[NDArray[Any], ...]) -> NDArray[np.object_]:
    """Return arrays of any lengths as an array of them, object[nq]."""
    rows = np.empty(len(values), object)
    rows[:] = values
    return rows
