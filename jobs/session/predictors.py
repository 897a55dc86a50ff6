"""Neighbours under a kernel as a transformer, a classifier and a regressor of scikit-learn."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from mercore.jobs.session.neighbors import KernelNeighbors
from mercore.stores.errors import InputError

Floats = NDArray[np.float64]
Weights = str | Callable[[Floats], Floats]


class KernelNeighborsTransformer(TransformerMixin, KernelNeighbors):  # type: ignore[misc]
    """A graph of neighbours, with the methods of ``sklearn.neighbors.KNeighborsTransformer``.

    Parameters
    ----------
    mode : ``"distance"`` for distances, with one more neighbour, as a row finds itself;
        ``"connectivity"`` for ones
    n_neighbors, kernel, gamma, transform_scale, encoder, rerank, radius, path, memory, n_jobs : as
        of ``KernelNeighbors``

    Examples
    --------
    >>> import numpy as np
    >>> from mercore import KernelNeighborsTransformer
    >>> rows = np.array([[4.0, 0.0], [1.0, 3.0], [0.0, 2.0]])
    >>> KernelNeighborsTransformer(1, kernel="chi2").fit_transform(rows).indices.tolist()
    [0, 1, 1, 2, 2, 1]
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mode: str = "distance",
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
        super().__init__(
            n_neighbors,
            kernel=kernel,
            gamma=gamma,
            transform_scale=transform_scale,
            encoder=encoder,
            rerank=rerank,
            radius=radius,
            path=path,
            memory=memory,
            n_jobs=n_jobs,
        )
        self.mode = mode

    def transform(self, X: ArrayLike) -> csr_matrix:
        """Return the neighbours of each query as a sparse matrix, float64[nq, n].

        Parameters
        ----------
        X : dtype[nq, d]
        """
        check_is_fitted(self)
        more = int(self.mode == "distance")
        k = min(self.n_neighbors + more, self.n_samples_fit_)
        return self.kneighbors_graph(X, k, mode=self.mode)

    def fit_transform(self, X: ArrayLike, y: object = None) -> csr_matrix:
        """Fit the rows, and return the neighbours of each as ``transform`` does.

        Parameters
        ----------
        X : as of ``fit``
        y : has no meaning, and is there for pipelines
        """
        return self.fit(X).transform(X)

    @property
    def _n_features_out(self) -> int:
        return self.n_samples_fit_


