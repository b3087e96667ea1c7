# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where gradients lie, and what travels of them.

Anybody may move a gradient at any time: Module.to(), share_memory(), `p.grad.data = …` and others
leave the tensor object what it was and give it other memory. So nothing that was true of param.grad
in the last step is taken to be true in this one. What travels is a tensor that nobody else has, the
slot's view; before it does, param.grad is compared with it by address, dtype, shape and strides,
and the parameter by dtype and shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from farandole import _native
from farandole.coordination.handles import Handle
from farandole.errors import InvalidArgumentError
from farandole.torch.sparse import SparseSum
from farandole.torch.tasks import Task, check_tensor


@dataclass(eq=False)
class Seen:
    """A gradient as it was when backward() had computed it."""

    gradient: torch.Tensor
    version: int
    address: int

    @staticmethod
    def of(gradient: torch.Tensor) -> Seen:
        return Seen(gradient, gradient._version, _address(gradient))

    def is_still(self, gradient: torch.Tensor | None) -> bool:
        """Whether nobody has touched, moved or replaced it since."""
        return (
            gradient is self.gradient
            and gradient._version == self.version
            and _address(gradient) == self.address
        )


@dataclass(eq=False)
class Slot:
    """A parameter's place in a bucket."""

    name: str
    parameter: torch.Tensor
    apart: bool = False  # travels from where autograd put it, if it lies there in order
    message: str = ""  # name under which it travels
    # What travels: contiguous, nobody else's; without elements if it is apart and has no gradient.
    view: torch.Tensor = field(default_factory=lambda: torch.empty(0), repr=False)
    sparse_dim: int = 0  # of its gradients; 0: they are dense
    task: Task[torch.Tensor] | None = field(default=None, repr=False)  # if each step has the same
    seen: Seen | None = field(default=None, repr=False)  # its gradient, in this backward()
    result: torch.Tensor | None = field(default=None, repr=False)  # what the last exchange left
    base: torch.Tensor | None = field(default=None, repr=False)  # that, while the next goes on
    identity: int = 0  # of the parameter's own memory, to which hooks belong
    # Looks whether gradients are sparse, until a dense one has come.
    kind_hook: torch.utils.hooks.RemovableHandle | None = field(default=None, repr=False)
    _shown: torch.Tensor | None = field(default=None, repr=False)  # the view, for param.grad

    @property
    def is_bound(self) -> bool:
        """Whether the parameter is what the view was made for."""
        parameter, view = self.parameter, self.view
        return parameter.dtype is view.dtype and (
            parameter.shape == view.shape or (self.apart and view.numel() == 0)
        )

    def bind(self, view: torch.Tensor) -> None:
        """Gives it another view."""
        self.view, self.task, self._shown = view, None, None

    def take(self, copies: list[tuple[int, int, int]], taken: set[int]) -> None:
        """Gives the view the value that param.grad has; None is zero. What lies in memory as the
        view does is appended to `copies` instead. A gradient that is apart becomes the view, unless
        its address is among `taken`, to which the view's is added."""
        gradient, view = self.parameter.grad, self.view
        strided = gradient is not None and gradient.layout is torch.strided
        if gradient is not None and strided and gradient.numel() > 0 and not _address(gradient):
            raise InvalidArgumentError(
                f"the gradient of '{self.name}' has no memory: its storage was freed or is not "
                "a CPU's; allowed is None or a gradient with a value"
            )
        if self.apart:
            self._take_apart(gradient, taken)
            return
        if gradient is None:
            view.zero_()
        elif not lies_at(gradient, view):
            if _lies_in_order(gradient, view):
                copies.append((view.data_ptr(), gradient.data_ptr(), view.nbytes))
            else:
                _copy(gradient, view)

    def _take_apart(self, gradient: torch.Tensor | None, taken: set[int]) -> None:
        if gradient is None or not _lies_in_order(gradient, self.parameter):
            self.bind(torch.empty(self.parameter.shape, dtype=self.parameter.dtype))
            if gradient is None:
                self.view.zero_()
            else:
                _copy(gradient, self.view)
        elif gradient.requires_grad or gradient.data_ptr() in taken:
            self.bind(gradient.detach().clone())
        elif not lies_at(gradient, self.view):
            self.bind(gradient.data)
        taken.add(self.view.data_ptr())

    def show(self) -> None:
        """Makes param.grad what the view holds, in place if it is there already; that of a frozen
        parameter None, so that it stays put."""
        parameter, view = self.parameter, self.view
        gradient = parameter.grad
        if not parameter.requires_grad:
            parameter.grad = None
        elif gradient is None or gradient.requires_grad or not lies_at(gradient, view):
            if parameter.is_contiguous():
                if self._shown is None or not lies_at(self._shown, view):
                    # Without view.data it would be a view, which detach_() refuses, and share the
                    # count of changes with all gradients of its bucket.
                    self._shown = view.data
                parameter.grad = self._shown
            else:  # as autograd lays it out, which fused optimizers rely on
                parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(view)

    def set_aside(self) -> None:
        """Keeps what an earlier exchange has left in param.grad until the next one is over."""
        gradient = self.parameter.grad
        if self.base is None and gradient is not None and gradient is self.result:
            self.base = gradient.clone()  # the next result may come to lie in its memory
            self.parameter.grad = None

    def add_base(self) -> None:
        """Adds to param.grad what was set aside."""
        base, gradient = self.base, self.parameter.grad
        if base is not None and gradient is not None:
            self.parameter.grad = gradient + base if gradient.is_sparse else gradient.add_(base)
        self.base, self.result = None, self.parameter.grad

    def zero(self) -> None:
        """Makes param.grad zeros, in place if it has memory."""
        gradient = self.parameter.grad
        if self.is_bound and (gradient is None or lies_at(gradient, self.view)):
            if self.view.shape != self.parameter.shape:
                self.bind(torch.empty(self.parameter.shape, dtype=self.parameter.dtype))
            self.view.zero_()
            self.show()
        elif gradient is not None:
            if gradient.requires_grad:
                self.parameter.grad = gradient = gradient.data
            gradient.zero_()

    def forget(self) -> None:
        """Frees a gradient that is apart, which nobody wants any more."""
        if self.apart:
            self.bind(self.parameter.detach().new_empty(0))
        self.result = self.base = None

    def sparse_gradient(self) -> torch.Tensor:
        """param.grad as a sparse tensor; None is one without elements."""
        gradient, shape = self.parameter.grad, self.parameter.shape
        if gradient is None:
            indices = torch.empty((self.sparse_dim, 0), dtype=torch.int64)
            values = self.view.new_empty((0, *shape[self.sparse_dim :]))
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
        return gradient if gradient.is_sparse else gradient.to_sparse(self.sparse_dim)


