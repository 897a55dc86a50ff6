"""Check the certificate of exact hits with NumPy, BLAKE3 and the files alone.

Usage
-----
    python check_certificate.py VECTORS.zarr QUERIES HITS.npz CERTIFICATE.npz [IDS.npy]
        [--labels LABELS.npy [QUERY_LABELS.npy]]

IDS.npy are the ids of the rows that took part, int64, of a search among some rows.
LABELS.npy are one integer per id, of a search among rows of the same or of other labels than the
query. QUERY_LABELS.npy are those of the queries, if these are not the rows themselves.
QUERIES is a file .npy, .bvecs .fvecs .ivecs (TEXMEX) or .u8bin .i8bin .fbin .ibin (big-ann).
The exit code is 0 if all is proved, 1 if not; one line names the first fault of each query.

What it proves
--------------
It computes the true score of every (query, row) in float64, and from these alone:

- the certificate is about these rows (CRC-32C and BLAKE3 of each chunk, BLAKE2b of these; stores of
  earlier versions have no BLAKE3, so that other rows can be made that pass);
- the ids of a query are distinct rows, and their scores are true, descending, and end at ``kth``;
- the rows that took part are those of IDS, or all, and for each query those that labels let;
- no such row that is not listed scores above ``kth``, and of equal rows the lower ids are listed;
- ``ties``, ``evaluated`` and ``greatest_unevaluated`` are possible for these scores;
- of a range search, whose hits are a CSR matrix: the rows listed are those that score within;
- of a graph, a CSR matrix too: the rows listed are the nearest others of each row.

What it does not prove
----------------------
- The order of different rows whose scores are nearer to each other than twice the slack, at most
  2e-9: float64 does not tell them apart.
- That mercore evaluated exactly the rows that it counts, or that the queries are the ones meant.

What it cannot read
-------------------
Vectors that are compressed or not on this machine, other kernels than those of ``SCORES``, and hits
that are no .npz. It holds all rows in memory, and reads each of them once per query.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import xor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

Array = NDArray[Any]
Meet = Callable[[int], Array]  # which rows a query meets, bool[n]

ROUNDING = 1e-12  # of the scores that are computed here
GREATEST_SLACK = 1e-9  # a certificate with more proves nothing
BLOCK_ROWS = 1024
CHECKSUM_BYTES = 4  # behind the rows of each chunk
TEXMEX = {".bvecs": "u1", ".fvecs": "<f4", ".ivecs": "<i4"}  # each row: d int32, then d numbers
BIGANN = {".u8bin": "u1", ".i8bin": "i1", ".fbin": "<f4", ".ibin": "<i4"}  # n, d uint32, then rows


def refuse(message: str) -> NoReturn:
    """End with exit code 1."""
    sys.exit(f"refused: {message}")


# --- scores of a query x, float64[d], and rows Y, float64[n, d], none of them normalised


def cosine(x: Array, Y: Array) -> Any:
    """Return <x, y> / (|x| |y|)."""
    return Y @ x / np.sqrt(x @ x) / np.sqrt((Y * Y).sum(axis=1))


def hellinger(x: Array, Y: Array) -> Any:
    """Return the sum of sqrt(p q), where p = x / sum(x) and q = y / sum(y)."""
    return np.sqrt(x * Y).sum(axis=1) / np.sqrt(x.sum() * Y.sum(axis=1))


def chi2(x: Array, Y: Array) -> Any:
    """Return the sum of 2 p q / (p + q), 0 where p = q = 0, where p = x / sum(x), q = y / sum(y).

    With numerator and denominator times sum(x) sum(y) it is 2 x y / (x sum(y) + sum(x) y).
    """
    denominators = x * Y.sum(axis=1)[:, None] + x.sum() * Y
    return (2 * x * Y / np.maximum(denominators, 1e-300)).sum(axis=1)


def intersection(x: Array, Y: Array) -> Any:
    """Return the sum of min(p, q), where p = x / sum(x) and q = y / sum(y)."""
    return np.minimum(x / x.sum(), Y / Y.sum(axis=1)[:, None]).sum(axis=1)


def rbf(x: Array, Y: Array, gamma: float) -> Any:
    """Return exp(-gamma |x - y|²)."""
    return np.exp(-gamma * ((x - Y) ** 2).sum(axis=1))


def euclidean(x: Array, Y: Array) -> Any:
    """Return -|x - y|²; hits hold |x - y|."""
    return -((x - Y) ** 2).sum(axis=1)


def inner_product(x: Array, Y: Array) -> Any:
    """Return <x, y>."""
    return Y @ x


SCORES: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (cosine, hellinger, chi2, intersection, rbf, euclidean, inner_product)
}
RAW = (euclidean.__name__, inner_product.__name__)  # their scores and errors have no fixed scale


# --- checksums


def crc32c_table() -> NDArray[np.uint32]:
    """Return what each byte adds to the register of CRC-32C (reflected polynomial 82F63B78)."""
    table = np.arange(256)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0x82F63B78, table >> 1)
    return table.astype(np.uint32)


TABLE = crc32c_table()


def advance(registers: NDArray[np.uint32], data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return CRC registers, uint32[m], after each has taken its row of ``data``, uint8[m, n]."""
    for column in np.ascontiguousarray(data.T):
        registers = TABLE[(registers ^ column) & 255] ^ registers >> 8
    return registers


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes.

    A register is linear over xor: after ``width`` bytes it is what those bytes make of 0, xor what
    ``width`` zero bytes make of each bit of the register before. So pieces of equal width are taken
    side by side from 0, and then joined.
    """
    values = np.frombuffer(data, np.uint8)
    width = max(1, int(len(values) ** 0.5))
    first = len(values) % width
    register = int(advance(np.full(1, 2**32 - 1, np.uint32), values[None, :first])[0])
    pieces = values[first:].reshape(-1, width)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    bits_later = advance(bits, np.zeros((32, width), np.uint8)).tolist()
    for piece in advance(np.zeros(len(pieces), np.uint32), pieces).tolist():
        carried = [later for bit, later in enumerate(bits_later) if register >> bit & 1]
        register = reduce(xor, carried, piece)
    return register ^ 2**32 - 1


def digest(value: object) -> str:
    """Return BLAKE2b, 16 bytes, of canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


