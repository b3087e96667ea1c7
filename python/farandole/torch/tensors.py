# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on torch tensors: those that return a handle, and those that work in place.

Every call submits named tensors to the coordinator of its process set: ranks may call in
different orders, and raise MismatchError if they ask for different things under one name. A name
is what the caller gives, or "allreduce.noname.3" for the fourth unnamed allreduce on the set;
what is repeated costs less with a name of its own. Names are unique among what is in flight.

Tensors are dense and on the CPU, and stay untouched until the operation is over. One that is not
contiguous is copied by the operations that return a new tensor and refused by those that work in
place. Gradients do not flow through these operations; see functions.py. Every call that waits
releases the GIL.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from farandole import _native
from farandole._native import Collective
from farandole.coordination.handles import Handle, start, start_group
from farandole.coordination.process_sets import (
    ProcessSet,
    check_process_set,
    global_process_set,
    wait_for_all,
)
from farandole.errors import InvalidArgumentError, WrongTypeError
from farandole.torch.reduction import Adasum, Average, ReduceOp, Scaling, resolve_op
from farandole.torch.tasks import Task, check_rows, readable, result_of, writable

Result = TypeVar("Result")
_NARROW_FLOATS = (torch.float16, torch.bfloat16)


def name_or_number(name: str | None, kind: str, process_set: ProcessSet) -> str:
    """`name`, or one that the same call gets on every rank, before anything can fail."""
    check_process_set(process_set, kind)
    if not isinstance(name, str | None):
        raise WrongTypeError(f"{kind}: name is {name!r}, allowed is a text or None")
    return name or process_set.next_name(kind)


def tensor_list(tensors: Iterable[torch.Tensor], caller: str) -> list[torch.Tensor]:
    """Those of a grouped operation; anything that gives tensors one after the other."""
    if isinstance(tensors, torch.Tensor | Mapping | str) or not isinstance(tensors, Iterable):
        raise WrongTypeError(
            f"{caller}: tensors is a {type(tensors).__name__}, allowed is a list of tensors"
        )
    return list(tensors)


def _members(
    tensors: Iterable[torch.Tensor], group: str, caller: str
) -> Iterator[tuple[torch.Tensor, str]]:
    """Each tensor with the name that it has in the group."""
    listed = tensor_list(tensors, caller)
    return ((tensor, f"{group}.{index}") for index, tensor in enumerate(listed))


def allreduce_task(
    source: torch.Tensor,
    target: torch.Tensor,
    returned: torch.Tensor,
    op: ReduceOp,
    scaling: Scaling,
    name: str,
) -> Task[torch.Tensor]:
    """An allreduce of contiguous memory whose result is `returned`, a view of `target` or it."""
    memory = target
    if op is Adasum and source.dtype in _NARROW_FLOATS:
        source = memory = source.float()

    def finish(_: _native.Submission) -> torch.Tensor:
        if memory is not target:
            target.copy_(memory)
        return returned

    return Task(Collective.allreduce, name, source, memory, finish, scaling, op is Adasum)


def _allreduce_copy(
    tensor: torch.Tensor, op: ReduceOp, scaling: Scaling, name: str
) -> Task[torch.Tensor]:
    source = readable(tensor, "allreduce")
    target = torch.empty_like(source)
    return allreduce_task(source, target, target, op, scaling, name)


