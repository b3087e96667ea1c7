# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients in buckets of library-owned memory, sent while the backward pass still runs.

Every `param.grad` is a view into a bucket once it is complete. A bucket is submitted when the last
of its gradients is ready; those of one dtype lie one after the other and travel as one named
tensor, which the library reduces in place. Buckets go out whenever they are ready: the coordinator
finds the order. Where ranks reach each other's ordinary memory, or occupy their host, a large
gradient is a bucket of its own and stays where autograd put it. Where nothing is idle during the
backward pass (early_sends_pay), all go out at the end.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch

import farandole
from farandole import _native
from farandole.errors import InvalidArgumentError
from farandole.process_sets import ProcessSet
from farandole.torch.compression import Compressing, Compressor
from farandole.torch.handles import (
    Handle,
    Task,
    check_tensor,
    first_failure,
    readable,
    start_group,
)
from farandole.torch.meter import Meter
from farandole.torch.plans import plan_buckets, plan_equal_groups, plan_explicit_groups
from farandole.torch.reduction import Adasum, ReduceOp, Scaling
from farandole.torch.sparse import SparseSum, sparse_sum
from farandole.torch.tensors import allreduce_task

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
# From so much on a gradient travels from where autograd put it: if peers reach it there, and if it
# is staged for them. For each a message is sent, so in the second case it has to spare more.
APART_BYTES_MIN = 1 << 20
APART_STAGED_BYTES_MIN = 4 << 20


@dataclass(frozen=True, eq=False)
class ExchangeOptions:
    """How gradients are to be combined."""

    label: str  # before the names of all tensors
    op: ReduceOp
    scaling: Scaling
    bucket_bytes: int
    groups: int | Sequence[Sequence[torch.Tensor]] | None  # None: buckets of bucket_bytes
    compression: Compressing
    sparse_as_dense: bool
    process_set: ProcessSet


@dataclass(eq=False)
class Slot:
    """A parameter's place in a bucket."""

    name: str
    message: str  # name under which it travels
    parameter: torch.Tensor
    view: torch.Tensor  # where the gradient travels; empty if it is apart and has none
    passes: int = 0  # backward passes that its gradient has in this step
    apart: bool = False  # travels from where autograd put it, if it lies there in order
    sparse_dim: int = 0  # of its gradients; 0: they are dense
    task: Task[torch.Tensor] | None = field(default=None, repr=False)  # if each step has the same
    # Looks whether gradients are sparse, until a dense one has come.
    kind_hook: torch.utils.hooks.RemovableHandle | None = field(default=None, repr=False)

    def show_gradient(self, gradient: torch.Tensor | None = None) -> None:
        """Makes param.grad the view, or what is given instead; that of a frozen parameter None,
        so that it stays put."""
        shown: torch.Tensor | None = self.view if gradient is None else gradient
        if not self.parameter.requires_grad:
            shown = None
        if self.parameter.grad is not shown:
            self.parameter.grad = shown

    def take_gradient(self, copied: list[torch.Tensor]) -> None:
        """Makes param.grad the view, with the value that param.grad has; None is zero. What was
        copied is appended to `copied`."""
        gradient = self.parameter.grad
        if gradient is self.view:
            return
        if gradient is None:
            self.view.zero_()
        else:
            value = gradient.detach()  # or the view would be of the graph that made it
            self.view.copy_(value.to_dense() if value.is_sparse else value)
            copied.append(gradient)
        self.parameter.grad = self.view

    def take_apart(self, taken: set[int], copied: list[torch.Tensor]) -> None:
        """take_gradient() where the view may be replaced by what param.grad is, unless that is at
        one of the addresses that are `taken`; its own is from now on."""
        gradient, parameter = self.parameter.grad, self.parameter
        if gradient is None or gradient is not self.view:
            self.task = None
            if (
                gradient is not None
                and not gradient.requires_grad
                and _lies_in_order(gradient, parameter)
                and gradient.data_ptr() not in taken
            ):
                self.view = gradient
            else:
                self.view = torch.empty(parameter.shape, dtype=parameter.dtype)
                self.take_gradient(copied)
        taken.add(self.view.data_ptr())

    def zero(self) -> None:
        """Makes param.grad the view, with zeros."""
        if self.view.shape != self.parameter.shape:
            self.task, self.view = None, torch.zeros_like(self.parameter, requires_grad=False)
        self.view.zero_()
        self.show_gradient()

    def forget(self) -> None:
        """Frees a gradient that is apart, which nobody wants any more."""
        if self.apart:
            self.task, self.view = None, self.parameter.new_empty(0)

    def sparse_gradient(self) -> torch.Tensor:
        """param.grad as a sparse tensor; None is one without elements."""
        gradient, shape = self.parameter.grad, self.parameter.shape
        if gradient is None:
            indices = torch.empty((self.sparse_dim, 0), dtype=torch.int64)
            values = self.view.new_empty((0, *shape[self.sparse_dim :]))
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
        return gradient if gradient.is_sparse else gradient.to_sparse(self.sparse_dim)