# --- files


@dataclass(frozen=True)
class Vectors:
    """Rows [n, d], their ids int64[n], ascending, and the digest that certificates name."""

    rows: Array
    ids: Array
    digest: str


def read_vectors(folder: Path) -> Vectors:
    """Read a vector store: one column ``vectors``, one chunk of whole rows per part."""
    header = json.loads((folder / "zarr.json").read_bytes())["attributes"]["mercore"]
    layout, (column,) = header["layout"], header["layout"]["columns"]
    if column["compressor"] != "none":
        refuse(f"{folder} is compressed ({column['compressor']}), which this script cannot read")
    parts = -(-layout["rows"] // layout["part_rows"])
    files = [(folder / f"vectors/c/{part}/0").read_bytes() for part in range(parts)]
    payloads = [file[:-CHECKSUM_BYTES] for file in files]
    named = [
        {"bytes": len(file), "crc32c": f"{crc32c(payload):08x}"}
        | ({"blake3": blake3(payload).hexdigest()} if "digest" in column else {})
        for file, payload in zip(files, payloads, strict=True)
    ]
    if digest(named) != header["spec"]["content"]:
        refuse(f"{folder} holds other rows than its digest names")
    values = np.frombuffer(b"".join(payloads), np.dtype(column["dtype"]).newbyteorder("<"))
    rows = values.reshape(-1, column["width"])[: layout["rows"]]
    ids = row_ids(folder, len(rows), layout["model"])
    return Vectors(rows, ids, digest({key: header[key] for key in ("kind", "layout", "spec")}))


def row_ids(folder: Path, n: int, dropped: Mapping[str, Mapping[str, Any]]) -> Array:
    """Return the row numbers in the sources; ingest and appends may have dropped some rows."""
    payloads = [(folder / f"model/{name}/c/0").read_bytes()[:-CHECKSUM_BYTES] for name in dropped]
    for payload, entry in zip(payloads, dropped.values(), strict=True):
        if blake3(payload).hexdigest() != entry.get("blake3", blake3(payload).hexdigest()):
            refuse(f"{folder} has other ids than its digest names")
    missing = np.frombuffer(b"".join(payloads), "<i8")
    return np.setdiff1d(np.arange(n + len(missing)), missing)


def read_queries(path: Path, d: int) -> Array:
    """Return queries, float64[nq, d]."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        queries = np.load(path)
    elif suffix in TEXMEX:
        row = np.dtype([("d", "<i4"), ("values", TEXMEX[suffix], (d,))])
        queries = np.fromfile(path, row)["values"]
    elif suffix in BIGANN:
        queries = np.fromfile(path, BIGANN[suffix], offset=8).reshape(-1, d)
    else:
        refuse(f"{path} is none of .npy {' '.join([*TEXMEX, *BIGANN])}")
    if queries.ndim != 2 or queries.shape[1] != d:
        refuse(f"{path} has shape {queries.shape}, expected {d} columns")
    return np.asarray(queries, np.float64)


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a file."""
    if path.suffix != ".npz":
        refuse(f"{path} is no .npz, which hits and certificates must be")
    with np.load(path) as file:
        return dict(file)


# --- queries


@dataclass(frozen=True)
class Answer:
    """The answer to one query, with its line of the certificate.

    ``true`` are the scores of all rows, ``at`` the rows listed, in their order, ``others`` the rest.
    """

    ids: Array
    scores: Array
    kth: float
    slack: float
    greatest_unevaluated: float
    evaluated: int
    ties: int
    true: Array
    at: Array
    others: Array


def true_scores(score: Callable[[Array, Array], Array], query: Array, rows: Array) -> Array:
    """Return the scores of all rows, float64[n]."""
    firsts = range(0, len(rows), BLOCK_ROWS)
    blocks = (rows[first : first + BLOCK_ROWS].astype(np.float64) for first in firsts)
    return np.concatenate([score(query, block) for block in blocks])


def in_units(name: str, query: Array, vectors: Vectors, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer; that of a kernel without a greatest score as shares of what it can reach.

    Distances of hits become −|x − y|², as in certificates.
    """
    if name not in RAW:
        return answer
    scores = -np.square(answer["scores"]) if name == euclidean.__name__ else answer["scores"]
    longest = np.sqrt((vectors.rows.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0))
    reach = (longest + np.sqrt(query @ query)) ** 2
    shares = ("kth", "slack", "greatest_unevaluated", "true")
    return answer | {"scores": scores / reach} | {key: answer[key] / reach for key in shares}


def fault_of_scores(answer: Answer) -> str:
    """The scores are true, descend, and end at ``kth``; a NaN fails."""
    scores, slack = answer.scores, answer.slack
    if scores.shape != answer.ids.shape:
        return "scores are others"
    if not (abs(scores - answer.true[answer.at]) <= slack + ROUNDING).all():
        return "scores are others"
    if (np.diff(scores) > 2 * slack).any() or not abs(answer.kth - scores[-1]) <= slack:
        return "scores ascend, or end not at kth"
    return ""


def fault_of_others(answer: Answer, vectors: Vectors) -> str:
    """No row that is not listed is nearer; those equal to the last one have higher ids; ties fit.

    Rows equal to the last one tie, however scores are rounded; rows within the margin may tie.
    """
    scores, last = answer.true[answer.others], answer.at[-1]
    margin = 2 * answer.slack + ROUNDING
    equal = answer.others[(vectors.rows[answer.others] == vectors.rows[last]).all(axis=1)]
    if scores.max(initial=-np.inf) > answer.kth + margin:
        return "a row not listed is nearer"
    if (equal < last).any():
        return "an equal row of lower id is not listed"
    if not len(equal) <= answer.ties <= (scores >= answer.kth - margin).sum():
        return "ties are others"
    return ""


def fault_of_claims(answer: Answer, n: int) -> str:
    """Every row above ``greatest_unevaluated`` was evaluated, and the slack is small; a NaN fails."""
    above = (answer.true - ROUNDING > answer.greatest_unevaluated).sum()
    if not max(len(answer.ids), above) <= answer.evaluated <= n:
        return "too few rows are evaluated"
    if not 0 <= answer.slack <= GREATEST_SLACK or not answer.greatest_unevaluated <= answer.kth:
        return "slack is out of range, or greatest_unevaluated above kth"
    return ""


def check_query(vectors: Vectors, answer: Mapping[str, Any]) -> str:
    """Return the first fault of the answer to a query, or an empty text."""
    n, ids = len(vectors.rows), answer["ids"]
    at = np.searchsorted(vectors.ids, ids).clip(max=n - 1)
    others = np.setdiff1d(np.arange(n), at)
    if len(at) + len(others) != n or (vectors.ids[at] != ids).any():
        return "ids are not distinct rows"
    whole = Answer(**answer, at=at, others=others)
    return fault_of_scores(whole) or fault_of_others(whole, vectors) or fault_of_claims(whole, n)


def check_list(vectors: Vectors, answer: dict[str, Any]) -> str:
    """Return the first fault of an answer, which lists all rows, then −1, where they are few."""
    ids = answer["ids"]
    count = min(len(ids), len(vectors.rows))
    if (ids[:count] < 0).any() or (ids[count:] != -1).any():
        return "another number of rows is listed"
    if count == 0:
        none = answer["evaluated"] == answer["ties"] == 0 and answer["kth"] == -np.inf
        return "" if none else "a row counts, and none took part"
    return check_query(vectors, answer | {key: answer[key][:count] for key in ("ids", "scores")})


def range_faults(
    vectors: Vectors,
    queries: Array,
    hits: Mapping[str, Array],
    certificate: Mapping[str, Array],
    meet: Meet,
) -> list[str]:
    """Return the faults of the answers of a range search, one per query that has one.

    Pairs of the rows with themselves list rows of higher ids alone, in lists by id.
    """
    about = json.loads(str(certificate["about"]))
    own, starts = vectors.ids if about.get("itself") else None, hits["indptr"]
    if own is not None:
        queries = vectors.rows.astype(np.float64)
        if len(starts) - 1 <= own[-1] or starts[-1] != np.diff(starts)[own].sum():
            return ["pairs are of other rows"]
        starts = np.concatenate([starts[own], starts[-1:]])
    faults = []
    for q, query in enumerate(queries):
        true = true_scores(score_of(about["kernel"]), query, vectors.rows)
        shown = np.sqrt(-true) if about["kernel"]["name"] == euclidean.__name__ else true
        met = meet(q)
        counted = met if own is None else met & (vectors.ids > own[q])
        listed = slice(*starts[q : q + 2])
        some = hits["indices"][listed], hits["data"][listed]
        fault = fault_of_range(vectors, some, np.where(counted, shown, np.nan), about)
        if not fault and not certificate["evaluated"][q] <= met.sum():
            fault = "more rows are evaluated than there are"
        if not fault and certificate["greatest_unevaluated"][q] > about["least"]:
            fault = "a row that was not evaluated may be within"
        faults += [f"query {q}: {fault}"] * bool(fault)
    return faults


def graph_faults(
    vectors: Vectors,
    hits: Mapping[str, Array],
    certificate: Mapping[str, Array],
    meet: Meet,
) -> list[str]:
    """Return the faults of the nearest others of each row, in lists by id."""
    about, n = json.loads(str(certificate["about"])), len(vectors.rows)
    if len(hits["indptr"]) - 1 <= vectors.ids[-1] or len(certificate["slack"]) != n:
        return ["the graph is of other rows"]
    far = about["distances"] and about["kernel"]["name"] != euclidean.__name__
    faults = []
    for q, own in enumerate(vectors.ids):
        listed = slice(*hits["indptr"][own : own + 2])
        rest = meet(q) & (np.arange(n) != q)
        others = Vectors(vectors.rows[rest], vectors.ids[rest], vectors.digest)
        row, ids = vectors.rows[q].astype(np.float64), hits["indices"][listed]
        scores = 1 - hits["data"][listed] ** 2 / 2 if far else hits["data"][listed]
        count = min(about["k"] - 1, rest.sum())
        if len(ids) != count:
            faults.append(f"row {own}: another number of neighbours")
        if len(ids) != count or count == 0:
            continue
        at = np.searchsorted(others.ids, ids).clip(max=len(others.ids) - 1)
        true = true_scores(score_of(about["kernel"]), row, others.rows)
        equal = (others.rows == others.rows[at[-1]]).all(axis=1).sum()  # no ties are said
        answer = {"ids": ids, "scores": scores, "true": true, "kth": true[at[-1]]}
        answer |= {key: certificate[key][q] for key in ("slack", "greatest_unevaluated")}
        answer |= {"evaluated": min(certificate["evaluated"][q], rest.sum())}
        answer |= {"ties": equal - (others.rows[at] == others.rows[at[-1]]).all(axis=1).sum()}
        fault = check_query(others, in_units(about["kernel"]["name"], row, others, answer))
        faults += [f"row {own}: {fault}"] * bool(fault)
    return faults


def fault_of_range(
    vectors: Vectors, listed: tuple[Array, Array], shown: Array, about: Mapping[str, Any]
) -> str:
    """All rows within are listed, and no other; NaN in ``shown`` is a row that does not count.

    A row that scores nearer to the threshold than rounding may be listed or not.
    """
    ids, scores = listed
    sign = -1 if about["kernel"]["name"] == euclidean.__name__ else 1
    margin = ROUNDING * max(1.0, float(np.nanmax(abs(shown), initial=0.0)))
    beyond = sign * (shown - about["within"])
    at = np.searchsorted(vectors.ids, ids).clip(max=len(vectors.ids) - 1)
    if len(np.unique(ids)) < len(ids) or not np.isin(ids, vectors.ids[beyond >= -margin]).all():
        return "a row is listed twice, or is not within"
    if not np.isin(vectors.ids[beyond > margin], ids).all():
        return "a row within is not listed"
    if not (abs(scores - shown[at]) <= margin).all() or (sign * np.diff(scores) > 0).any():
        return "scores are others, or not the nearest first"
    return ""


def score_of(kernel: Mapping[str, Any]) -> Callable[[Array, Array], Array]:
    """Return the function of a query and rows that the certificate names."""
    name, configuration = kernel["name"], kernel["configuration"]
    if name not in SCORES:
        refuse(f"kernel {name} is none of {', '.join(SCORES)}, which this script can compute")
    return lambda query, rows: SCORES[name](query, rows, **configuration)


def answers_of(
    nq: int, hits: Mapping[str, Array], certificate: Mapping[str, Array]
) -> list[dict[str, Any]]:
    """Return what hits and certificate say of each query."""
    arrays = {key: hits[key] for key in ("ids", "scores")} | {
        key: certificate[key]
        for key in ("kth", "slack", "greatest_unevaluated", "evaluated", "ties")
    }
    for key, values in arrays.items():
        if values.shape[:1] != (nq,):
            refuse(f"{key} has shape {values.shape}, expected {nq} queries")
    return [{key: values[q] for key, values in arrays.items()} for q in range(nq)]


def among(vectors: Vectors, ids: Path | None, selected: Mapping[str, Any] | None) -> Vectors:
    """Return the rows that took part, which must be those that the certificate names."""
    if (ids is None) != (selected is None):
        refuse("the certificate is of all rows" if ids else "it is of some rows: name IDS.npy")
    if ids is None or selected is None:
        return vectors
    part = np.isin(vectors.ids, np.load(ids))
    bits = np.packbits(part, bitorder="little").tobytes().rstrip(b"\0")
    if selected["digest"] != blake2b(bits, digest_size=16).hexdigest():
        refuse("other rows took part than those of IDS")
    return Vectors(vectors.rows[part], vectors.ids[part], vectors.digest)


def meeting(vectors: Vectors, files: Sequence[str], said: Mapping[str, Any] | None) -> Meet:
    """Return which rows each query meets: all, or as labels say that are those of the certificate."""
    if bool(files) != (said is not None):
        refuse("no labels decided" if files else "labels decided who met: name --labels LABELS.npy")
    if said is None:
        return lambda _: np.ones(len(vectors.rows), np.bool_)
    rows = np.load(files[0])[vectors.ids].astype("<i8")
    queries = np.load(files[1]).astype("<i8") if len(files) > 1 else rows
    for name, labels in (("rows", rows), ("queries", queries)):
        if said[name] != blake2b(labels.tobytes(), digest_size=16).hexdigest():
            refuse(f"the {name} had other labels")
    same = bool(said["same"])
    return lambda q: np.asarray((rows == queries[q]) == same)


def main(words: Sequence[str]) -> int:
    """Check the files, print the verdict, and return the exit code."""
    at = [*words, "--labels"].index("--labels")
    words, files = words[:at], words[at + 1 :]
    if len(words) not in (4, 5):
        refuse("expected VECTORS.zarr QUERIES HITS.npz CERTIFICATE.npz [IDS.npy]")
    folder, asked, found, said, *ids = map(Path, words)
    vectors, hits, certificate = read_vectors(folder), read_npz(found), read_npz(said)
    queries = read_queries(asked, vectors.rows.shape[1])
    about = json.loads(str(certificate["about"]))
    vectors = among(vectors, ids[0] if ids else None, about.get("selected"))
    meet = meeting(vectors, files, about.get("labels"))
    score = score_of(about["kernel"])
    of_these = about["vectors"] == vectors.digest and certificate["rows"] == len(vectors.rows)
    faults = []
    if "least" in about or "graph" in about:
        if "graph" in about:
            faults = graph_faults(vectors, hits, certificate, meet)
        else:
            faults = range_faults(vectors, queries, hits, certificate, meet)
        faults += ["of other vectors, or not exact"] * (not (of_these and about["exact"]))
        print("\n".join(faults) or f"proved: {len(queries)} queries")  # noqa: T201
        return int(bool(faults))
    for q, answer in enumerate(answers_of(len(queries), hits, certificate)):
        fault = "of other vectors, or not exact"
        if of_these and about["exact"]:
            met = meet(q)
            some = Vectors(vectors.rows[met], vectors.ids[met], vectors.digest)
            answer["true"] = true_scores(score, queries[q], vectors.rows)[met]
            name = about["kernel"]["name"]
            fault = check_list(some, in_units(name, queries[q], some, answer))
        if fault:
            faults.append(f"query {q}: {fault}")
    proved = f"{len(queries)} queries against {len(vectors.rows)} rows by {about['kernel']['name']}"
    print("\n".join(faults) or f"proved: {proved}")  # noqa: T201
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
