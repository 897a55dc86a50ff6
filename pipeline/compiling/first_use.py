"""First use: a second process compiles part of what a verb needs, so that two cores compile.

Only this module knows which jitted functions a verb needs. A wrong list or a failed process costs
only time: a function that is not on disk is compiled when it is called. Jitted functions are
imported by those who need them: making them takes a while.
"""

import atexit
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.aska import AskaParams
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.pq import PqParams


def before_encoding(spec: EncoderSpec) -> None:
    """Compile, in a second process, the functions that encoding needs after fitting."""
    if isinstance(spec, AskaParams):
        from mercore.pipeline.encoders.pursuit_numba import pursue

        _compile_beside(
            pursue, "pursuit", recursive=spec.pursuit == "ormp", int8=spec.weights == "int8"
        )
    elif isinstance(spec, PqParams) and not spec.residual:
        from mercore.pipeline.encoders.pq_numba import assign

        _compile_beside(assign, "assignment")
    else:
        before_bounding(spec)


def before_choosing_bound() -> None:
    """Compile, in a second process, the scan of every bound that is measured."""
    from mercore.pipeline.scanners.bounds.byte_bounds_numba import bound_rows

    _compile_beside(bound_rows, "bounds", factors=[4, 2])


def before_scanning(spec: EncoderSpec, nq: int) -> None:
    """Compile, in a second process, the filters for ``nq`` queries; one query compiles fast."""
    if nq == 1:
        return
    if isinstance(spec, AskaParams) and spec.weights == "int8":
        from mercore.pipeline.scanners import sparse_filter_numba, sparse_layout

        nq = _alike(nq, sparse_layout.GROUP)
        options = {"alpha": spec.n_nonzero_coefs, "residuals": spec.metric == "distance"}
        _compile_beside(sparse_filter_numba.scan_filtered, "sparse", nq=nq, **options)
    elif isinstance(spec, PqParams):
        from mercore.pipeline.scanners import pq, pq_numba

        nq = _alike(nq, pq.GROUP)
        _compile_beside(pq_numba.scan_filtered, "pq", nq=nq, codes=spec.n_subquantizers)
    else:
        before_bounding(spec)


def before_bounding(spec: EncoderSpec) -> None:
    """Compile, in a second process, the scan of bounds.

    The scan of codes that prove is not: a search needs it first, and would wait for it.
    """
    if isinstance(spec, KpcaBoundSpec | PcaBoundSpec):
        from mercore.pipeline.scanners.bounds.byte_bounds_numba import bound_rows

        _compile_beside(bound_rows, "bounds", factors=[4])


def _alike(nq: int, group: int) -> int:
    """Return the fewest queries that need the same functions as ``nq``: full groups are alike."""
    return nq if nq <= group else group + nq % group


def _compile_beside(function: Callable[..., Any], rehearsal: str, **options: object) -> None:
    """Start a process for a rehearsal if its main function is not on disk and a core is free.

    The process ends with this one: it reads a pipe whose other end this one holds.
    """
    from mercore.pipeline.compiling.jit import is_kept

    if (
        multiprocessing.parent_process() is not None
        or multiprocessing.cpu_count() < 2
        or is_kept(function)
    ):
        return
    command = [
        sys.executable,
        "-P",
        "-m",
        "mercore.pipeline.compiling.rehearsal",
        rehearsal,
        json.dumps(options),
    ]
    with suppress(OSError):
        null = subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null)  # noqa: S603 - our own
        atexit.register(_end, child)


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.communicate()
