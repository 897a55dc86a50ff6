"""Check exact hits by NumPy and the files alone: check_certificate.py VECTORS.zarr QUERIES HITS.npz
CERTIFICATE.npz."""

import json
import sys
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

OFF, MOST = (
    1e-12,
    1e-9,
)  # how far the scores made here may be off; a slack above MOST would prove nothing
CRC32C = [
    reduce(lambda crc, _: crc >> 1 ^ 0x82F63B78 * (crc & 1), range(8), byte) for byte in range(256)
]
SCORES: dict[str, Any] = {  # of a query and rows as they are, float64
    "cosine": lambda x, Y: Y @ x / np.sqrt(x @ x) / np.sqrt((Y * Y).sum(1)),
    "hellinger": lambda x, Y: np.sqrt(x * Y).sum(1) / np.sqrt(x.sum() * Y.sum(1)),
    "chi2": lambda x, Y: (2 * x * Y / np.maximum(x * Y.sum(1)[:, None] + x.sum() * Y, 1e-300)).sum(
        1
    ),
    "intersection": lambda x, Y: np.minimum(x / x.sum(), Y / Y.sum(1)[:, None]).sum(1),
    "rbf": lambda x, Y, gamma: np.exp(-gamma * ((x - Y) ** 2).sum(1)),
}

path, asked = Path(sys.argv[1]), Path(sys.argv[2])
header = json.loads((path / "zarr.json").read_bytes())["attributes"]["mercore"]
n, column = header["layout"]["rows"], header["layout"]["columns"][0]
files = [
    file.read_bytes()
    for file in sorted(path.glob("vectors/c/*/0"), key=lambda file: int(file.parts[-2]))
]
sums = [
    ~reduce(lambda crc, byte: CRC32C[(crc ^ byte) & 255] ^ crc >> 8, f[:-4], 2**32 - 1) % 2**32
    for f in files
]
chunks = [{"bytes": len(f), "crc32c": f"{crc:08x}"} for f, crc in zip(files, sums, strict=True)]
named = (chunks, {key: header[key] for key in ("kind", "layout", "spec")})
texts = (json.dumps(value, sort_keys=True, separators=(",", ":")) for value in named)
content, job = (blake2b(text.encode(), digest_size=16).hexdigest() for text in texts)
if column["compressor"] != "none" or content != header["spec"]["content"]:
    sys.exit(f"refused: {path} is compressed, or holds other rows than its digest names")
rows = np.frombuffer(b"".join(f[:-4] for f in files), column["dtype"]).reshape(-1, column["width"])[
    :n
]
gone = (
    np.frombuffer((path / "model/dropped/c/0").read_bytes()[:-4], "<i8")
    if header["layout"]["model"]
    else ()
)
names = np.setdiff1d(np.arange(n + len(gone)), gone)  # the rows' ids
queries = (
    np.load(asked)
    if asked.suffix == ".npy"
    else np.fromfile(asked, "u1").reshape(-1, 4 + column["width"])[:, 4:]
)
hits, said = (dict(np.load(file)) for file in sys.argv[3:])
about, *columns = (
    said[key] for key in ("about", "kth", "slack", "greatest_unevaluated", "evaluated", "ties")
)
kernel, exact, vectors = (json.loads(str(about))[key] for key in ("kernel", "exact", "vectors"))
answers, refused = (
    zip(queries.astype(np.float64), hits["ids"], hits["scores"], *columns, strict=True),
    [],
)
for q, (x, ids, scores, kth, slack, least, evaluated, ties) in enumerate(answers):
    blocks = (rows[first : first + 1024].astype(np.float64) for first in range(0, n, 1024))
    true = np.concatenate(
        [SCORES[kernel["name"]](x, block, **kernel["configuration"]) for block in blocks]
    )
    at = np.searchsorted(names, ids).clip(max=n - 1)
    others, equal = (
        np.setdiff1d(np.arange(n), at),
        (rows == rows[at[-1]]).all(1),
    )  # equal rows tie, however rounded
    near, equals = (true[others] >= kth - 2 * slack - OFF).sum(), others[equal[others]]
    wrong = {
        "of other vectors, or not exact": not (exact and said["rows"] == n and vectors == job),
        "ids are not distinct rows": len(others) + len(ids) != n or (names[at] != ids).any(),
        "scores are others": scores.shape != ids.shape
        or not (abs(scores - true[at]) <= slack + OFF).all(),
        "scores ascend, or end not at kth": (np.diff(scores) > 2 * slack).any()
        or not abs(kth - scores[-1]) <= slack,
        "a row not listed is nearer": true[others].max(initial=-np.inf) > kth + 2 * slack + OFF,
        "an equal row of lower id is not listed": (equals < at[-1]).any(),
        "ties are others": not len(equals) <= ties <= near,
        "too few rows are evaluated": not (
            len(ids) <= evaluated <= n and np.sum(true - OFF > least) <= evaluated
        ),
        "slack is out of range, or greatest_unevaluated above kth": not (
            0 <= slack <= MOST and least <= kth
        ),
    }
    refused += [f"query {q}: {fault}" for fault, found in wrong.items() if found][:1]
print("\n".join(refused) or f"proved: {len(queries)} queries against {n} rows by {kernel['name']}")  # noqa: T201
sys.exit(bool(refused))
