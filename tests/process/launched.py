# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Real processes: runs `farandole run`, marks what it starts, and finds what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

DEADLINE_SECONDS = 60.0
MARK = "FARANDOLE_TEST_MARK"
# Whoever runs the tests may ignore SIGHUP, as nohup does; the launcher would respect that.
_DEFAULT_SIGNALS = ("env", "--default-signal")


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
            assert ready, f"nothing came within {DEADLINE_SECONDS} s"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"no further line after {self._buffered!r}"
            self._buffered += data.decode()
        line, self._buffered = self._buffered.split("\n", 1)
        return line

    def finish(self, stdin: str | None = None, deadline_seconds: float = DEADLINE_SECONDS) -> int:
        """Waits for the launcher; returns its exit status."""
        stdout, self.stderr = self.process.communicate(stdin, timeout=deadline_seconds)
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
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def process_state(pid: int) -> str:
    """As of proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def wait_for_states(states: str, pids: list[int]) -> None:
    """Until each process is in one of these states."""
    end = time.monotonic() + DEADLINE_SECONDS
    for pid in pids:
        while (state := process_state(pid)) not in states:
            assert time.monotonic() < end, f"process {pid} is {state}, not one of {states}"


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
