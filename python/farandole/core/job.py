# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""This process's membership in a job: init() to shutdown()."""

from __future__ import annotations

import atexit
import contextlib
import math
import operator
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from farandole import _native
from farandole.core.arrays import FROM_FOREIGN, numpy_dtype
from farandole.core.communicator import Communicator
from farandole.core.contexts import Job
from farandole.core.machine import adopt_machine
from farandole.errors import InvalidArgumentError

_NBYTES_MAX = 2**50  # more than any machine has, and far from where sizes overflow

_lock = threading.Lock()
_context: _native.Context | None = None
_world: Communicator | None = None
_machine: _native.Machine | None = None

# Rank and process that joined the job, in a child that was forked from it; the child did not.
_parent: tuple[int, int] | None = None

# What shutdown() calls first, the last one added first: layers above end here what uses the
# context. Each is called at most once per addition.
before_shutdown: list[Callable[[], None]] = []


def init(job: Job | None = None) -> None:
    """Joins the job that the environment describes: farandole run, torchrun, mpirun or srun; alone
    without any. Or joins `job`, which needs no environment. Blocks until every rank has come. A
    second call does nothing.

    A process that is forked from a rank is no rank: there everything but rank(), size() and their
    like raises InvalidArgumentError, init() too, and its exit is no concern of the job's.

    Raises TimedOutError naming the ranks that are missing after FARANDOLE_START_TIMEOUT, and
    InvalidArgumentError naming an environment variable that makes no sense.
    """
    global _context, _world, _machine
    _check_process()
    with _lock:
        if _context is None:
            if job is None:
                context = _native.Context.from_environment()
            else:
                context = _native.Context.from_job(job.native())
            world = Communicator(context.world)
            try:
                machine = adopt_machine(context, world)
            except BaseException:
                context.shutdown()
                raise
            _context, _world, _machine = context, world, machine


def shutdown() -> None:
    """Leaves the job. Others that still need this rank get RankFailed. Runs at exit by itself."""
    with _lock, contextlib.ExitStack() as ending:  # all of it, also when a part raises
        ending.callback(_leave)
        for function in before_shutdown:
            ending.callback(function)
        before_shutdown.clear()


def _leave() -> None:
    global _context, _world
    context, _context, _world = _context, None, None
    if context is not None:
        context.shutdown()


atexit.register(shutdown)


def _forked() -> None:
    """In a new child: its locks may be held by threads that it does not have."""
    global _lock, _parent
    _lock = threading.Lock()
    before_shutdown.clear()
    if _context is not None and _parent is None:
        _parent = (_context.rank, os.getppid())


os.register_at_fork(after_in_child=_forked)


def _check_process() -> None:
    if _parent is not None:
        rank, pid = _parent
        raise InvalidArgumentError(
            f"this process, {os.getpid()}, was forked from rank {rank}, process {pid}, which alone "
            "belongs to the job; use Farandole there, or start processes that join a job "
            "themselves by other means than fork (multiprocessing's 'spawn')."
        )


def is_initialized() -> bool:
    """True between init() and shutdown()."""
    return _context is not None


def context() -> _native.Context:
    """The native membership; raises InvalidArgumentError before init()."""
    _check_process()
    return _member()


def _member() -> _native.Context:
    if _context is None:
        raise _not_initialized()
    return _context


def world() -> Communicator:
    """The communicator of all ranks."""
    if _world is None:
        raise _not_initialized()
    return _world


def _not_initialized() -> InvalidArgumentError:
    """A ValueError too, which is what Horovod's scripts expect."""
    return InvalidArgumentError("Farandole is not initialized; call farandole.init() first.")


def machine() -> _native.Machine | None:
    """What FARANDOLE_MACHINE names, the same on all ranks."""
    return _machine


def rank() -> int:
    """This process's rank, 0 to size() - 1."""
    return _member().rank


def size() -> int:
    """Number of processes in the job."""
    return _member().size


def local_rank() -> int:
    """Rank among the processes of this host."""
    return _member().local_rank


def local_size() -> int:
    """Number of processes on this host."""
    return _member().local_size


def cross_rank() -> int:
    """Position of this host among the hosts."""
    return _member().cross_rank


def cross_size() -> int:
    """Number of hosts."""
    return _member().cross_size


def statistics() -> dict[str, Any]:
    """What the library did so far in this process; see Context.statistics in the stub."""
    return context().statistics()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Records what happens to this process's named tensors in a file that Perfetto opens, until
    stop_timeline() or shutdown(). "{rank}" in the path is the rank; without it ".rank-N" goes
    before the suffix. Cycles are always marked; `mark_cycles` is there for Horovod's sake."""
    context().start_timeline(str(file_path))


def stop_timeline() -> None:
    """Ends the file that start_timeline(), or FARANDOLE_TIMELINE, began."""
    context().stop_timeline()


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """An uninitialised NumPy array in library-owned memory, which peers on the host read in
    place. From 2 MiB on it takes its memory at once, in huge pages, where the system gives such
    (Linux 6.1). Freed with the last array that views it."""
    kind = numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    if kind.name not in FROM_FOREIGN:
        raise InvalidArgumentError(
            f"argument 'dtype' is {kind.name}, allowed are " + ", ".join(_native.DTYPES) + "."
        )
    if not kind.isnative:
        raise InvalidArgumentError(
            f"argument 'dtype' is {kind.str}, allowed is this machine's byte order."
        )
    try:
        sizes = shape if isinstance(shape, Iterable) else (shape,)
        dimensions = tuple(operator.index(size) for size in sizes)
    except TypeError:
        dimensions = (-1,)
    nbytes = math.prod(dimensions) * kind.itemsize
    if any(size < 0 for size in dimensions) or nbytes > _NBYTES_MAX:
        raise InvalidArgumentError(
            f"argument 'shape' is {shape!r}, allowed are sizes >= 0 of at most 2^50 bytes in all."
        )
    owner: Any = context().allocate(max(nbytes, 1))
    return np.ndarray(dimensions, kind, buffer=owner)
