# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes: runs `farandole run`, marks what it starts, and finds what it leaves behind."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEADLINE_SECONDS = 60.0
MARK = "FARANDOLE_TEST_MARK"
# Whoever runs the tests may ignore SIGHUP, as nohup does; the launcher would respect that.
_DEFAULT_SIGNALS = ("env", "--default-signal")
PROGRAMS = Path(__file__).parent / "programs"


class Job:
    """One run of the launcher. Everything it starts carries a mark in its environment."""

    def __init__(self, arguments: list[str | Path], environment: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [*_DEFAULT_SIGNALS, sys.executable, "-m", "farandole.cli", "run", *map(str, arguments)],
            env=os.environ | environment | {MARK: self.mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._buffered = ""
        self.stdout = ""
        self.stderr = ""

    def line(self) -> str:
        """The next line of standard output; not to be had from finish() again."""
        assert self.process.stdout is not None
        # Read from the descriptor, as communicate() does: what a file object buffers it loses.
        while "\n" not in self._buffered:
            ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_SECONDS)
            data = os.read(self.process.stdout.fileno(), 65536)
            assert ready and data, f"no further line after {self._buffered!r}"
            self._buffered += data.decode()
        line, self._buffered = self._buffered.split("\n", 1)
        return line

    def finish(self, stdin: str | None = None) -> int:
        """Waits for the launcher; returns its exit status."""
        stdout, self.stderr = self.process.communicate(stdin, timeout=DEADLINE_SECONDS)
        self.stdout = self._buffered + stdout
        return self.process.returncode

    def processes(self) -> list[int]:
        """Pids of everything alive that this run started, the launcher included."""
        return marked_processes(self.mark)

    def wait_until_gone(self, seconds: float) -> list[int]:
        """Pids still alive after so long; returns at once when there are none."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            pass
        return left

    def end(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.communicate()


def marked_processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes()
            state = re.search(r"^State:\s+(\w)", (folder / "status").read_text(), re.M)
        except OSError:
            continue
        alive = state is not None and state[1] not in "ZX"
        if alive and f"{MARK}={mark}".encode() in environment.split(b"\0"):
            found.append(int(folder.name))
    return found


@pytest.fixture
def start() -> Iterator[Callable[..., Job]]:
    """start(*arguments, **environment): `farandole run` with these; ended with the test."""
    jobs: list[Job] = []

    def start_job(*arguments: str | Path, **environment: str) -> Job:
        jobs.append(Job(list(arguments), environment))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.end()


@pytest.fixture
def programs() -> Path:
    return PROGRAMS


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """write(source): a Python file for the ranks to run."""

    def write_program(source: str) -> Path:
        path = tmp_path / f"{uuid.uuid4().hex}.py"
        path.write_text(source)
        return path

    return write_program