def _address(gradient: torch.Tensor) -> int:
    return gradient.data_ptr() if gradient.layout is torch.strided and gradient.is_cpu else 0


def _copy(gradient: torch.Tensor, view: torch.Tensor) -> None:
    value = gradient.detach()  # or the view would be of the graph that made it
    view.copy_(value if value.layout is torch.strided else value.to_dense())


def _lies_in_order(gradient: torch.Tensor, like: torch.Tensor) -> bool:
    """Whether its memory holds what is to travel, as it is to travel."""
    return (
        gradient.layout is torch.strided
        and gradient.is_cpu
        and gradient.dtype is like.dtype
        and gradient.shape == like.shape
        and gradient.is_contiguous()
        and not gradient.is_neg()
        and not gradient.is_conj()
    )


def lies_at(gradient: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether both are the same elements of the same memory."""
    # The address first: mostly it differs, and nothing else need be looked at.
    return _address(gradient) == view.data_ptr() and _lies_in_order(gradient, view)


def take_gradients(slots: Sequence[Slot], taken: set[int]) -> None:
    """Slot.take() of all; what lies in memory as its view does is copied without torch in between,
    as to memory, since it would not stay in the caches until it is summed."""
    copies: list[tuple[int, int, int]] = []
    for slot in slots:
        slot.take(copies, taken)
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
    slots: list[Slot]
    flats: list[Flat] = field(default_factory=list, repr=False)  # none if the gradient is apart
    missing: int = 0  # slots whose gradient is not complete in this round
    rounds: int = 0  # in which it has travelled in this step
    handle: Handle[list[Any]] | None = field(default=None, repr=False)  # on its way
    sparse: list[tuple[Slot, SparseSum]] = field(default_factory=list, repr=False)  # its last tasks

    @property
    def byte_count(self) -> int:
        return sum(slot.parameter.nbytes for slot in self.slots)

    @property
    def is_bound(self) -> bool:
        return all(slot.is_bound for slot in self.slots)

    def check(self) -> None:
        """Raises if a parameter cannot travel."""
        for slot in self.slots:
            check_tensor(slot.parameter, f"parameter '{slot.name}'")


def reusable(place: Slot | Flat) -> Task[torch.Tensor] | None:
    """The task of an earlier step, if the memory of which it has the address is still the place's:
    that of a storage can be exchanged (share_memory_())."""
    task = place.task
    address = place.view.data_ptr()
    if task is None or task.native.input != address or task.native.output != address:
        return None
    return task
