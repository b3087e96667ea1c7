# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The way to the agent of a host: through ssh, or on this machine without."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.launch.agent import HELLO_MARK, Frames
from farandole.launch.hosts import Host, Placement
from farandole.launch.launcher import NOT_FOUND_STATUS, LaunchError, signal_name
from farandole.launch.processes import die_with_parent, ignore_warnings

CANNOT_CONNECT_STATUS = 255  # as of ssh
END_SECONDS_MAX = 5.0  # from the end of the job to that of ssh; from the second Ctrl-C to ours
COMPLAINT_BYTES_MAX = 4096
_CONNECT_SECONDS_MAX = 10
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Ssh:
    """How other hosts are reached."""

    command: str = "ssh"  # with options of its own, as for a shell
    port: int | None = None
    identity_file: Path | None = None

    def command_line(self, host: Host, command: Sequence[str]) -> list[str]:
        line = shlex.split(self.command)
        for option in (
            "BatchMode=yes",  # no questions: there may be many hosts and no terminal
            "StrictHostKeyChecking=accept-new",
            f"ConnectTimeout={_CONNECT_SECONDS_MAX}",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            "ClearAllForwardings=yes",
            "ControlPath=none",  # a shared connection would outlive us
        ):
            line += ["-o", option]
        line += ["-T", "-x", "-a"]
        if self.port is not None:
            line += ["-p", str(self.port)]
        if self.identity_file is not None:
            line += ["-i", str(self.identity_file)]
        # The shell over there makes way for the command, in whatever dialect it speaks.
        return [*line, host.name, f"exec {shlex.join(command)}"]


class Agent:
    """The way to one host: the process of ssh, or on this machine the agent itself."""

    def __init__(self, placement: Placement, ssh: Ssh) -> None:
        self.placement = placement
        self.answers: dict[str, dict[str, Any]] = {}  # the last frame of each kind
        self.unfinished = True
        self.complaint = b""
        self.frames = Frames(HELLO_MARK)
        self._here = placement.host.is_here
        command = [sys.executable, "-m", "farandole.cli", "agent"]
        if not self._here:
            if path := os.environ.get("PYTHONPATH"):
                command = ["env", f"PYTHONPATH={path}", *command]
            command = ssh.command_line(placement.host, command)
        self.command_line = command

    @property
    def title(self) -> str:
        return f"host {self.placement.host.name}"

    def start(self) -> None:
        parent_pid = os.getpid()

        def prepare_child() -> None:
            die_with_parent(parent_pid)
            if not self._here:  # an agent passes signals on
                ignore_warnings()

        # Not for others to see in /proc, and not what this process itself was reached by.
        kept_back = ("FARANDOLE_SECRET", "SSH_CONNECTION")
        environment = {k: v for k, v in os.environ.items() if k not in kept_back}
        try:
            self.process = subprocess.Popen(
                self.command_line,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # the terminal's Ctrl-C is forwarded, once
                preexec_fn=prepare_child,
            )
        except OSError as error:
            raise LaunchError(
                f"cannot reach {self.title}: {self.command_line[0]}: {error.strerror}",
                NOT_FOUND_STATUS,
            ) from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin = self.process.stdin
        self.stdout_fd = self.process.stdout.fileno()
        self.stderr_fd = self.process.stderr.fileno()
        for fd in (self.stdout_fd, self.stderr_fd):
            os.set_blocking(fd, False)

    def send(self, message: bytes) -> None:
        """Blocks while the pipe is full; to one who has gone it sends nothing."""
        view = memoryview(message)
        with contextlib.suppress(OSError, ValueError):
            while view:
                view = view[self.stdin.write(view) or 0 :]

    def read(self, fd: int) -> bytes | None:
        """None when there is nothing for now, nothing at the end."""
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return None

    def read_complaint(self) -> None:
        """What is left of it, and how the process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS_MAX)
        while data := self.read(self.stderr_fd):
            self.complaint += data

    def how_it_ended(self) -> str:
        status = self.process.poll()
        name = Path(self.command_line[0]).name
        if status is not None and status < 0:
            return f" ({name} was killed by {signal_name(-status)})"
        lines = self.complaint.decode(errors="replace").split("\n")
        said = ": " + " ".join(line.strip() for line in lines if line.strip()) if any(lines) else ""
        return f" ({name} ended with status {status}{said})"

    def why_no_answer(self) -> LaunchError:
        said = self.complaint.decode(errors="replace").strip()
        status = self.process.poll()
        tail = f": {said}" if said else ""
        python, title = sys.executable, self.title
        if status == CANNOT_CONNECT_STATUS:
            return LaunchError(f"cannot connect to {title}{tail}", CANNOT_CONNECT_STATUS)
        if status in (126, 127):
            return LaunchError(f"{title} cannot run {python}{tail}", NOT_FOUND_STATUS)
        if re.search(r"No module named '?farandole", said):
            return LaunchError(f"{title} has no farandole for {python}{tail}", NOT_FOUND_STATUS)
        if "No such command 'agent'" in said:
            return LaunchError(f"{title} has another version of farandole, without agents", 1)
        return LaunchError(f"{title} did not start an agent{self.how_it_ended()}", 1)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.stdin.close()

    def end(self, patience_seconds: float) -> None:
        try:
            # Without an answer there is nothing to end over there.
            self.process.wait(max(0.0, patience_seconds) if "hello" in self.answers else 0.1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
