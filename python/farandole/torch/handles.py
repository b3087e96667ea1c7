# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors on their way: argument checks, submission to a coordinator, handles."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import torch

from farandole import _native
from farandole.coordination.process_sets import NamedCall, ProcessSet, barrier_call
from farandole.core.arrays import COLLECTIVE_INDEX, DTYPE_INDEX, REDUCTION_INDEX
from farandole.errors import FarandoleError, InvalidArgumentError, UnsupportedError
from farandole.torch.reduction import UNSCALED, Scaling

# PyTorch says in the name that its float8_e4m3 has no infinities, as ours has none.
_TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn"}
_DTYPES = {
    getattr(torch, _TORCH_NAMES.get(name, name)): index for name, index in DTYPE_INDEX.items()
}
Result = TypeVar("Result", covariant=True)
Other = TypeVar("Other")


@dataclass(frozen=True, eq=False)
class Task(Generic[Result]):
    """A named tensor, what is to be done with it, and how its result is made in the end."""

    collective: str
    name: str
    source: torch.Tensor  # contiguous
    target: torch.Tensor | None  # contiguous; None: the library allocates the result
    finish: Callable[[_native.Submission], Result]
    scaling: Scaling = UNSCALED
    adasum: bool = False
    root: int = 0  # in the process set
    splits: Sequence[int] = ()

    @cached_property
    def native(self) -> NamedCall:
        """What the coordinator is told."""
        return (
            self.name,
            COLLECTIVE_INDEX[self.collective],
            REDUCTION_INDEX[self.scaling.reduction],
            self.adasum,
            _DTYPES[self.source.dtype],
            list(self.source.shape),
            self.root,
            self.scaling.native,
            list(self.splits),
            self.source.data_ptr(),
            0 if self.target is None else self.target.data_ptr(),
        )


class Handle(Generic[Result]):
    """An operation in flight; owns its tensors until it is over, even when it is dropped early."""

    def __init__(
        self,
        submissions: Sequence[_native.Submission],
        finish: Callable[[], Result],
        kept: object,
    ) -> None:
        self._submissions = submissions
        self._finish: Callable[[], Result] | None = finish
        self._kept = kept
        self._result: Any = None

    def done(self) -> bool:
        """True when finished; raises what the operation failed with. Does not block."""
        return self._finish is None or all(each.test() for each in self._submissions)

    def wait(self) -> Result:
        """The result. Blocks without the GIL; a second call returns the same.

        Raises the first error after everything is over, when names may be used again.
        """
        if self._finish is not None:
            failure = first_failure(self._submissions)
            if failure is not None:
                raise failure
            self._result = self._finish()
            self._finish = self._kept = None
        result: Result = self._result
        return result

    def __call__(self) -> Result:
        """wait(), since Horovod's sparse_allreduce_async() returns something to call."""
        return self.wait()

    def then(self, convert: Callable[[Result], Other]) -> Handle[Other]:
        """A handle of the same operation whose result is converted in the end."""
        return Handle(self._submissions, lambda: convert(self.wait()), self)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # shutdown() has ended everything; Python can import and raise no more
        if self._finish is not None and not _are_over(self._submissions):
            _orphans.append((self._submissions, self._kept))


class _Waitable(Protocol):
    def wait(self) -> object: ...


def _failure_of(operation: _Waitable) -> FarandoleError | None:
    try:
        operation.wait()
    except FarandoleError as failure:
        return failure
    return None


def first_failure(operations: Sequence[_Waitable]) -> FarandoleError | None:
    """Waits until all are over, for the last one first: then it mostly wakes only once."""
    failures = [_failure_of(operation) for operation in reversed(operations)]
    return next((failure for failure in reversed(failures) if failure is not None), None)


# Operations whose handle was dropped before the end: their memory is still being written.
# Appending and popping are atomic.
_orphans: deque[tuple[Sequence[_native.Submission], object]] = deque()


def _release_orphans() -> None:
    for _ in range(len(_orphans)):
        with contextlib.suppress(IndexError):  # another thread was quicker
            orphan = _orphans.popleft()
            if not _are_over(orphan[0]):
                _orphans.append(orphan)


def _are_over(submissions: Sequence[_native.Submission]) -> bool:
    return all(_is_over(each) for each in submissions)


def _is_over(submission: _native.Submission) -> bool:
    try:
        return submission.test()
    except FarandoleError:
        return True


def start(task: Task[Result], process_set: ProcessSet) -> Handle[Result]:
    """Submits one tensor. Does not block."""
    _release_orphans()
    submissions = process_set.coordinator.submit([task.native])
    return Handle(submissions, lambda: task.finish(submissions[0]), task)


def start_group(
    tasks: Sequence[Task[Result]], process_set: ProcessSet, group: str
) -> Handle[list[Result]]:
    """Submits tensors of which none is worked on before all are ready on every rank. A group
    without any is a barrier, so that ranks that have some find out."""
    _release_orphans()
    calls = [task.native for task in tasks] or [barrier_call(f"{group}.0")]
    submissions = process_set.coordinator.submit(calls, group)

    def finish() -> list[Result]:
        own = submissions[: len(tasks)]
        return [task.finish(each) for task, each in zip(tasks, own, strict=True)]

    return Handle(submissions, finish, tuple(tasks))


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
