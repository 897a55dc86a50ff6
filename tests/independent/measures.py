"""Slow, obvious forms of the measures of hits, in plain Python; −1 is an absent neighbour."""

Table = list[list[int]]


def recognition_rate(
    found: Table, labels: list[int], query_labels: list[int], *, k: int, r: int
) -> float:
    """Share of queries whose label is among the r most frequent ones of k hits; of equals, the
    first met comes first (Davis et al. 2014, §3.2)."""
    right = 0
    for hits, label in zip(found, query_labels, strict=True):
        votes: dict[int, int] = {}
        for row in dict.fromkeys(hits[:k]):
            if row != -1:
                votes[labels[row]] = votes.get(labels[row], 0) + 1
        right += label in sorted(votes, key=lambda name: -votes[name])[:r]  # a stable sort
    return right / len(found)


def coverage(found: Table, true: Table, n: int, r: int) -> float:
    """Mean share of n hits that are among the true first r (Kulis & Grauman 2012, Fig. 6)."""
    shares = [
        len({row for row in hits[:n] if row != -1 and row in best[:r]}) / n
        for hits, best in zip(found, true, strict=True)
    ]
    return sum(shares) / len(shares)


def overlap(
    found: Table, distances: Table, scores: list[list[float]], *, radius: int, threshold: float
) -> tuple[int, int, int]:
    """True pairs, near pairs, and queries whose last hit is near (Kulis & Grauman 2012, Fig. 8)."""
    true = near = cut = 0
    for query, hits in enumerate(found):
        seen: set[int] = set()
        for place, row in enumerate(hits):
            if row != -1 and row not in seen and distances[query][place] <= radius:
                near += 1
                true += scores[query][place] >= threshold
            seen.add(row)
        cut += hits[-1] != -1 and distances[query][-1] <= radius
    return true, near, cut
