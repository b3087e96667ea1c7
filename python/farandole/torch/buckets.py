# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients in buckets of library-owned memory, sent while the backward pass still runs.

Every `param.grad` is a view into a bucket, so that a bucket is one allreduce without copies.
Buckets go out in one fixed order, the same on every rank: one that is ready early waits for
those before it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

import farandole
from farandole.errors import InvalidArgumentError
from farandole.torch.meter import Meter
from farandole.torch.tensors import Handle, Operation, Scaling, check_tensor

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


@dataclass(eq=False)
class Slot:
    """A parameter's place in a bucket."""

    name: str
    parameter: torch.Tensor
    view: torch.Tensor
    passes_left: int

    def show_gradient(self) -> None:
        """Makes param.grad the view; that of a frozen parameter None, so that it stays put."""
        shown = self.view if self.parameter.requires_grad else None
        if self.parameter.grad is not shown:
            self.parameter.grad = shown

    def take_gradient(self) -> None:
        """Makes param.grad the view, with the value that param.grad has; None is zero."""
        gradient = self.parameter.grad
        if gradient is self.view:
            return
        if gradient is None:
            self.view.zero_()
        else:
            self.view.copy_(gradient.detach().to_dense() if gradient.is_sparse else gradient)
        self.parameter.grad = self.view


@dataclass(eq=False)
class Bucket:
    """Contiguous gradients of one dtype that travel together."""

    flat: torch.Tensor
    slots: list[Slot]
    missing: int = 0  # slots whose gradient is not complete in this step
    handle: Handle | None = field(default=None, repr=False)


def plan_buckets(
    sizes: Sequence[tuple[int, torch.dtype]], bucket_bytes: int, first_bucket_bytes: int
) -> list[list[int]]:
    """Indices of the parameters in each bucket, the last parameter first.

    The backward pass makes the gradients of the last parameters first. A bucket has one dtype and
    at most `bucket_bytes`, unless it is a single larger parameter; the first one to fill has
    `first_bucket_bytes`, so that communication starts early. Buckets are ordered by the point of
    the backward pass at which they are complete.
    """
    filling: dict[torch.dtype, tuple[list[int], int]] = {}
    filled: list[list[int]] = []
    for index in reversed(range(len(sizes))):
        byte_count, dtype = sizes[index]
        limit = bucket_bytes if filled else min(first_bucket_bytes, bucket_bytes)
        bucket, bucket_size = filling.get(dtype, ([], 0))
        if bucket and bucket_size + byte_count > limit:
            filled.append(bucket)
            bucket, bucket_size = [], 0
        bucket.append(index)
        filling[dtype] = (bucket, bucket_size + byte_count)
    filled.extend(bucket for bucket, _ in filling.values())
    return sorted(filled, key=lambda bucket: -bucket[-1])


def _make_bucket(parameters: Sequence[tuple[str, torch.Tensor]], passes: int) -> Bucket:
    dtype = parameters[0][1].dtype
    lengths = [parameter.numel() for _, parameter in parameters]
    flat = torch.from_numpy(farandole.empty(sum(lengths) * dtype.itemsize, "uint8")).view(dtype)
    slots = [
        Slot(name, parameter, part.view(parameter.shape), passes)
        for (name, parameter), part in zip(parameters, flat.split(lengths), strict=True)
    ]
    return Bucket(flat, slots)


