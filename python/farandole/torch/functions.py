# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives that return new tensors, and let gradients through.

Every rank has to call backward() through a collective, in the same order. The gradients are
Horovod's, of `size` ranks in the process set:

    allreduce       the allreduce of the gradients with the same operation: Sum and Average only
    allgather       this rank's rows of the gradients' average
    broadcast       the gradients' average on the root, zeros elsewhere
    alltoall        the alltoall that brings every row back
    reducescatter   the allgather; with Sum, `size` times that

Those of allreduce and alltoall are of the sum, over the ranks, of what each calls backward() on;
for that sum the ones of allgather and broadcast are too small by the factor `size`, and the ones of
reducescatter too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import farandole
from farandole.coordination.handles import start
from farandole.coordination.process_sets import ProcessSet, global_process_set
from farandole.errors import InvalidArgumentError
from farandole.torch.compression import Compressing, Compression, name_of
from farandole.torch.reduction import ActiveAverage, Average, ReduceOp, Sum, resolve_op
from farandole.torch.tensors import (
    allreduce_async,
    alltoall_task,
    broadcast_async,
    gather_rows,
    gather_rows_grouped,
    grouped_allreduce_async,
    grouped_reducescatter_async,
    name_or_number,
    received_splits,
    reducescatter_async,
    tensor_list,
)

Tensors = Sequence[torch.Tensor]
Map = Callable[[Tensors], Tensors]


class _Collective(torch.autograd.Function):
    """`run` on tensors, and `back`, which may use such functions itself, on their gradients."""

    @staticmethod
    def forward(ctx: Any, run: Map, back: Map, *tensors: torch.Tensor) -> Any:
        ctx.back = back
        return tuple(run(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, None, *ctx.back(gradients)


def _differentiable(run: Map, back: Map, tensors: Tensors) -> list[torch.Tensor]:
    needed = torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )
    apply: Any = _Collective.apply  # untyped
    return list(apply(run, back, *tensors) if needed else run(tensors))


def _compressed(
    compression: Compressing, tensors: Tensors, run: Callable[[Tensors], list[torch.Tensor]]
) -> list[torch.Tensor]:
    if compression is Compression.none:
        return run(tensors)
    name_of(compression)
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = run([sent for sent, _ in pairs])
    return [
        compression.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs, strict=True)
    ]


def _backward(name: str) -> str:
    return f"{name}.backward"


def _check_linear(op: ReduceOp, caller: str) -> None:
    if op not in (Sum, Average, ActiveAverage):
        raise InvalidArgumentError(
            f"{caller}: a gradient is asked for with op {op.name}, allowed are SUM, AVERAGE and "
            "ACTIVE_AVERAGE"
        )


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Compressing = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """A new tensor: the reduction (Average by default) of `tensor` over all ranks.

    `prescale_factor` multiplies every input, `postscale_factor` the result; `average` is the
    older way to choose between Average and Sum.
    """
    known = name_or_number(name, "allreduce", process_set)
    chosen = resolve_op(op, average)
    rest = (chosen, prescale_factor, postscale_factor, process_set)

    def run(tensors: Tensors) -> Tensors:
        return [allreduce_async(tensors[0], None, known, *rest).wait()]

    def back(gradients: Tensors) -> Tensors:
        _check_linear(chosen, "allreduce")
        return [allreduce(gradients[0], None, _backward(known), Compression.none, *rest)]

    return _compressed(compression, [tensor], lambda sent: _differentiable(run, back, sent))[0]


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: Compressing = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """allreduce() of several tensors, none of them before all are ready on every rank."""
    known = name_or_number(name, "grouped_allreduce", process_set)
    tensors = tensor_list(tensors, "grouped_allreduce")
    chosen = resolve_op(op, average)
    rest = (chosen, prescale_factor, postscale_factor, process_set)

    def run(tensors: Tensors) -> Tensors:
        return grouped_allreduce_async(tensors, None, known, *rest).wait()

    def back(gradients: Tensors) -> Tensors:
        _check_linear(chosen, "grouped_allreduce")
        return grouped_allreduce(gradients, None, _backward(known), Compression.none, *rest)

    return _compressed(compression, tensors, lambda sent: _differentiable(run, back, sent))


