# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Farandole: collective communication for data-parallel deep learning.

    import farandole
    farandole.init()
    total = farandole.allreduce(array)          # NumPy, or anything with DLPack
    farandole.shutdown()

Start with `farandole run -n 4 python train.py`. For PyTorch see farandole.torch.
"""

from __future__ import annotations

from typing import Any

from farandole import _native, errors
from farandole._job import (
    context,
    cross_rank,
    cross_size,
    empty,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    statistics,
    world,
)
from farandole.communicator import Communicator, Request
from farandole.errors import (
    FarandoleError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    RankFailed,
    TimedOutError,
    UnsupportedError,
)

__version__ = _native.VERSION


def allreduce(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Any:
    """Communicator.allreduce on all ranks."""
    return world().allreduce(array, out, op, **options)


def allreduce_async(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Request:
    """Communicator.allreduce_async on all ranks."""
    return world().allreduce_async(array, out, op, **options)


def reducescatter(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Any:
    """Communicator.reducescatter on all ranks."""
    return world().reducescatter(array, out, op, **options)


def reducescatter_async(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Request:
    """Communicator.reducescatter_async on all ranks."""
    return world().reducescatter_async(array, out, op, **options)


def allgather(array: Any, out: Any = None, **options: Any) -> Any:
    """Communicator.allgather on all ranks."""
    return world().allgather(array, out, **options)


def allgather_async(array: Any, out: Any = None, **options: Any) -> Request:
    """Communicator.allgather_async on all ranks."""
    return world().allgather_async(array, out, **options)


def broadcast(array: Any, out: Any = None, root: int = 0, **options: Any) -> Any:
    """Communicator.broadcast on all ranks."""
    return world().broadcast(array, out, root, **options)


def broadcast_async(array: Any, out: Any = None, root: int = 0, **options: Any) -> Request:
    """Communicator.broadcast_async on all ranks."""
    return world().broadcast_async(array, out, root, **options)


def barrier(*, name: str | None = None) -> None:
    """Communicator.barrier on all ranks."""
    world().barrier(name=name)


__all__ = [
    "Communicator",
    "FarandoleError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "RankFailed",
    "Request",
    "TimedOutError",
    "UnsupportedError",
    "__version__",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "context",
    "cross_rank",
    "cross_size",
    "empty",
    "errors",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "shutdown",
    "size",
    "statistics",
    "world",
]
