# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where what ranks print goes: our own output, each line marked with its rank, or files."""

from __future__ import annotations

import os
import re
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LINE_BYTES_MAX = 1 << 20  # a longer line is passed on in pieces, so memory stays bounded
_SILENCE_SECONDS_MAX = 1.0  # after which a line without an end is shown as far as it goes
_UNFINISHED_SECONDS_MAX = 3.0  # and so it is when its pieces keep coming
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


class MarkedOutput:
    """Our own standard output and error with what ranks print, every visible line marked.

    A carriage return ends a line as a line feed does, so that each state of a progress bar is a
    line. A line that its rank does not end for a while is shown as far as it goes: what follows
    continues it, unless another rank has written in between.

    Errors    `failed` hears of each failed write; what could not be written is dropped.
    Memory    A line of more than _LINE_BYTES_MAX is passed on in pieces.
    """

    def __init__(self, failed: Callable[[OSError], None]) -> None:
        self._failed = failed
        self._colour = {stream: wants_colour(stream) for stream in (1, 2)}
        self._unfinished: dict[_Source, _Unfinished] = {}
        # By file, which both streams may go to: whose line has no end yet.
        self._open: dict[tuple[int, int], _Source | None] = {}

    def write(self, rank: int, stream: int, data: bytes) -> None:
        source = (rank, stream)
        line = self._unfinished.pop(source, None)
        text = line.text + data if line is not None else data
        if b"\r" in text:
            text = self._carriage_returns_as_ends(source, text)
        lines = text.split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES_MAX:
            self._put(source, lines, rest)
        else:
            if lines:
                self._put(source, lines)
            if rest:
                now = time.monotonic()
                begun = line.begun if line is not None and not lines else now
                self._unfinished[source] = _Unfinished(rest, begun, now)

    def seconds_to_show(self) -> float | None:
        """Until show_unfinished() has something to do; None: there is nothing."""
        if not self._unfinished:
            return None
        return max(0.0, min(line.due for line in self._unfinished.values()) - time.monotonic())

    def show_unfinished(self) -> None:
        """Shows the lines that have waited long enough for their end."""
        now = time.monotonic()
        for source in [source for source, line in self._unfinished.items() if line.due <= now]:
            text = self._unfinished.pop(source).text
            if text.endswith(b"\r"):
                self._put(source, [text[:-1]])
            else:
                self._put(source, [], text)

    def finish(self, rank: int, stream: int) -> None:
        """The rank writes no more: ends its line."""
        source = (rank, stream)
        line = self._unfinished.pop(source, None)
        if line is not None:
            self._put(source, [line.text.removesuffix(b"\r")])
        elif self._open.get(_file_of(stream)) == source:
            self._put(source, [b""])

    def break_lines(self) -> None:
        """Before something else is written: ends what is shown of unfinished lines."""
        for source in [source for source in self._open.values() if source is not None]:
            self._put(source, [b""])

    def close(self) -> None:
        """Ends all lines. Idempotent."""
        for rank, stream in [*self._unfinished, *filter(None, self._open.values())]:
            self.finish(rank, stream)

    def _carriage_returns_as_ends(self, source: _Source, text: bytes) -> bytes:
        last = text.endswith(b"\r")  # the line feed may come
        text = text.removesuffix(b"\r").replace(b"\r\n", b"\n")
        # Before a line is anything on it, they end none: many progress bars begin with one.
        begun = self._open.get(_file_of(source[1])) == source
        text = re.sub(rb"(\n)\r+" if begun else rb"(^|\n)\r+", rb"\1", text)
        text = re.sub(rb"\r+", b"\n", text)
        at_start = text.endswith(b"\n") or (not text and not begun)
        return text + b"\r" if last and not at_start else text

    def _put(self, source: _Source, lines: list[bytes], unfinished: bytes = b"") -> None:
        rank, stream = source
        file = _file_of(stream)
        mark = prefix(rank, self._colour[stream])
        text = b"".join(mark + line + b"\n" for line in lines)
        if unfinished:
            text += mark + unfinished
        owner = self._open.get(file)
        if owner == source:
            text = text.removeprefix(mark)
        elif owner is not None:
            text = b"\n" + text
        self._open[file] = source if unfinished else None
        try:
            write_all(stream, text)
        except OSError as error:
            self._failed(error)


_Source = tuple[int, int]  # a rank, and 1 for its standard output or 2 for its standard error


@dataclass(frozen=True)
class _Unfinished:
    text: bytes
    begun: float  # on the clock of time.monotonic()
    last: float

    @property
    def due(self) -> float:
        return min(self.last + _SILENCE_SECONDS_MAX, self.begun + _UNFINISHED_SECONDS_MAX)


class MarkedStream(RankStream):
    """Passes on what comes to `output`."""

    def __init__(self, output: MarkedOutput, rank: int, source_fd: int, target_fd: int) -> None:
        super().__init__(source_fd)
        self._output = output
        self._place = (rank, target_fd)

    def take(self, data: bytes) -> None:
        self._output.write(*self._place, data)

    def close(self) -> None:
        if self.open:
            self._output.finish(*self._place)
        super().close()


@dataclass(frozen=True)
class OutputFolder:
    """A folder with a file for each stream of each rank."""

    path: Path
    as_horovodrun: bool = False  # rank.03/stdout instead of rank-3.out

    def file(self, rank: int, stream: int, rank_count: int) -> Path:
        if not self.as_horovodrun:
            return self.path / f"rank-{rank}.{'out' if stream == 1 else 'err'}"
        digits = len(str(rank_count - 1))
        return self.path / f"rank.{rank:0{digits}}" / ("stdout" if stream == 1 else "stderr")

    def open(self, rank: int, stream: int, rank_count: int) -> int:
        """A descriptor of the empty file, whose folders are made."""
        path = self.file(rank, stream, rank_count)
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


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
