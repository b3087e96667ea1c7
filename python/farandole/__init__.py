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

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from farandole import _native, errors
from farandole.core.communicator import Communicator
from farandole.core.contexts import Context, FileStore, Job, MemoryStore, Store
from farandole.core.job import (
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
from farandole.core.messages import Recv, Send
from farandole.core.requests import Request
from farandole.core.schedules import Schedule
from farandole.errors import (
    AbortedError,
    FarandoleError,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    RankFailed,
    TimedOutError,
    UnsupportedError,
)
from farandole.launch.functions import run
from farandole.planning.chains import ChainOrder, chain_order, chain_order_of_tree

__version__ = _native.VERSION


P = ParamSpec("P")
Result = TypeVar("Result")


def _of_world(method: Callable[Concatenate[Communicator, P], Result]) -> Callable[P, Result]:
    """The method on the communicator of all ranks: with its signature, its text, and what holds for
    every method."""

    @functools.wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> Result:
        return method(world(), *arguments, **options)

    mine = inspect.signature(method)
    parameters = list(mine.parameters.values())[1:]
    call.__signature__ = mine.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__module__, call.__qualname__ = __name__, method.__name__
    texts = (method.__doc__, "On all ranks.", Communicator.__doc__)
    call.__doc__ = "\n\n".join(inspect.cleandoc(text) for text in texts if text)
    return call


allreduce = _of_world(Communicator.allreduce)
allreduce_async = _of_world(Communicator.allreduce_async)
reduce = _of_world(Communicator.reduce)
reduce_async = _of_world(Communicator.reduce_async)
broadcast = _of_world(Communicator.broadcast)
broadcast_async = _of_world(Communicator.broadcast_async)
reducescatter = _of_world(Communicator.reducescatter)
reducescatter_async = _of_world(Communicator.reducescatter_async)
allgather = _of_world(Communicator.allgather)
allgather_async = _of_world(Communicator.allgather_async)
gather = _of_world(Communicator.gather)
gather_async = _of_world(Communicator.gather_async)
scatter = _of_world(Communicator.scatter)
scatter_async = _of_world(Communicator.scatter_async)
alltoall = _of_world(Communicator.alltoall)
alltoall_async = _of_world(Communicator.alltoall_async)
barrier = _of_world(Communicator.barrier)
barrier_async = _of_world(Communicator.barrier_async)
send = _of_world(Communicator.send)
send_async = _of_world(Communicator.send_async)
recv = _of_world(Communicator.recv)
recv_async = _of_world(Communicator.recv_async)
sendrecv = _of_world(Communicator.sendrecv)
sendrecv_async = _of_world(Communicator.sendrecv_async)
batch = _of_world(Communicator.batch)
batch_async = _of_world(Communicator.batch_async)
split = _of_world(Communicator.split)
group = _of_world(Communicator.group)
create_group = _of_world(Communicator.create_group)


__all__ = [
    "AbortedError",
    "ChainOrder",
    "Communicator",
    "Context",
    "FarandoleError",
    "FileStore",
    "InternalError",
    "InvalidArgumentError",
    "Job",
    "MemoryStore",
    "MismatchError",
    "RankFailed",
    "Recv",
    "Request",
    "Schedule",
    "Send",
    "Store",
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
    "create_group",
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
