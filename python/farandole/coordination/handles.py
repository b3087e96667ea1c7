# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Handles of named tensors that a coordinator works on, whatever framework they come from."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from farandole import _native
from farandole.coordination.process_sets import ProcessSet, barrier_call
from farandole.errors import FarandoleError

Result = TypeVar("Result", covariant=True)
Other = TypeVar("Other")


class Operation(Protocol[Result]):
    """What a framework submits. A handle keeps it, with the memory that it owns, to the end."""

    @property
    def native(self) -> _native.TensorCall:
        """What the coordinator is told."""

    @property
    def finish(self) -> Callable[[_native.Submission], Result]:
        """Makes the result in the end."""


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


def start(operation: Operation[Result], process_set: ProcessSet) -> Handle[Result]:
    """Submits one named tensor. Does not block."""
    _release_orphans()
    submissions = process_set.coordinator.submit([operation.native])
    return Handle(submissions, lambda: operation.finish(submissions[0]), operation)


def start_group(
    operations: Sequence[Operation[Result]], process_set: ProcessSet, group: str
) -> Handle[list[Result]]:
    """Submits tensors of which none is worked on before all are ready on every rank. A group
    without any is a barrier, so that ranks that have some find out."""
    _release_orphans()
    calls = [each.native for each in operations] or [barrier_call(f"{group}.0")]
    submissions = process_set.coordinator.submit(calls, group)

    def finish() -> list[Result]:
        own = submissions[: len(operations)]
        return [
            operation.finish(submission)
            for operation, submission in zip(operations, own, strict=True)
        ]

    return Handle(submissions, finish, tuple(operations))
