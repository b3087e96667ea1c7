# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with PyTorch, under Horovod's names.

    import farandole.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Here are: the process's place in the job (init, rank, size, …), allreduce, allgather, broadcast,
reducescatter (each also `_async`, and with a trailing `_` in place where Horovod has that),
barrier, synchronize, poll, broadcast_parameters, broadcast_optimizer_state, broadcast_object,
allgather_object, DistributedOptimizer.

Of Horovod's surface this version lacks: devices other than the CPU, alltoall, grouped and sparse
operations, gradients through collectives, compression, Adasum, process sets, join, SyncBatchNorm,
elastic, the timeline, and of the optimizer wrapper's arguments groups, num_groups and
sparse_as_dense. Operations are not negotiated by name: every rank calls them in the same order.

allgather() of tensors with different first dimensions exchanges these first, then gathers blocks
padded to the largest.
"""

from farandole import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from farandole.torch.optimizer import DistributedOptimizer
from farandole.torch.state import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from farandole.torch.tensors import (
    Average,
    Handle,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    reducescatter,
    reducescatter_async,
    synchronize,
)

__all__ = [
    "Average",
    "DistributedOptimizer",
    "Handle",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "shutdown",
    "size",
    "synchronize",
]
