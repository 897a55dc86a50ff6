"""Searches of a state machine, and what the model says that they must answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import mercore
from tests.support.states.model import QUERIES, Derived, Ids, Mask, Model, Rows, nearest, scores


@dataclass(frozen=True)
class Ask:
    """A search: what is asked, and how it runs."""

    kind: str  # plain, rerank, exact or within
    k: int
    kernel: str  # of vectors
    chosen: int  # the seed of the rows that may take part, 0 for all
    threshold: int
    threads: int
    batch: int
    probes: int  # 0 for the number that the index chooses

    def among(self, rows: Rows) -> Mask:
        """Return the rows that may take part: all, a range, or about half of them."""
        count = len(rows.numbers)
        if self.chosen == 0:
            return np.ones(count, np.bool_)
        rng = np.random.default_rng(self.chosen)
        if self.chosen % 3 == 0:
            first = int(rng.integers(count))
            return np.asarray(np.arange(count) >= first)
        return np.asarray(rng.random(count) < 0.5)

    def selection(self, rows: Rows) -> dict[str, Any]:
        """Return the option that names these rows."""
        mask = self.among(rows)
        if self.chosen == 0:
            return {}
        if self.chosen % 3 == 0:
            return {"among": f"{mask.argmax()}:"}
        return {"among": mask} if self.chosen % 3 == 1 else {"without": np.flatnonzero(~mask)}


ASKS = st.builds(
    Ask,
    kind=st.sampled_from(["plain", "rerank", "exact", "within"]),
    k=st.integers(1, 9),
    kernel=st.sampled_from(["euclidean", "chi2"]),
    chosen=st.just(0) | st.integers(1, 99),
    threshold=st.integers(0, 99),
    threads=st.integers(1, 2),
    batch=st.sampled_from([1, 3, 64]),
    probes=st.integers(0, 4),
)


class Changing:
    """The queries as an array that holds others when it is read for the second time."""

    shape, dtype = QUERIES.shape, QUERIES.dtype

    def __init__(self) -> None:
        self._read = np.zeros((len(QUERIES), 1), np.bool_)

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        block = np.where(self._read[rows], QUERIES[rows][:, ::-1], QUERIES[rows])
        self._read[rows] = True
        return block


class Answer:
    """What a search of a store is to answer; ``vectors`` are those that are found for codes."""

    def __init__(self, ask: Ask, model: Model, vectors: Rows | None) -> None:
        self.ask, self.model, self.vectors = ask, model, vectors
        self.rows = model if isinstance(model, Rows) else model.rows
        self.kernel = ask.kernel if isinstance(model, Rows) else model.encoder.kernel
        self.found = model if isinstance(model, Rows) else vectors
        count = len(self.rows.numbers)
        known = self.found is not None and self.found.continues(self.rows)
        deleted = self.found.deleted[:count] if self.found and known else np.zeros(count, np.bool_)
        self.known = known
        self.taking = self.rows.kept & ~deleted & ask.among(self.rows)
        self.k = min(ask.k, int(self.taking.sum()))

    @property
    def kind(self) -> str:
        """The kind of search that is run: bounds and vectors have no approximate scores."""
        if isinstance(self.model, Rows):
            return "plain" if self.ask.kind == "rerank" else self.ask.kind
        if self.model.index == "orders":
            return "orders"
        proves = self.model.encoder.proves and self.model.index is None
        if self.ask.kind in ("exact", "within"):
            return self.ask.kind if proves else "plain" if self.model.encoder.scans else "exact"
        return self.ask.kind if self.model.encoder.scans else "exact"

    @property
    def refused(self) -> bool:
        """Whether there is no answer."""
        if not self.taking.any():
            return True
        if isinstance(self.model, Rows):
            return False
        if self.model.index == "cells" and not self.ask.probes and not self.model.measured:
            return True
        if self.kind == "plain":
            return False
        assert self.found is None or isinstance(self.found, Rows)
        grown = self.found is not None and self.found.history != self.rows.history
        return not self.known or (grown and self.kind in ("exact", "within"))

    @property
    def threshold(self) -> float:
        """A number between two scores."""
        shown = np.unique(scores(self.kernel)[0])
        shown = shown[shown >= 0]
        at = self.ask.threshold % (len(shown) - 1)
        return float(shown[at : at + 2].mean())

    def options(self) -> dict[str, Any]:
        """Return the options of an open store's search."""
        options: dict[str, Any] = self.ask.selection(self.rows)
        if self.kind == "within":
            return {**options, "within": self.threshold, "exact": True}
        options["k"] = max(1, self.k)
        if self.kind == "exact":
            options["exact"] = True
        elif isinstance(self.model, Derived) and self.kind == "rerank":
            options["rerank"] = max(1, int(self.taking.sum()))
        if isinstance(self.model, Derived) and self.model.index == "cells" and self.ask.probes:
            options["probes"] = self.ask.probes
        elif self.kind == "orders":
            options["neighbours"] = self.rows.count
        return options

    def run(self, path: str, queries: Any = QUERIES, **more: Any) -> Any:
        """Search by the function; return the hits."""
        kernel: Any = {"kernel": self.kernel} if isinstance(self.model, Rows) else {}
        how: Any = {"threads": self.ask.threads, "batch": self.ask.batch}
        return mercore.search(path, queries, **self.options(), **kernel, **how, **more)[1]

    def run_open(self, store: Any) -> Any:
        """Search an open store; return the hits."""
        options = self.options()
        if self.kind == "within":
            return store.search_within(QUERIES, options.pop("within"), **options)
        return store.search(QUERIES, **options)

    def truth(self) -> Ids:
        """Return the ids of the rows that take part, the nearest first, for each query."""
        queries = range(len(QUERIES))
        return np.array([nearest(self.kernel, self.rows, self.taking, each) for each in queries])

    def refuted(self, claimed: Ids) -> list[bool]:
        """Return whether the claimed neighbours of each query are others than rows that tie."""
        table, truth = scores(self.kernel)[1], self.truth()[:, : claimed.shape[1]]
        ranks, true = (
            np.take_along_axis(table, self.rows.numbers[ids], 1) for ids in (claimed, truth)
        )
        return (ranks != true).any(axis=1).tolist()  # type: ignore[no-any-return]

    def assert_right(self, hits: Any) -> None:
        """Assert that hits are those of the model."""
        shown, nearer = scores(self.kernel)[0], 1 if self.kernel == "chi2" else -1
        for query in range(len(QUERIES)):
            ids = nearest(self.kernel, self.rows, self.taking, query)
            if self.kind == "within":
                close = nearer * (shown[query, self.rows.numbers[ids]] - self.threshold) >= 0
                found, claimed = hits.of(query)
                self._assert_nearest(query, found, claimed, ids[close])
            else:
                self._assert_hits(query, hits.ids[query], hits.scores[query], ids)

    def _assert_hits(self, query: int, found: Any, claimed: Any, ids: Any) -> None:
        held = found[found >= 0]
        assert len(found) == self.k
        assert len(np.unique(held)) == len(held)
        assert self.taking[held].all(), held
        every = isinstance(self.model, Rows) or self.kind in ("exact", "orders")
        cells = isinstance(self.model, Derived) and self.model.index == "cells"
        if every or (self.kind == "rerank" and (not cells or self.ask.probes == 4)):
            self._assert_nearest(query, found, claimed, ids[: self.k])
        else:
            assert cells or len(held) == self.k

    def _assert_nearest(self, query: int, found: Any, claimed: Any, ids: Any) -> None:
        """Assert that ids are these ones, with their scores.

        Unless the search is exact, float64 orders rows that have one score under chi2.
        """
        shown, ranks = scores(self.kernel)
        numbers = self.rows.numbers
        if self.kind != "exact" and self.kernel == "chi2":
            np.testing.assert_array_equal(ranks[query, numbers[found]], ranks[query, numbers[ids]])
            assert len(np.unique(found)) == len(ids)
            assert self.taking[found].all()
        else:
            np.testing.assert_array_equal(found, ids)
        np.testing.assert_allclose(claimed, shown[query, numbers[ids]], rtol=1e-12)
