# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the launcher needs from Linux: children that die with it, and sessions swept clean.

Run as a program this file is the guard: it ends the sessions of a launcher that was killed, with
all that the ranks had started. It imports nothing of ours, so that it starts in no time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

# Ranks that use the library end by themselves within two seconds of their launcher.
_GUARD_PATIENCE_SECONDS = 3.0
_DONE = b"done"
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # looked up before any fork


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel to kill this process when its parent goes. For a child before its exec.

    The kernel watches the thread that forked, so that thread must outlive the child.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # the parent went before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def session_members(sessions: Collection[int]) -> list[int]:
    """Pids of the living processes in any of the sessions; zombies do not count."""
    members = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # gone meanwhile
        state, _, _, session = stat[stat.rindex(")") + 2 :].split(" ")[:4]
        if int(session) in sessions and state not in "ZX":
            members.append(int(folder.name))
    return members


def end_sessions(sessions: Collection[int], patience_seconds: float) -> list[int]:
    """Leaves no process in the sessions: waits a little for each to go by itself, then kills.

    Python's multiprocessing keeps a helper that cleans up once its parent is gone; the patience
    is for such. Returns the pids that even SIGKILL did not end within two seconds.
    """
    kill_at = time.monotonic() + patience_seconds
    while members := session_members(sessions):
        now = time.monotonic()
        if now > kill_at + 2:
            return members
        if now > kill_at:
            for pid in members:
                signal_quietly(pid, signal.SIGKILL)
        time.sleep(0.01)
    return []


def signal_quietly(pid: int, signum: int) -> None:
    """os.kill() that does not mind a process already gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def signal_group_quietly(group: int, signum: int) -> None:
    """os.killpg() that does not mind a group already gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signum)


class Guard:
    """A process that outlives this one, if this one is killed, to end what it leaves behind."""

    def __init__(self) -> None:
        self._words, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def watch_this_process(self) -> None:
        """For a child that leads its session, before its exec: no later, so that a launcher
        killed right then leaves nothing unguarded either."""
        self._tell(b"%d\n" % os.getpid())

    def dismiss(self) -> None:
        """Nothing is left to guard. Idempotent."""
        if self._words.fileno() >= 0:
            self._tell(_DONE)
            self._words.close()
            self._process.wait()

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # somebody ended the guard: we do without
            self._words.send(word, socket.MSG_NOSIGNAL)


def _guard() -> None:
    words = sys.stdin.buffer.read().split()  # until the launcher dismisses us, or dies
    if _DONE not in words:
        end_sessions({int(word) for word in words}, _GUARD_PATIENCE_SECONDS)


if __name__ == "__main__":
    _guard()
