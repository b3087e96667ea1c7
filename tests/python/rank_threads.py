# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of this process, over real engines."""

from __future__ import annotations

import threading
from collections.abc import Callable

from farandole import _native
from farandole.core.communicator import Communicator

SIZE = 3


def on_ranks(
    body: Callable[[Communicator], None], transport: str = "inproc", size: int = SIZE
) -> None:
    """Runs `body` on `size` ranks; the first exception of any rank is raised here."""
    on_contexts(lambda context: body(Communicator(context.world)), transport, size)


def on_contexts(
    body: Callable[[_native.Context], None], transport: str = "inproc", size: int = SIZE
) -> None:
    """on_ranks() of what needs more than a communicator."""
    contexts = _native.inproc(size, True, transport)
    failures: list[BaseException] = []

    def run(context: _native.Context) -> None:
        try:
            body(context)
        except BaseException as failure:
            failures.append(failure)
            context.shutdown()  # the others must not wait for this rank

    threads = [threading.Thread(target=run, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs: " + "".join(c.dump() for c in contexts)
    for context in contexts:
        context.shutdown()
    if failures:
        raise failures[0]