def _allreduce_in_place(
    tensor: torch.Tensor, op: ReduceOp, scaling: Scaling, name: str
) -> Task[torch.Tensor]:
    target = writable(tensor, "allreduce_")
    return allreduce_task(target, target, tensor, op, scaling, name)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts an allreduce(); leave `tensor` unchanged until the handle is synchronized."""
    name = name_or_number(name, "allreduce", process_set)
    op = resolve_op(op, average)
    task = _allreduce_copy(tensor, op, Scaling.of(op, prescale_factor, postscale_factor), name)
    return start(task, process_set)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts an allreduce_(); leave `tensor` alone until the handle is synchronized."""
    name = name_or_number(name, "allreduce", process_set)
    op = resolve_op(op, average)
    task = _allreduce_in_place(tensor, op, Scaling.of(op, prescale_factor, postscale_factor), name)
    return start(task, process_set)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """allreduce() whose result replaces `tensor`."""
    op = resolve_op(op, average)
    return allreduce_async_(
        tensor, None, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts a grouped_allreduce()."""
    name = name_or_number(name, "grouped_allreduce", process_set)
    op = resolve_op(op, average)
    scaling = Scaling.of(op, prescale_factor, postscale_factor)  # wrong also without tensors
    tasks = [
        _allreduce_copy(tensor, op, scaling, member)
        for tensor, member in _members(tensors, name, "grouped_allreduce")
    ]
    return start_group(tasks, process_set, name)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts a grouped_allreduce_()."""
    name = name_or_number(name, "grouped_allreduce", process_set)
    op = resolve_op(op, average)
    scaling = Scaling.of(op, prescale_factor, postscale_factor)  # wrong also without tensors
    tasks = [
        _allreduce_in_place(tensor, op, scaling, member)
        for tensor, member in _members(tensors, name, "grouped_allreduce")
    ]
    return start_group(tasks, process_set, name)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """grouped_allreduce() whose results replace the tensors."""
    op = resolve_op(op, average)
    return grouped_allreduce_async_(
        tensors, None, name, op, prescale_factor, postscale_factor, process_set
    ).wait()


def allgather_task(tensor: torch.Tensor, name: str) -> Task[tuple[torch.Tensor, list[int]]]:
    """An allgather that results in the tensor and the rows that each rank has given."""
    source = readable(tensor, "allgather")
    check_rows(source, "allgather")

    def finish(submission: _native.Submission) -> tuple[torch.Tensor, list[int]]:
        return result_of(submission, source.dtype), submission.rows

    return Task(Collective.allgather, name, source, None, finish)


def _without_rows(gathered: tuple[torch.Tensor, list[int]]) -> torch.Tensor:
    return gathered[0]


def gather_rows(
    tensor: torch.Tensor, name: str, process_set: ProcessSet
) -> tuple[torch.Tensor, list[int]]:
    """allgather() and the rows that each rank has given."""
    return start(allgather_task(tensor, name), process_set).wait()


def gather_rows_grouped(
    tensors: Sequence[torch.Tensor], name: str, process_set: ProcessSet
) -> Handle[list[tuple[torch.Tensor, list[int]]]]:
    """Starts gather_rows() of several tensors as one group."""
    members = _members(tensors, name, "grouped_allgather")
    return start_group([allgather_task(*member) for member in members], process_set, name)


def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts an allgather()."""
    name = name_or_number(name, "allgather", process_set)
    return start(allgather_task(tensor, name), process_set).then(_without_rows)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts a grouped_allgather()."""
    name = name_or_number(name, "grouped_allgather", process_set)
    return gather_rows_grouped(tensors, name, process_set).then(
        lambda gathered: [_without_rows(each) for each in gathered]
    )


def _broadcast_task(
    source: torch.Tensor,
    target: torch.Tensor,
    returned: torch.Tensor,
    root_rank: int,
    name: str,
    process_set: ProcessSet,
) -> Task[torch.Tensor]:
    root = process_set.position(root_rank, "root_rank")
    return Task(Collective.broadcast, name, source, target, lambda _: returned, root=root)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts a broadcast()."""
    name = name_or_number(name, "broadcast", process_set)
    source = readable(tensor, "broadcast")
    target = torch.empty_like(source)
    return start(_broadcast_task(source, target, target, root_rank, name, process_set), process_set)


def _broadcast_in_place(
    tensor: torch.Tensor, root_rank: int, name: str, process_set: ProcessSet
) -> Task[torch.Tensor]:
    target = writable(tensor, "broadcast_")
    return _broadcast_task(target, target, tensor, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts a broadcast_(); leave `tensor` alone until the handle is synchronized."""
    name = name_or_number(name, "broadcast", process_set)
    return start(_broadcast_in_place(tensor, root_rank, name, process_set), process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """broadcast() into `tensor` itself."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def broadcast_group(
    tensors: dict[str, torch.Tensor], root_rank: int, group: str, process_set: ProcessSet
) -> None:
    """broadcast_() of named tensors, all of which every rank must have."""
    tasks = [
        _broadcast_in_place(tensor, root_rank, f"{group}.{name}", process_set)
        for name, tensor in tensors.items()
    ]
    start_group(tasks, process_set, group).wait()


def alltoall_task(
    tensor: torch.Tensor, splits: Sequence[int] | torch.Tensor | None, name: str
) -> Task[tuple[torch.Tensor, list[int]]]:
    """An alltoall that results in the tensor and the rows that came from each rank."""
    source = readable(tensor, "alltoall")
    check_rows(source, "alltoall")

    def finish(submission: _native.Submission) -> tuple[torch.Tensor, list[int]]:
        return result_of(submission, source.dtype), submission.rows

    rows = [] if splits is None else _split_rows(splits)
    return Task(Collective.alltoall, name, source, None, finish, splits=rows)


def _split_rows(splits: Sequence[int] | torch.Tensor) -> list[int]:
    each: Any = splits.tolist() if isinstance(splits, torch.Tensor) else splits
    try:
        rows = [operator.index(one) for one in each]
    except TypeError as error:
        raise WrongTypeError(f"alltoall: splits is {splits}, allowed are integers") from error
    if not rows:
        raise InvalidArgumentError("alltoall: splits is empty, allowed is a number per rank")
    return rows


def alltoall_async(
    tensor: torch.Tensor,
    splits: Sequence[int] | torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Starts an alltoall(); the result is the tensor and the numbers of rows that came, also
    without `splits`."""
    name = name_or_number(name, "alltoall", process_set)
    handle = start(alltoall_task(tensor, splits, name), process_set)
    return handle.then(lambda received: (received[0], received_splits(received[1])))


def received_splits(rows: Sequence[int]) -> torch.Tensor:
    """As alltoall() returns them."""
    return torch.tensor(rows, dtype=torch.int32)


def _reducescatter_scaling(op: ReduceOp | None, prescale: float, postscale: float) -> Scaling:
    op = resolve_op(op)
    if op is Adasum:
        raise InvalidArgumentError("reducescatter: op is ADASUM, allowed are all others")
    return Scaling.of(op, prescale, postscale)


def _reducescatter_task(tensor: torch.Tensor, scaling: Scaling, name: str) -> Task[torch.Tensor]:
    """A reducescatter, whose result is library memory."""
    source = readable(tensor, "reducescatter")
    check_rows(source, "reducescatter")

    def finish(submission: _native.Submission) -> torch.Tensor:
        return result_of(submission, source.dtype)

    return Task(Collective.reducescatter, name, source, None, finish, scaling)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Starts a reducescatter()."""
    name = name_or_number(name, "reducescatter", process_set)
    scaling = _reducescatter_scaling(op, prescale_factor, postscale_factor)
    return start(_reducescatter_task(tensor, scaling, name), process_set)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: ReduceOp | None = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[torch.Tensor]]:
    """Starts a grouped_reducescatter()."""
    name = name_or_number(name, "grouped_reducescatter", process_set)
    scaling = _reducescatter_scaling(op, prescale_factor, postscale_factor)
    tasks = [
        _reducescatter_task(tensor, scaling, member)
        for tensor, member in _members(tensors, name, "grouped_reducescatter")
    ]
    return start_group(tasks, process_set, name)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it."""
    wait_for_all(process_set, name_or_number(None, "barrier", process_set))


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """This rank has no more data: until all ranks of the set have joined it takes part in what
    the others do with the neutral element of the reduction, and without rows in what gathers and
    exchanges them. Averages still divide by all ranks, op=ActiveAverage by the others.

    Returns the rank that joined last. `device` is Horovod's, where zeros come from; it changes
    nothing.
    """
    check_process_set(process_set, "join")
    if not isinstance(device, int):
        raise WrongTypeError(f"join: device is {device!r}, allowed is an integer")
    submission = process_set.coordinator.join()
    submission.wait()
    process_set.start_names_over()
    return process_set.members()[submission.last_joined]


def synchronize(handle: Handle[Result]) -> Result:
    """Waits for an operation and returns its result, or raises what it failed with."""
    return handle.wait()


def poll(handle: Handle[Any]) -> bool:
    """True when synchronize() would not block; raises what the operation failed with."""
    return handle.done()