def _lies_in_order(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether its memory holds what is to travel, as it is to travel."""
    return (
        gradient.layout is torch.strided
        and gradient.is_contiguous()
        and not gradient.is_neg()
        and gradient.dtype == parameter.dtype
    )


def early_sends_pay() -> bool:
    """Whether gradients that travel during the backward pass find something idle meanwhile: a
    network, a core that no rank computes on, or other threads of this rank that go on computing.
    """
    return not farandole.context().occupies_host or torch.get_num_threads() > 1


def _apart_bytes_min() -> float:
    """Bytes from which on exchanging a gradient where autograd put it takes less than copying it to
    library-owned memory first, which all memory's bandwidth goes into where ranks occupy a host.
    The same on all ranks."""
    context = farandole.context()
    if context.reaches_all_memory:
        return APART_BYTES_MIN
    return APART_STAGED_BYTES_MIN if context.occupies_host else math.inf


def _take_gradients(slots: Sequence[Slot], taken: set[int], copied: list[torch.Tensor]) -> None:
    """take_gradient(), or take_apart(), of all; what lies in memory as its view does is copied
    without torch in between, as to memory, since it would not stay in the caches until it is
    summed."""
    copies = []
    for slot in slots:
        gradient, view = slot.parameter.grad, slot.view
        if slot.apart:
            slot.take_apart(taken, copied)
        elif gradient is None or not _lies_in_order(gradient, slot.parameter):
            slot.take_gradient(copied)
        elif gradient is not view:
            copies.append((view.data_ptr(), gradient.data_ptr(), view.nbytes))
            copied.append(gradient)
            slot.parameter.grad = view
    _native.copy_to_memory(copies)


@dataclass(eq=False)
class Flat:
    """The gradients of one dtype in a bucket, as one tensor."""

    message: str
    view: torch.Tensor
    task: Task[torch.Tensor] | None = field(default=None, repr=False)  # if each step has the same


@dataclass(eq=False)
class Bucket:
    """Gradients that travel together."""

    label: str  # of the group; empty if it is none
    flats: list[Flat]  # none if the gradient is apart
    slots: list[Slot]
    missing: int  # slots whose gradient is not complete in this step
    handle: Handle[list[Any]] | None = field(default=None, repr=False)  # on its way
    sparse: list[tuple[Slot, SparseSum]] = field(default_factory=list, repr=False)  # its last tasks

    @property
    def byte_count(self) -> int:
        return sum(slot.parameter.nbytes for slot in self.slots)


class GradientExchange:
    """Watches the gradients of some parameters become ready and combines them over the ranks.

    A step is `passes` backward passes followed by finish(). A parameter without a gradient, used
    nowhere in this rank's backward pass, takes part with zeros. Where gradients are sparse, every
    rank has to have one the first time.

    Threads  the hooks run on the thread of the backward pass; the other calls must not overlap
             with it.
    Errors   what an allreduce failed with is raised by finish(), which then has ended the step.
    """

    def __init__(self, options: ExchangeOptions, passes: int) -> None:
        self.meter = Meter()
        self.passes = passes
        self.finished = False  # finish() ran, and neither start_over() nor backward() since
        self._options = options
        self._groups = options.groups
        self._parameters: list[tuple[str, torch.Tensor]] = []
        self._buckets: list[Bucket] = []
        self._slots: dict[torch.Tensor, Slot] = {}
        self._bucket_of: dict[Slot, Bucket] = {}
        self._sent = 0  # buckets on their way in this step
        self._ready: list[Slot] = []  # with backward passes in this step
        # Gradients that autograd made in this step, kept until its end, as without us: if each
        # were freed at once, malloc would return much to the system and get it back page by page.
        self._copied: list[torch.Tensor] = []
        self._taken: set[int] = set()  # where gradients are that travel apart, in this step
        self._sends_early = True  # buckets leave when they are ready, not all in finish()
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __del__(self) -> None:
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @property
    def in_flight(self) -> bool:
        """Whether a bucket is on its way, or only finish() is waited for."""
        return self._sent > 0 or any(bucket.missing == 0 for bucket in self._buckets)

    @property
    def tensor_count(self) -> int:
        return len(self._slots)

    @property
    def byte_count(self) -> int:
        """Of all gradients."""
        return sum(bucket.byte_count for bucket in self._buckets)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return parameter in self._slots

    def add(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Appends buckets for more parameters and points their gradients there."""
        for name, parameter in parameters:
            check_tensor(parameter, f"parameter '{name}'")
        self._parameters += parameters
        self._make_buckets(parameters)
        self._sends_early = early_sends_pay()

    def regroup(self, group_count: int) -> None:
        """Makes so many groups of about equal bytes; 0: those that the options ask for.

        Between steps, on every rank alike. Gradients keep their values.
        """
        groups = group_count or self._options.groups
        if groups == self._groups:
            return
        self._groups = groups
        self._remove_hooks()
        sparse_dims = {slot.parameter: slot.sparse_dim for slot in self._slots.values()}
        self._buckets, self._slots, self._bucket_of = [], {}, {}
        self._make_buckets(self._parameters)
        for parameter, slot in self._slots.items():
            slot.sparse_dim = sparse_dims[parameter]

    def _make_buckets(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        apart = [named for named in parameters if self._travels_apart(named[1])]
        together = [named for named in parameters if not self._travels_apart(named[1])]
        plan = [[together[i] for i in indices] for indices in self._plan([p for _, p in together])]
        for members in [*([named] for named in reversed(apart)), *plan]:
            bucket = self._make_bucket(members)
            self._buckets.append(bucket)
            for slot in bucket.slots:
                slot.take_gradient(self._copied)
                self._slots[slot.parameter] = slot
                self._bucket_of[slot] = bucket
                self._watch(slot)

    def _travels_apart(self, parameter: torch.Tensor) -> bool:
        return self._groups is None and parameter.nbytes >= _apart_bytes_min()

    def _plan(self, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
        groups = self._groups
        if groups is None:
            bucket_bytes = self._options.bucket_bytes
            first_bucket_bytes = bucket_bytes if self._buckets else FIRST_BUCKET_BYTES
            sizes = [(parameter.nbytes, parameter.dtype) for parameter in parameters]
            return plan_buckets(sizes, bucket_bytes, first_bucket_bytes)
        if isinstance(groups, int):
            return plan_equal_groups([parameter.nbytes for parameter in parameters], groups)
        return plan_explicit_groups(parameters, groups)

    def _make_bucket(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> Bucket:
        label = f"{self._options.label}.bucket.{len(self._buckets)}"
        name, parameter = parameters[0]
        if self._travels_apart(parameter):
            view = torch.zeros_like(parameter, requires_grad=False)
            return Bucket(
                label, [], [Slot(name, self._message(name), parameter, view, apart=True)], 1
            )
        flats: list[Flat] = []
        slots: list[Slot] = []
        by_dtype = sorted(parameters, key=lambda named: str(named[1].dtype))
        for dtype, same in groupby(by_dtype, key=lambda named: named[1].dtype):
            members = list(same)
            lengths = [parameter.numel() for _, parameter in members]
            flat = torch.from_numpy(farandole.empty(sum(lengths) * dtype.itemsize, "uint8"))
            flat = flat.view(dtype)
            messages = [self._message(name) for name, _ in members]
            if len(members) > 1:
                # Its first gradient has this name, too, when it travels by itself: so ranks that
                # disagree on what is sparse, of which some send no flat, find out.
                messages[0] += f" to {members[-1][0]}"
            flats.append(Flat(messages[0], flat))
            parts = zip(members, messages, flat.split(lengths), strict=True)
            for (name, parameter), message, part in parts:
                slots.append(Slot(name, message, parameter, part.view(parameter.shape)))
        if len(slots) == 1 and self._groups is not None:
            label = ""  # in no group, so that the coordinator may fuse it with others
        return Bucket(label, flats, slots, len(slots))

    def _watch(self, slot: Slot) -> None:
        parameter = slot.parameter
        ready = _weak_hook(self, slot, GradientExchange._gradient_ready)
        self._hooks.append(parameter.register_post_accumulate_grad_hook(ready))
        if parameter.dim() > 1:  # it may be that of an embedding
            comes = _weak_hook(self, slot, GradientExchange._gradient_comes)
            slot.kind_hook = parameter.register_hook(comes)
            self._hooks.append(slot.kind_hook)

    def layout(self) -> list[str]:
        """The buckets in words, the same on all ranks that can work together."""
        return [
            f"bucket {index} has '{slot.name}' of dtype {slot.parameter.dtype} and shape "
            f"{list(slot.parameter.shape)}"
            for index, bucket in enumerate(self._buckets)
            for slot in bucket.slots
        ]

    def finish(self) -> None:
        """Ends the step: sends what is left, waits for all, leaves the result in the gradients."""
        if not self._buckets:
            return
        self.meter.begin_waiting()
        self._send([bucket for bucket in self._buckets if bucket.handle is None])
        failure = first_failure(
            [bucket.handle for bucket in self._buckets if bucket.handle is not None]
        )
        if failure is not None:
            self.start_over()
            raise failure
        for bucket in self._buckets:
            self._receive(bucket)
        self.meter.end_step(self.byte_count)
        self.start_over()
        self.finished = True

    def zero(self) -> None:
        """Zeroes every gradient in place."""
        for bucket in self._buckets:
            for flat in bucket.flats:
                flat.view.zero_()
        for slot in self._slots.values():
            if self._travels_sparse(slot):
                slot.parameter.grad = None
            elif slot.apart:
                slot.zero()
            else:
                slot.show_gradient()

    def forget(self) -> None:
        """Frees gradients that their parameters are about to let go."""
        for slot in self._slots.values():
            slot.forget()

    def start_over(self) -> None:
        """Begins a step: forgets which gradients were ready."""
        self.finished = False
        self._sent = 0
        self._sends_early = early_sends_pay()
        self._taken.clear()
        self._copied.clear()
        for slot in self._ready:
            slot.passes = 0
        self._ready.clear()
        for bucket in self._buckets:
            bucket.handle = None
            bucket.sparse = []
            bucket.missing = len(bucket.slots)

    def _travels_sparse(self, slot: Slot) -> bool:
        return slot.sparse_dim > 0 and not self._options.sparse_as_dense

    def _gradient_comes(self, slot: Slot, gradient: torch.Tensor) -> None:
        """Before it is added to param.grad, where it would become dense."""
        if gradient.is_sparse and slot.sparse_dim == 0:
            slot.sparse_dim = gradient.sparse_dim()
            if self._travels_sparse(slot):
                slot.parameter.grad = None

    def _gradient_ready(self, slot: Slot, _: torch.Tensor) -> None:
        if slot.passes == self.passes:
            raise InvalidArgumentError(
                f"the gradient of '{slot.name}' was computed more than backward_passes_per_step = "
                f"{self.passes} times before step() or synchronize()"
            )
        if slot.kind_hook is not None and slot.sparse_dim == 0:
            slot.kind_hook.remove()
            slot.kind_hook = None
        self.finished = False
        if slot.passes == 0:
            self._ready.append(slot)
        slot.passes += 1
        if slot.passes == self.passes:
            bucket = self._bucket_of[slot]
            bucket.missing -= 1
            if bucket.missing == 0 and self._sends_early:
                self._send([bucket])

    def _send(self, buckets: Sequence[Bucket]) -> None:
        if self._sent == 0:
            self.meter.begin_step()
        self._sent += len(buckets)
        dense = [
            [slot for slot in bucket.slots if not self._travels_sparse(slot)] for bucket in buckets
        ]
        # Of all before the first leaves: one tensor may be the gradient of two parameters.
        _take_gradients([slot for slots in dense for slot in slots], self._taken, self._copied)
        for bucket, slots in zip(buckets, dense, strict=True):
            self._submit(bucket, slots)

    def _submit(self, bucket: Bucket, dense: Sequence[Slot]) -> None:
        """All as one group, whatever is sparse: where ranks do not agree on that, each has asked
        for everything when it fails, and reads in the error how they differ."""
        options = self._options
        # Adasum combines each gradient by itself.
        whole = len(dense) == len(bucket.slots) and options.op is not Adasum
        tasks: list[Task[Any]] = [
            self._task(each) for each in (bucket.flats if whole and bucket.flats else dense)
        ]
        label = bucket.label
        for slot in bucket.slots:
            if self._travels_sparse(slot):
                gradient = slot.sparse_gradient()
                combined = sparse_sum(gradient, slot.message, options.op, options.process_set)
                bucket.sparse.append((slot, combined))
                tasks += combined.tasks
                label += f"{' with ' if label else ''}sparse {combined.label}"
        bucket.handle = start_group(tasks, options.process_set, label)

    def _message(self, name: str) -> str:
        return f"{self._options.label}.grad.{name}"

    def _task(self, place: Slot | Flat) -> Task[torch.Tensor]:
        if place.task is not None:
            return place.task
        options, view = self._options, place.view
        compressed, context = options.compression.compress(view)
        sent = view if compressed is view else readable(compressed, place.message)
        task = allreduce_task(sent, sent, sent, options.op, options.scaling, place.message)
        if sent is view:
            if options.compression is Compressor and task.source is task.target is view:
                place.task = task
            return task
        return replace(
            task,
            finish=lambda submission: view.copy_(
                options.compression.decompress(task.finish(submission), context)
            ),
        )

    def _receive(self, bucket: Bucket) -> None:
        if bucket.sparse and bucket.handle is not None:
            gathered = bucket.handle.wait()[-2 * len(bucket.sparse) :]
            for index, (slot, combined) in enumerate(bucket.sparse):
                slot.show_gradient(combined.result(gathered[2 * index : 2 * index + 2]))
        for slot in bucket.slots:
            if slot.sparse_dim == 0:
                slot.show_gradient()
            elif self._options.sparse_as_dense:
                slot.show_gradient(slot.view.to_sparse(slot.sparse_dim))


def _weak_hook(
    exchange: GradientExchange,
    slot: Slot,
    method: Callable[[GradientExchange, Slot, torch.Tensor], None],
) -> Callable[[torch.Tensor], None]:
    """A hook that does not keep `exchange`, which removes it from its parameter when it goes."""
    reference = weakref.ref(exchange)

    def hook(tensor: torch.Tensor) -> None:
        owner = reference()
        if owner is not None:
            method(owner, slot, tensor)

    return hook
