# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors as a coordinator is told of them, and checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import torch

from farandole import _native
from farandole.errors import InvalidArgumentError, UnsupportedError
from farandole.torch.reduction import UNSCALED, Scaling

# PyTorch says in the name that its float8_e4m3 has no infinities, as ours has none.
_TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn"}
_DTYPES = {
    getattr(torch, _TORCH_NAMES.get(name, name)): dtype
    for name, dtype in _native.DType.__members__.items()
}
Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, eq=False)
class Task(Generic[Result]):
    """A named tensor, what is to be done with it, and how its result is made in the end."""

    collective: _native.Collective
    name: str
    source: torch.Tensor  # contiguous
    target: torch.Tensor | None  # contiguous; None: the library allocates the result
    finish: Callable[[_native.Submission], Result]
    scaling: Scaling = UNSCALED
    adasum: bool = False
    root: int = 0  # in the process set
    splits: Sequence[int] = ()

    @cached_property
    def native(self) -> _native.TensorCall:
        """What the coordinator is told."""
        return _native.TensorCall(
            name=self.name,
            collective=self.collective,
            reduction=self.scaling.reduction,
            adasum=self.adasum,
            dtype=_DTYPES[self.source.dtype],
            shape=list(self.source.shape),
            root=self.root,
            prescale=self.scaling.prescale,
            postscale=self.scaling.postscale,
            leaves_out_joined=self.scaling.leaves_out_joined,
            splits=list(self.splits),
            input=self.source.data_ptr(),
            output=0 if self.target is None else self.target.data_ptr(),
        )


def result_of(submission: _native.Submission, dtype: torch.dtype) -> torch.Tensor:
    """The memory that the library allocated for a result, as a tensor that owns it."""
    shape = submission.shape
    if submission.data is None or math.prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(submission.data, dtype=torch.uint8).view(dtype).view(shape)


def check_tensor(tensor: torch.Tensor, caller: str) -> None:
    """Raises unless `tensor` is dense, on the CPU and of a dtype that the library moves."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(
            f"{caller}: tensor is a {type(tensor).__name__}, allowed is a torch.Tensor"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{caller}: tensor is on device {tensor.device}, allowed is cpu")
    if tensor.layout != torch.strided:
        raise UnsupportedError(
            f"{caller}: tensor has layout {tensor.layout}, allowed is torch.strided"
        )
    if tensor.dtype not in _DTYPES:
        allowed = ", ".join(_native.DTYPES)
        raise UnsupportedError(f"{caller}: tensor has dtype {tensor.dtype}, allowed are {allowed}")


def check_rows(tensor: torch.Tensor, caller: str) -> None:
    """Raises for a scalar, which has no first dimension to divide or to add up."""
    if tensor.dim() == 0:
        raise InvalidArgumentError(f"{caller}: tensor has 0 dimensions, allowed is 1 or more")


def readable(tensor: torch.Tensor, caller: str) -> torch.Tensor:
    """`tensor`, or a copy of it, whose memory holds its elements in order."""
    check_tensor(tensor, caller)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def writable(tensor: torch.Tensor, caller: str) -> torch.Tensor:
    """`tensor` detached, sharing memory; raises if its memory is not its elements in order."""
    check_tensor(tensor, caller)
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"{caller}: tensor of shape {list(tensor.shape)} with strides {list(tensor.stride())} "
            "is not contiguous; allowed in place are contiguous tensors"
        )
    return tensor.detach()
