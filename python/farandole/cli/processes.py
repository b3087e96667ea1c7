# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the launcher needs from Linux: children that die with it, and sessions swept clean."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

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
