# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that calls what waits for the end of requests."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from farandole import _native
from farandole.errors import FarandoleError

Told = Callable[[FarandoleError | None], object]

_lock = threading.Lock()
_thread: threading.Thread | None = None
_numbers = itertools.count(1)  # 0 ends the thread
_waiting: dict[int, tuple[Told, Any]] = {}


def tell(told: Told, error: FarandoleError | None) -> None:
    """Calls it; what it raises is reported as that of a destructor."""
    try:
        told(error)
    except Exception as failure:
        sys.unraisablehook(
            SimpleNamespace(
                exc_type=type(failure),
                exc_value=failure,
                exc_traceback=failure.__traceback__,
                err_msg="Exception ignored in a callback of on_complete()",
                object=told,
            )
        )


def add(native: _native.Request, told: Told, kept: Any) -> None:
    """Has the thread call `told` once the operation has ended; `kept` lives until then."""
    _start()
    number = next(_numbers)
    _waiting[number] = (told, kept)
    try:
        native.on_complete(number)
    except FarandoleError:
        del _waiting[number]
        raise


def _run() -> None:
    while True:
        number, error = _native.next_completion()
        if number == 0:
            return
        told, kept = _waiting.pop(number)
        tell(told, error)
        del told, kept, error  # not until the next end


def _start() -> None:
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_run, name="farandole-completions", daemon=True)
            _thread.start()


def _stop() -> None:
    """After shutdown(), which ends everything that is in flight: it was registered later."""
    global _thread
    with _lock:
        thread, _thread = _thread, None
    if thread is not None:
        _native.end_completions()
        thread.join()


atexit.register(_stop)


def _forked() -> None:
    """In a new child, which has no such thread, and no operation that could end."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None
    _waiting.clear()


os.register_at_fork(after_in_child=_forked)
