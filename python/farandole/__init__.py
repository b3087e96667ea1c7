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

from collections.abc import Iterable, Sequence
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
from farandole._messages import Recv, Send
from farandole.chains import ChainOrder, chain_order, chain_order_of_tree
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
from farandole.functions import run

__version__ = _native.VERSION


def allreduce(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Any:
    """Communicator.allreduce on all ranks."""
    return world().allreduce(array, out, op, **options)


def allreduce_async(array: Any, out: Any = None, op: str = "sum", **options: Any) -> Request:
    """Communicator.allreduce_async on all ranks."""
    return world().allreduce_async(array, out, op, **options)


def reduce(array: Any, out: Any = None, op: str = "sum", root: int = 0, **options: Any) -> Any:
    """Communicator.reduce on all ranks."""
    return world().reduce(array, out, op, root, **options)


def reduce_async(
    array: Any, out: Any = None, op: str = "sum", root: int = 0, **options: Any
) -> Request:
    """Communicator.reduce_async on all ranks."""
    return world().reduce_async(array, out, op, root, **options)


def broadcast(array: Any, out: Any = None, root: int = 0, **options: Any) -> Any:
    """Communicator.broadcast on all ranks."""
    return world().broadcast(array, out, root, **options)


def broadcast_async(array: Any, out: Any = None, root: int = 0, **options: Any) -> Request:
    """Communicator.broadcast_async on all ranks."""
    return world().broadcast_async(array, out, root, **options)


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


def gather(array: Any, out: Any = None, root: int = 0, **options: Any) -> Any:
    """Communicator.gather on all ranks."""
    return world().gather(array, out, root, **options)


def gather_async(array: Any, out: Any = None, root: int = 0, **options: Any) -> Request:
    """Communicator.gather_async on all ranks."""
    return world().gather_async(array, out, root, **options)


def scatter(array: Any, out: Any = None, root: int = 0, **options: Any) -> Any:
    """Communicator.scatter on all ranks."""
    return world().scatter(array, out, root, **options)


def scatter_async(array: Any, out: Any = None, root: int = 0, **options: Any) -> Request:
    """Communicator.scatter_async on all ranks."""
    return world().scatter_async(array, out, root, **options)


def alltoall(array: Any, out: Any = None, **options: Any) -> Any:
    """Communicator.alltoall on all ranks."""
    return world().alltoall(array, out, **options)


def alltoall_async(array: Any, out: Any = None, **options: Any) -> Request:
    """Communicator.alltoall_async on all ranks."""
    return world().alltoall_async(array, out, **options)


def barrier(*, name: str | None = None) -> None:
    """Communicator.barrier on all ranks."""
    world().barrier(name=name)


def barrier_async(*, name: str | None = None) -> Request:
    """Communicator.barrier_async on all ranks."""
    return world().barrier_async(name=name)


def send(array: Any, dest: int, *, name: str | None = None) -> None:
    """Communicator.send of the world."""
    world().send(array, dest, name=name)


def send_async(array: Any, dest: int, *, name: str | None = None) -> Request:
    """Communicator.send_async of the world."""
    return world().send_async(array, dest, name=name)


def recv(out: Any, source: int, *, name: str | None = None) -> Any:
    """Communicator.recv of the world."""
    return world().recv(out, source, name=name)


def recv_async(out: Any, source: int, *, name: str | None = None) -> Request:
    """Communicator.recv_async of the world."""
    return world().recv_async(out, source, name=name)


def sendrecv(array: Any, dest: int, out: Any, source: int, *, name: str | None = None) -> Any:
    """Communicator.sendrecv of the world."""
    return world().sendrecv(array, dest, out, source, name=name)


def sendrecv_async(
    array: Any, dest: int, out: Any, source: int, *, name: str | None = None
) -> Request:
    """Communicator.sendrecv_async of the world."""
    return world().sendrecv_async(array, dest, out, source, name=name)


def batch(messages: Iterable[Send | Recv], *, name: str | None = None) -> list[Any]:
    """Communicator.batch of the world."""
    return world().batch(messages, name=name)


def batch_async(messages: Iterable[Send | Recv], *, name: str | None = None) -> Request:
    """Communicator.batch_async of the world."""
    return world().batch_async(messages, name=name)


def split(color: int | None, key: int = 0) -> Communicator | None:
    """Communicator.split of the world."""
    return world().split(color, key)


def group(ranks: Sequence[int]) -> Communicator | None:
    """Communicator.group of the world."""
    return world().group(ranks)


__all__ = [
    "ChainOrder",
    "Communicator",
    "FarandoleError",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "RankFailed",
    "Recv",
    "Request",
    "Send",
    "TimedOutError",
    "UnsupportedError",
    "__version__",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "batch",
    "batch_async",
    "broadcast",
    "broadcast_async",
    "chain_order",
    "chain_order_of_tree",
    "context",
    "cross_rank",
    "cross_size",
    "empty",
    "errors",
    "gather",
    "gather_async",
    "group",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "run",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "sendrecv",
    "sendrecv_async",
    "shutdown",
    "size",
    "split",
    "statistics",
    "world",
]
