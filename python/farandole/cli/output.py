# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Passes on what ranks print, line by line, each line marked with its rank."""

from __future__ import annotations

import os
import select
from abc import ABC, abstractmethod

_LINE_BYTES_MAX = 1 << 20  # a longer line is passed on in pieces, so memory stays bounded
_READ_BYTES = 1 << 16
PIPE_READS_MAX = 16  # reads that empty even a pipe of the largest size, 1 MiB
_COLOURS = (36, 33, 32, 35, 34, 31)


class RankStream(ABC):
    """One output stream of one rank, read from a pipe; take() says what becomes of it."""

    def __init__(self, source_fd: int) -> None:
        self.source_fd = source_fd
        os.set_blocking(source_fd, False)

    @property
    def open(self) -> bool:
        return self.source_fd >= 0

    def pump(self) -> bool:
        """Passes on one read's worth; False once there is nothing more for now."""
        if not self.open:
            return False
        try:
            data = os.read(self.source_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.take(data)
        return True

    @abstractmethod
    def take(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Idempotent."""
        if self.open:
            os.close(self.source_fd)
            self.source_fd = -1


class PrefixedStream(RankStream):
    """Writes what comes to `target_fd`, in whole lines."""

    def __init__(self, rank: int, source_fd: int, target_fd: int) -> None:
        super().__init__(source_fd)
        self._target_fd = target_fd
        self._prefix = prefix(rank, colour=wants_colour(target_fd))
        self._pending = b""

    def take(self, data: bytes) -> None:
        lines = (self._pending + data).split(b"\n")
        self._pending = lines.pop()
        if len(self._pending) > _LINE_BYTES_MAX:
            lines.append(self._pending)
            self._pending = b""
        self._write(lines)

    def close(self) -> None:
        """Passes on an unfinished line and closes the pipe. Idempotent."""
        if self.open and self._pending:
            self._write([self._pending])
            self._pending = b""
        super().close()

    def _write(self, lines: list[bytes]) -> None:
        try:
            write_all(self._target_fd, b"".join(self._prefix + line + b"\n" for line in lines))
        except BrokenPipeError:
            # Our reader has gone. Closing the rank's pipe tells the rank so, as it would
            # have been told without us in between.
            self._pending = b""
            super().close()


def prefix(rank: int, colour: bool) -> bytes:
    if not colour:
        return f"[{rank}] ".encode()
    return f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m[{rank}]\x1b[0m ".encode()


def wants_colour(fd: int) -> bool:
    return os.isatty(fd) and not os.environ.get("NO_COLOR")


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        select.select([], [fd], [])  # whoever shares our terminal may have made it non-blocking
        view = view[os.write(fd, view) :]