def _own_rows(
    gradient: torch.Tensor, rows: Sequence[int], name: str, process_set: ProcessSet
) -> torch.Tensor:
    """This rank's part of the mean gradient of an allgather to which ranks gave `rows`."""
    if len(set(rows)) == 1:
        return reducescatter(gradient, name, op=Average, process_set=process_set)
    mine = process_set.position(farandole.rank(), "rank")
    mean = allreduce(gradient, name=name, op=Average, process_set=process_set)
    return mean.narrow(0, sum(rows[:mine]), rows[mine])


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensors of all ranks one after the other along the first dimension, in which they may
    differ."""
    known = name_or_number(name, "allgather", process_set)
    rows: list[int] = []

    def run(tensors: Tensors) -> Tensors:
        gathered, rows[:] = gather_rows(tensors[0], known, process_set)
        return [gathered]

    def back(gradients: Tensors) -> Tensors:
        return [_own_rows(gradients[0], rows, _backward(known), process_set)]

    return _differentiable(run, back, [tensor])[0]


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """allgather() of several tensors, none of them before all are ready on every rank."""
    known = name_or_number(name, "grouped_allgather", process_set)
    tensors = tensor_list(tensors, "grouped_allgather")
    rows: list[list[int]] = []

    def run(tensors: Tensors) -> Tensors:
        gathered = gather_rows_grouped(tensors, known, process_set).wait()
        rows[:] = [each for _, each in gathered]
        return [tensor for tensor, _ in gathered]

    def back(gradients: Tensors) -> Tensors:
        return [
            _own_rows(gradient, each, f"{_backward(known)}.{index}", process_set)
            for index, (gradient, each) in enumerate(zip(gradients, rows, strict=True))
        ]

    return _differentiable(run, back, tensors)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """A new tensor: that of `root_rank`, a rank of the job. `tensor` has its shape and dtype on
    every rank."""
    known = name_or_number(name, "broadcast", process_set)

    def run(tensors: Tensors) -> Tensors:
        return [broadcast_async(tensors[0], root_rank, known, process_set).wait()]

    def back(gradients: Tensors) -> Tensors:
        mean = allreduce(gradients[0], name=_backward(known), op=Average, process_set=process_set)
        # Zeros that hang on `mean`, so that all ranks take part in its own gradient too.
        elsewhere = torch.tensor(farandole.rank() != root_rank)
        return [mean.masked_fill(elsewhere, 0.0)]

    return _differentiable(run, back, [tensor])[0]


def alltoall(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank its part of the first dimension, and returns what came, by rank.

    `splits` has the number of rows for each rank, from the first one on; the result is then the
    tensor and the numbers of rows that came, int32. Without it the parts are equal
    and the result is the tensor alone.
    """
    known = name_or_number(name, "alltoall", process_set)
    rows: list[int] = []

    def run(tensors: Tensors) -> Tensors:
        received, rows[:] = start(alltoall_task(tensors[0], splits, known), process_set).wait()
        return [received]

    def back(gradients: Tensors) -> Tensors:
        gradient = alltoall(gradients[0], rows, _backward(known), process_set)[0]
        kept = tensor.shape[0] - gradient.shape[0]  # rows that went nowhere
        return [torch.cat([gradient, gradient.new_zeros(kept, *gradient.shape[1:])])]

    received = _differentiable(run, back, [tensor])[0]
    return received if splits is None else (received, received_splits(rows))


def _reducescatter_gradient_factor(
    op: ReduceOp, prescale: float, postscale: float, process_set: ProcessSet
) -> float:
    _check_linear(op, "reducescatter")
    share = float(len(process_set.members())) if op is Sum else 1.0
    return share * prescale * postscale


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Compressing = Compression.none,
    op: ReduceOp | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of the reduction (Average by default) of `tensor` over all ranks.

    The first dimension is divided evenly; what is left over goes to the first ranks, a row each.
    """
    known = name_or_number(name, "reducescatter", process_set)
    chosen = resolve_op(op)
    scales = (prescale_factor, postscale_factor)

    def run(tensors: Tensors) -> Tensors:
        return [reducescatter_async(tensors[0], known, chosen, process_set, *scales).wait()]

    def back(gradients: Tensors) -> Tensors:
        factor = _reducescatter_gradient_factor(chosen, *scales, process_set)
        return [allgather(gradients[0] * factor, _backward(known), process_set)]

    return _compressed(compression, [tensor], lambda sent: _differentiable(run, back, sent))[0]


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: Compressing = Compression.none,
    op: ReduceOp | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """reducescatter() of several tensors, none of them before all are ready on every rank."""
    known = name_or_number(name, "grouped_reducescatter", process_set)
    tensors = tensor_list(tensors, "grouped_reducescatter")
    chosen = resolve_op(op)
    scales = (prescale_factor, postscale_factor)

    def run(tensors: Tensors) -> Tensors:
        return grouped_reducescatter_async(tensors, known, chosen, process_set, *scales).wait()

    def back(gradients: Tensors) -> Tensors:
        factor = _reducescatter_gradient_factor(chosen, *scales, process_set)
        scaled = [gradient * factor for gradient in gradients]
        return grouped_allgather(scaled, _backward(known), process_set)

    return _compressed(compression, tensors, lambda sent: _differentiable(run, back, sent))
