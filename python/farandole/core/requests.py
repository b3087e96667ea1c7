# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Operations in flight."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from farandole import _native
from farandole.core import completions
from farandole.core.devices import Place
from farandole.errors import FarandoleError, InvalidArgumentError

# Operations whose Request was dropped while they ran, with their arrays, which the library still
# reads and writes. Appending and popping are atomic.
_dropped: deque[tuple[_native.Request, Any, Any]] = deque()


def _ended(native: _native.Request) -> bool:
    try:
        return native.test()
    except FarandoleError:
        return True


class Request:
    """An operation in flight; keeps its arrays alive until it ended, also when it is dropped."""

    __slots__ = ("_kept", "_native", "_place", "_result", "_scalar")

    def __init__(
        self,
        native: _native.Request,
        kept: Any,
        result: Any,
        scalar: bool = False,
        place: Place | None = None,
    ) -> None:
        self._native = native
        self._kept = kept
        self._result = result
        self._scalar = scalar
        self._place = place
        for _ in range(len(_dropped)):
            with contextlib.suppress(IndexError):  # another thread was quicker
                kept = _dropped.popleft()
                if not _ended(kept[0]):
                    _dropped.append(kept)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # shutdown() has ended everything; Python can import and raise no more
        if not _ended(self._native):
            _dropped.append((self._native, self._kept, self._result))

    def wait(self) -> Any:
        """Blocks, without the GIL, until the operation ended; returns its result array. For arrays
        of a GPU it returns at once: what its library's current stream is given later comes after
        the operation, and an error that is not known yet raises on the next call."""
        if self._place is None:
            return self.synchronize()
        self._native.order(self._place.current())
        return self._result

    def synchronize(self) -> Any:
        """Blocks, without the GIL, until the operation ended, on a GPU as well; returns its result
        array."""
        self._native.wait()
        return self._result[()] if self._scalar else self._result

    def test(self) -> bool:
        """True once it ended. Does not block."""
        return self._native.test()

    def on_complete(self, told: Callable[[FarandoleError | None], object]) -> None:
        """Calls told(error) once, with None if all went well: at once, on this thread, if the
        operation has ended; else on a thread of the library's for all such calls, in the order in
        which operations end. There wait() returns at once; `told` should not wait for other
        operations, since it holds up other calls. What it raises goes to sys.unraisablehook."""
        if not callable(told):
            raise InvalidArgumentError(f"argument 'told' is {told!r}, allowed is a function.")
        try:
            ended, error = self._native.test(), None
        except FarandoleError as failure:
            ended, error = True, failure
        if ended:
            completions.tell(told, error)
        else:
            completions.add(self._native, told, self)
