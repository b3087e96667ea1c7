# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: behind `-p` every visible line of a rank has its mark, once, whatever the rank writes and
however the pieces come; nothing is lost or held back for ever.

Method: the class itself, writing to a list in place of descriptors, with a clock of our own.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.launch import output as module
from farandole.launch.output import MarkedOutput, OutputFolder


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def refuse(error: OSError) -> None:
    raise error


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bytes]:
    """What has been written to either descriptor since the last call."""
    pieces: list[bytes] = []
    monkeypatch.setattr(module, "write_all", lambda fd, data: pieces.append(data))

    def take() -> bytes:
        data = b"".join(pieces)
        pieces.clear()
        return data

    return take


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"on", b"e\n\ntwo"], [b"one", b"", b"two"]),
        ([b"\r 0%|", b"\r50%|", b"\r100%|\n"], [b" 0%|", b"50%|", b"100%|"]),  # as tqdm's
        ([b" 0%\r", b"50%\r", b"done\n"], [b" 0%", b"50%", b"done"]),
        ([b"dos\r\nlines\r", b"\n\r\n"], [b"dos", b"lines", b""]),
        ([b"a\r\r\rb\n"], [b"a", b"b"]),
        ([b"\xff\xfe\x00\x80\n"], [b"\xff\xfe\x00\x80"]),  # no text at all
        ([b"\r"], []),
    ],
)
def test_every_visible_line_is_marked_once(
    written: Callable[[], bytes], pieces: list[bytes], lines: list[bytes]
) -> None:
    output = MarkedOutput(refuse)
    for piece in pieces:
        output.write(3, 1, piece)
    output.close()
    assert written() == b"".join(b"[3] " + line + b"\n" for line in lines)


# Goal: what comes out does not depend on how the bytes were cut.
@given(st.text(alphabet="ab\r\n", max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_cuts_do_not_show(text: str, cuts: list[int]) -> None:
    results = []
    for places in ([], sorted(cuts)):
        pieces: list[bytes] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "write_all", lambda fd, data, to=pieces: to.append(data))
            output = MarkedOutput(refuse)
            for low, high in zip([0, *places], [*places, len(text)], strict=True):
                output.write(0, 1, text[low:high].encode())
            output.close()
        results.append(b"".join(pieces).decode())
    assert results[0] == results[1]
    shown = results[0].replace("[0] ", "")
    assert "\r" not in shown
    assert shown.replace("\n", "") == re.sub("[\r\n]", "", text)


def test_an_unfinished_line_is_shown_after_a_while(
    written: Callable[[], bytes], clock: Clock
) -> None:
    output = MarkedOutput(refuse)
    output.write(0, 1, b"epoch 1 ...")
    assert output.seconds_to_show() == pytest.approx(1.0)
    output.show_unfinished()
    assert written() == b""
    clock.now = 1.0
    output.show_unfinished()
    assert output.seconds_to_show() is None
    assert written() == b"[0] epoch 1 ..."
    output.write(0, 1, b" done\nepoch 2\n")
    assert written() == b" done\n[0] epoch 2\n"


def test_nothing_is_glued_to_an_unfinished_line(written: Callable[[], bytes], clock: Clock) -> None:
    output = MarkedOutput(refuse)
    output.write(0, 1, b"10%")
    clock.now = 2.0
    output.show_unfinished()
    output.write(1, 1, b"other\n")
    output.write(0, 1, b"\r20%\n")
    assert written() == b"[0] 10%\n[1] other\n[0] 20%\n"
    output.write(0, 1, b"30%")
    clock.now = 4.0
    output.show_unfinished()
    output.break_lines()  # as before a report
    output.write(0, 1, b" and on")
    output.finish(0, 1)
    assert written() == b"[0] 30%\n[0]  and on\n"


# Goal: dots that never end a line appear nonetheless.
def test_pieces_that_keep_coming_are_shown(written: Callable[[], bytes], clock: Clock) -> None:
    output = MarkedOutput(refuse)
    for _ in range(40):
        clock.now += 0.1
        output.write(0, 1, b".")
        output.show_unfinished()
    assert len(written()) >= len("[0] ") + 30


def test_memory_of_a_line_is_bounded(written: Callable[[], bytes]) -> None:
    output = MarkedOutput(refuse)
    for _ in range(80):
        output.write(0, 1, b"x" * 65536)
        assert sum(len(line.text) for line in output._unfinished.values()) <= 1 << 20
    output.close()
    assert written() == b"[0] " + b"x" * 80 * 65536 + b"\n"


def test_a_failed_write_is_told_and_the_next_is_tried() -> None:
    errors: list[OSError] = []
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        output = MarkedOutput(errors.append)
        output._colour[full] = False
        for _ in range(2):
            output.write(0, full, b"line\n")
    finally:
        os.close(full)
    assert [error.errno for error in errors] == [errno.ENOSPC] * 2


def test_folder_of_horovodrun(tmp_path: Path) -> None:
    folder = OutputFolder(tmp_path, as_horovodrun=True)
    assert str(folder.file(3, 1, 16)).endswith("/rank.03/stdout")
    assert str(folder.file(0, 2, 10)).endswith("/rank.0/stderr")
