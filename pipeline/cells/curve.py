"""Choose how many cells to probe and how many rows to rerank, from ranks that were measured."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Model
from mercore.stores.errors import InputError
from mercore.stores.wording import option, setting

LISTED = 1 << 10  # best codes among which a neighbour has a rank
BEYOND = np.iinfo(np.int32).max  # the rank of a neighbour behind them
CURVE = "cell_ranks", "code_ranks"  # model arrays


class Probing(NamedTuple):
    """A choice: cells, best codes to rerank or None, and the recall of sampled rows by it."""

    probes: int
    rerank: int | None
    recall: float | None


class RecallCurve(NamedTuple):
    """Where queries have their true neighbours, int32[m, K] each, the nearest first.

    ``cell_ranks`` is the number of cells nearer to the query than that of the neighbour.
    ``code_ranks`` is the number of rows whose codes score better than the neighbour's.
    """

    cell_ranks: NDArray[np.int32]
    code_ranks: NDArray[np.int32]

    def recall(self, k: int, probes: int, listed: int) -> float:
        """Return the share of the k nearest rows in ``probes`` cells and ``listed`` best codes."""
        found = (self.cell_ranks < probes) & (self.code_ranks < listed)
        return float(found[:, :k].mean())

    def reachable(self, k: int, rerank: int | None = None) -> float:
        """Return the recall of all cells, if enough codes are reranked, or ``rerank``."""
        return self.recall(k, BEYOND, rerank or LISTED)

    def choose(self, recall: float, k: int, rerank: int | None = None) -> Probing:
        """Return the fewest cells, and best codes unless they are given, that reach a recall.

        The k best codes alone are taken if they lose little. Codes may lose half of what the recall
        leaves to lose.

        Raises
        ------
        InputError
            If even all cells do not reach it.
        """
        lists = [k]
        while lists[-1] < LISTED:
            lists.append(min(2 * lists[-1], LISTED))
        cells = int(self.cell_ranks.max()) + 1
        wanted = [rerank] if rerank is not None else lists
        reached = [self.recall(k, cells, listed) for listed in wanted]
        enough = [each >= (1 + recall) / 2 for each in reached]
        place = enough.index(True) if any(enough) else int(np.argmax(reached))
        if reached[place] < recall:
            raise InputError(
                f"codes do not reach a recall of {recall:g}: of the true neighbours of the "
                f"sample {reached[place]:.3f} are among the {wanted[place]} best codes. Fix: "
                f"{setting(recall=np.floor(100 * reached[place]) / 100)}, a greater "
                f"{option('rerank')}, or codes of more bytes."
            )
        listed = wanted[place]
        ranks = np.where(self.code_ranks < listed, self.cell_ranks, BEYOND)[:, :k]
        probes = int(np.quantile(ranks, recall, method="inverted_cdf")) + 1
        probes = min(probes, cells)  # a recall that is just reached may be rounded up
        return Probing(
            probes,
            None if rerank is None and listed == k else listed,
            self.recall(k, probes, listed),
        )


def curve_of(model: Model) -> RecallCurve | None:
    """Return the curve in a model, or None if none was measured."""
    return RecallCurve(*(model[name] for name in CURVE)) if CURVE[0] in model else None