class _Predictor(KernelNeighbors):
    """Neighbours that predict by votes; ``weights`` says how much each of them counts."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Weights = "uniform",
        kernel: str = "euclidean",
        gamma: float | str | None = None,
        transform_scale: float | None = None,
        encoder: str | None = None,
        rerank: int | None = None,
        path: str | None = None,
        memory: int | str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            n_neighbors,
            kernel=kernel,
            gamma=gamma,
            transform_scale=transform_scale,
            encoder=encoder,
            rerank=rerank,
            path=path,
            memory=memory,
            n_jobs=n_jobs,
        )
        self.weights = weights

    def _fit_rows(self, X: ArrayLike | Path, y: ArrayLike | None) -> NDArray[Any]:
        """Fit the rows; return the targets, which are one per id."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None"
            )
        super().fit(X)
        targets: NDArray[Any] = check_array(y, ensure_2d=False, dtype=None)
        ids = self.n_samples_fit_ + len(self._rows.dropped)
        if len(targets) != ids:
            raise InputError(
                f"y has {len(targets)} targets: expected {ids}, one per id. Fix: give each row one."
            )
        return targets

    def _votes(self, X: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
        """Return the ids and the weights of the neighbours of each query, [nq, k] each.

        Weights that are all zero become ones. Under ``"distance"`` a neighbour at no distance
        leaves the others no weight.
        """
        check_is_fitted(self)
        distances, ids = self.kneighbors(X)
        if callable(self.weights):
            weights = np.asarray(self.weights(distances), np.float64)
        elif self.weights == "uniform":
            weights = np.ones_like(distances)
        elif self.weights == "kernel":
            self._check_normalised()
            weights = np.maximum(0.0, 1 - distances**2 / 2)
        elif self.weights == "distance":
            none = distances == 0
            with np.errstate(divide="ignore"):
                weights = np.where(none.any(axis=1)[:, None], none, 1 / distances)
        else:
            raise InputError(
                f"weights is {self.weights!r}: expected uniform, distance, kernel, or a function "
                "of distances. Fix: weights='uniform'."
            )
        weights[~weights.any(axis=1)] = 1.0
        return ids, weights

    def _check_normalised(self) -> None:
        """Refuse votes by the kernel where the scores are distances."""
        if self._rows.kernel.ascending:
            raise InputError(
                "weights='kernel' are the values of a kernel with K(x, x) = 1: found "
                f"{self.kernel}. Fix: weights='distance'."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class KernelNeighborsClassifier(ClassifierMixin, _Predictor):  # type: ignore[misc]
    """A classifier by the votes of the nearest rows under a kernel.

    Parameters
    ----------
    weights : ``"uniform"``; ``"kernel"`` for K(x, y), which is 1 − d²/2; ``"distance"`` for 1/d; or
        a function of distances float64[nq, k]
    n_neighbors, kernel, gamma, transform_scale, encoder, rerank, path, memory, n_jobs : as of
        ``KernelNeighbors``

    Attributes
    ----------
    classes_ : the classes, sorted

    Examples
    --------
    >>> import numpy as np
    >>> from mercore import KernelNeighborsClassifier
    >>> rows = np.array([[4.0, 0.0], [3.0, 1.0], [1.0, 3.0], [0.0, 2.0]])
    >>> model = KernelNeighborsClassifier(2, kernel="chi2", weights="kernel")
    >>> model.fit(rows, ["a", "a", "b", "b"]).predict([[1.0, 4.0]]).tolist()
    ['b']
    """

    def fit(self, X: ArrayLike | Path, y: Any = None) -> Self:  # noqa: ANN401 - as scikit-learn
        """Write the rows into stores, and keep their classes.

        Parameters
        ----------
        X : as of ``KernelNeighbors.fit``
        y : [n], the class of each row
        """
        targets = column_or_1d(self._fit_rows(X, y), warn=True)
        check_classification_targets(targets)
        self.classes_, self._class_of = np.unique(targets, return_inverse=True)
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the share of the votes of each class, float64[nq, classes].

        Parameters
        ----------
        X : dtype[nq, d]
        """
        ids, weights = self._votes(X)
        shares = np.zeros((len(ids), len(self.classes_)))
        np.add.at(shares, (np.arange(len(ids))[:, None], self._class_of[ids]), weights)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class with the most votes, of equal ones the first, [nq].

        Parameters
        ----------
        X : dtype[nq, d]
        """
        first = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[first])


class KernelNeighborsRegressor(RegressorMixin, _Predictor):  # type: ignore[misc]
    """A regressor by the mean of the nearest rows under a kernel.

    Parameters
    ----------
    weights : as of ``KernelNeighborsClassifier``
    n_neighbors, kernel, gamma, transform_scale, encoder, rerank, path, memory, n_jobs : as of
        ``KernelNeighbors``

    Examples
    --------
    >>> import numpy as np
    >>> from mercore import KernelNeighborsRegressor
    >>> rows = np.array([[4.0, 0.0], [3.0, 1.0], [1.0, 3.0], [0.0, 2.0]])
    >>> model = KernelNeighborsRegressor(2, kernel="chi2").fit(rows, [1.0, 2.0, 5.0, 6.0])
    >>> model.predict([[1.0, 4.0]]).tolist()
    [5.5]
    """

    def fit(self, X: ArrayLike | Path, y: Any = None) -> Self:  # noqa: ANN401 - as scikit-learn
        """Write the rows into stores, and keep their targets.

        Parameters
        ----------
        X : as of ``KernelNeighbors.fit``
        y : [n] or [n, outputs], the targets of each row
        """
        self._targets = self._fit_rows(X, y).astype(np.float64)
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return the weighted means of the targets, float64[nq] or [nq, outputs].

        Parameters
        ----------
        X : dtype[nq, d]
        """
        ids, weights = self._votes(X)
        shares = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("qk,qk...->q...", shares, self._targets[ids]))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
