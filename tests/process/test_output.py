# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: what ranks print arrives readable, and `farandole run` behaves as other commands do where
its output goes nowhere: to a reader that leaves, to a full disk, to a closed descriptor.

Method: real processes that need no native module; shells make the redirections.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROGRAMS
from launched import DEADLINE_SECONDS, Job

Start = Callable[..., Job]
Write = Callable[[str], Path]

STAND_IN = f"{sys.executable} {PROGRAMS / 'stand_in_for_ssh.py'}"
TWO_HOSTS = ("--ssh-command", STAND_IN, "-H", "127.0.0.2:1,127.0.0.3:1")
PLACES = [(), TWO_HOSTS]
PLACE_NAMES = ["here", "hosts"]
TALK = 'for i in range(3000):\n    print("line", i, flush=True)\n'


def shell(redirection: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`farandole run` with these arguments; "$@" in the shell's line stands for all of it."""
    command = [sys.executable, "-m", "farandole.cli", "run", *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", redirection, "bash", *command],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


# Goal: four progress bars at a time can be read. Method: bars as tqdm writes them.
@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
def test_progress_bars(start: Start, write: Write, place: tuple[str, ...]) -> None:
    source = """
import sys
for percent in range(0, 101, 5):
    sys.stderr.write(f"\\r{percent:3d}%|{'#' * (percent // 5):20}|")
    sys.stderr.flush()
sys.stderr.write("\\n")
"""
    ranks = 2 if place else 4
    job = start("-n", str(ranks), "-p", *place, write(source))
    assert job.finish() == 0
    lines = job.stderr.splitlines()
    for rank in range(ranks):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [f"[{rank}] {p:3d}%|{'#' * (p // 5):20}|" for p in range(0, 101, 5)]
    assert len(lines) == ranks * 21


# Goal: a question without an end of line is seen before it is answered.
@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
def test_a_question_is_shown(start: Start, write: Write, place: tuple[str, ...]) -> None:
    source = "import os, signal; os.write(1, b'sure? '); signal.pause()"
    job = start("-n", str(1 + bool(place)), "-p", *place, write(source))
    stdout = job.process.stdout
    assert stdout is not None
    assert select.select([stdout], [], [], DEADLINE_SECONDS)[0], "the question does not come"
    # Both, if the other rank is as fast.
    assert re.fullmatch(rb"\[[01]\] sure\? (\n\[[01]\] sure\? )?", os.read(stdout.fileno(), 4096))
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 128 + signal.SIGTERM


# Goal: a reader that leaves ends the job without a word, as `yes | head -1` ends.
@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
def test_head_ends_a_job_quietly(write: Write, place: tuple[str, ...]) -> None:
    line = '"$@" | head -1; exit ${PIPESTATUS[0]}'
    done = shell(line, "-n", "2", "-p", *place, write(TALK + "while True: print(0, flush=True)"))
    assert re.fullmatch(r"\[[01]\] line 0\n", done.stdout)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


# Goal: a full disk costs the output, not the job; it is said once and shows in the status.
@pytest.mark.parametrize("place", PLACES, ids=PLACE_NAMES)
def test_full_disk(write: Write, tmp_path: Path, place: tuple[str, ...]) -> None:
    witness = tmp_path / "witness"
    program = write(TALK + f"open('{witness}' + __import__('os').environ['RANK'], 'w')")
    done = shell('"$@" >/dev/full', "-n", "2", "-p", *place, program)
    assert done.returncode == 74
    assert done.stderr.count("cannot write what the ranks print: No space left on device") == 1
    assert done.stderr.count("\n") == 1
    assert {path.name for path in tmp_path.glob("witness*")} == {"witness0", "witness1"}
    failing = shell('"$@" >/dev/full 2>&1', "-n", "2", "-p", *place, "bash", "-c", "echo; exit 9")
    assert failing.returncode == 9


def test_full_disk_under_files_of_remote_ranks(write: Write, tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").symlink_to("/dev/full")
    arguments = ("-n", "2", "--output-dir", tmp_path, *TWO_HOSTS)
    done = shell('"$@"', *arguments, write(TALK))
    assert done.returncode == 74
    assert done.stderr.count("No space left on device") == 1
    assert (tmp_path / "rank-1.out").read_text().endswith("line 2999\n")


# Goal: closed descriptors lose what goes there, and nothing else.
@pytest.mark.parametrize("mark", [(), ("-p",)], ids=["plain", "marked"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors(write: Write, closed: str, mark: tuple[str, ...]) -> None:
    source = 'import sys; print("out"); print("err", file=sys.stderr)'
    done = shell(f'"$@" {closed}', "-n", "1", *mark, write(source))
    assert done.returncode == 0
    prefix = "[0] " if mark else ""
    assert done.stdout == ("" if " >&-" in f" {closed}" else f"{prefix}out\n")
    assert done.stderr == ("" if "2>&-" in closed else f"{prefix}err\n")


# Goal: what is no text goes through as it is.
def test_bytes_that_are_no_text(write: Write) -> None:
    source = "import os; os.write(1, bytes(range(256)).replace(b'\\r', b'') + b'\\n')"
    command = [sys.executable, "-m", "farandole.cli", "run", "-n", "1", "-p", str(write(source))]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS)
    before, after = bytes(range(10)), bytes(b for b in range(11, 256) if b != 13)
    assert done.stdout == b"[0] " + before + b"\n[0] " + after + b"\n"
