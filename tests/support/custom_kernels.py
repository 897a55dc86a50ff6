"""Files of users' own kernels, and the changes that make bad ones of them."""

from pathlib import Path

INTERSECTION = """\
from numba import njit

SEMIDEFINITE = True
ROUNDING = 300
ROWS = "l1"


@njit
def kernel(x, y):
    total = 0.0
    for k in range(x.size):
        total += min(x[k], y[k])
    return total
"""
HEAD = (
    "import math\nimport numpy as np\nfrom numba import njit\nSEMIDEFINITE = True\nROUNDING = 300\n"
)
LAPLACE = f"""{HEAD}ROWS = "raw"
@njit
def kernel(x, y):
    total = 0.0
    for k in range(x.size):
        total += abs(x[k] - y[k])
    return math.exp(-total / 50)
"""
COSINE = f"""{HEAD}ROWS = "l2"
@njit
def kernel(x, y):
    total = 0.0
    for k in range(x.size):
        total += x[k] * y[k]
    return total
"""


def returning(expression: str, *, semidefinite: bool = True) -> str:
    """The text of a file whose kernel of raw rows returns an expression of x and y."""
    head = HEAD.replace("SEMIDEFINITE = True", f"SEMIDEFINITE = {semidefinite}")
    return f'{head}ROWS = "raw"\n@njit\ndef kernel(x, y):\n    return {expression}\n'


def write(folder: Path, text: str, name: str = "mine.py") -> Path:
    """The path of a new file with a text."""
    path = folder / name
    path.write_text(text)
    return path