class GradientExchange:
    """Watches the gradients of some parameters become ready and averages them over the ranks.

    A step is `passes` backward passes followed by finish(). A parameter without a gradient, used
    nowhere in this rank's backward pass, takes part with zeros.

    Threads  the hooks run on the thread of the backward pass; the other calls must not overlap
             with it.
    Errors   what an allreduce failed with is raised by the hook that meets it, through backward(),
             or by finish().
    """

    def __init__(self, scaling: Scaling, passes: int, bucket_bytes: int) -> None:
        self.meter = Meter()
        self.finished = False  # finish() ran, and neither start_over() nor backward() since
        self._scaling = scaling
        self._passes = passes
        self._bucket_bytes = bucket_bytes
        self._buckets: list[Bucket] = []
        self._slots: dict[torch.Tensor, Slot] = {}
        self._bucket_of: dict[Slot, Bucket] = {}
        self._sent = 0  # buckets on their way in this step
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __del__(self) -> None:
        for hook in self._hooks:
            hook.remove()

    @property
    def in_flight(self) -> bool:
        return self._sent > 0

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return parameter in self._slots

    def add(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Appends buckets for more parameters and points their gradients there."""
        for name, parameter in parameters:
            check_tensor(parameter, f"parameter '{name}'")
        sizes = [(parameter.nbytes, parameter.dtype) for _, parameter in parameters]
        first_bucket_bytes = self._bucket_bytes if self._buckets else FIRST_BUCKET_BYTES
        for indices in plan_buckets(sizes, self._bucket_bytes, first_bucket_bytes):
            bucket = _make_bucket([parameters[index] for index in indices], self._passes)
            self._buckets.append(bucket)
            for slot in bucket.slots:
                slot.take_gradient()
                self._slots[slot.parameter] = slot
                self._bucket_of[slot] = bucket
                hook = _weak_hook(self, slot)
                self._hooks.append(slot.parameter.register_post_accumulate_grad_hook(hook))
            bucket.missing = len(bucket.slots)

    def layout(self) -> list[str]:
        """The buckets in words, the same on all ranks that can work together."""
        return [
            f"bucket {index} has '{slot.name}' of dtype {slot.parameter.dtype} and shape "
            f"{list(slot.parameter.shape)}"
            for index, bucket in enumerate(self._buckets)
            for slot in bucket.slots
        ]

    def send_rest(self) -> None:
        """Sends the buckets that wait for gradients, as they are."""
        for bucket in self._buckets[self._sent :]:
            self._send(bucket)

    def finish(self) -> None:
        """Ends the step: sends what is left, waits for all, leaves the result in the gradients."""
        if not self._buckets:
            return
        self.meter.begin_waiting()
        self.send_rest()
        for bucket in self._buckets:
            assert bucket.handle is not None
            bucket.handle.wait()
        for slot in self._slots.values():
            slot.show_gradient()
        self.meter.end_step(sum(bucket.flat.nbytes for bucket in self._buckets))
        self.start_over()
        self.finished = True

    def zero(self) -> None:
        """Zeroes every gradient in place."""
        for bucket in self._buckets:
            bucket.flat.zero_()
        for slot in self._slots.values():
            slot.show_gradient()

    def start_over(self) -> None:
        """Begins a step: forgets which gradients were ready."""
        self._sent = 0
        self.finished = False
        for bucket in self._buckets:
            bucket.handle = None
            bucket.missing = len(bucket.slots)
        for slot in self._slots.values():
            slot.passes_left = self._passes

    def _gradient_ready(self, slot: Slot) -> None:
        if slot.passes_left == 0:
            raise InvalidArgumentError(
                f"the gradient of '{slot.name}' was computed more than backward_passes_per_step = "
                f"{self._passes} times before step() or synchronize()"
            )
        self.finished = False
        slot.passes_left -= 1
        if slot.passes_left == 0:
            self._bucket_of[slot].missing -= 1
            while self._sent < len(self._buckets) and self._buckets[self._sent].missing == 0:
                self._send(self._buckets[self._sent])

    def _send(self, bucket: Bucket) -> None:
        if self._sent == 0:
            self.meter.begin_step()
        for slot in bucket.slots:
            slot.take_gradient()
        flat, after = bucket.flat, self._scaling.after
        bucket.handle = Operation(
            "allreduce",
            flat,
            flat,
            flat.numel(),
            lambda: flat.mul_(after) if after != 1.0 else flat,
            self._scaling.reduction,
            self._scaling.factor,
            name=f"gradient bucket {self._sent}",
        ).start()
        self._sent += 1


def _weak_hook(exchange: GradientExchange, slot: Slot) -> Callable[[torch.Tensor], None]:
    """A hook that leaves its parameter when `exchange` goes: the parameter does not own it."""
    exchange_reference, slot_reference = weakref.ref(exchange), weakref.ref(slot)

    def hook(_: torch.Tensor) -> None:
        owner, place = exchange_reference(), slot_reference()
        if owner is not None and place is not None:
            owner._gradient_ready(place)

    return hook
