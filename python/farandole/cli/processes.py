# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the launcher needs from Linux: children that die with it, and a session swept clean.

Run as a program this file is the guard: it ends the session of a launcher that was killed, with
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
from pathlib import Path
from types import FrameType

# What ends a job whose ranks do not mind it, and what else users and batch systems send to one:
# Slurm's --signal, Grid Engine's warnings, and the keys and commands that stop and continue.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WARNING_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
FORWARDED_SIGNALS = (*ENDING_SIGNALS, *_WARNING_SIGNALS, signal.SIGTSTP, signal.SIGCONT)
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


def lead_session() -> None:
    """Goes on in a child that leads a session, which has no terminal; the caller waits for it,
    passes signals on, dies with it and takes it along when it dies.

    What the ranks start is found by the session, and the terminal's Ctrl-C comes once, through
    the caller. One session for all ranks, because Linux schedules each one as a group (autogroup,
    sched(7)): sched_yield(), by which ranks that share a core wait for each other, has no effect
    across them (docs/design/0011-small-costs.md has what it costs).

    Threads   The main one, before Python has others: a fork takes none along.
    Errors    OSError when there can be no child.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent_pid = os.getpid()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)
    child = os.fork()
    if child == 0:
        os.setsid()
        die_with_parent(parent_pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return

    def forward(signum: int, frame: FrameType | None) -> None:
        signal_quietly(child, signum)
        if signum == signal.SIGTSTP:  # so that the shell sees what it asked for
            os.kill(os.getpid(), signal.SIGSTOP)

    for signum in FORWARDED_SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    # Its zombie stays, so the number that the handlers use cannot be given anew.
    end = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert end is not None
    os._exit(end.si_status if end.si_code == os.CLD_EXITED else 128 + end.si_status)


def session_members(session: int) -> list[int]:
    """Pids of the living processes in it, this one aside; zombies do not count."""
    members = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # gone meanwhile
        state, _, _, its_session = stat[stat.rindex(")") + 2 :].split(" ")[:4]
        if int(its_session) == session and state not in "ZX":
            members.append(int(folder.name))
    return members


def end_session(session: int, patience_seconds: float) -> list[int]:
    """Leaves no process in the session but this one: waits a little for each to go by itself,
    then kills.

    Python's multiprocessing keeps a helper that cleans up once its parent is gone; the patience
    is for such. Returns the pids that even SIGKILL did not end within two seconds.
    """
    kill_at = time.monotonic() + patience_seconds
    while members := session_members(session):
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
    """A process that outlives this one, if this one is killed, to end the rest of its session."""

    def __init__(self) -> None:
        self._words, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, str(os.getsid(0))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """Nothing is left to guard. Idempotent."""
        if self._words.fileno() >= 0:
            with contextlib.suppress(OSError):  # somebody ended the guard: we did without
                self._words.send(_DONE, socket.MSG_NOSIGNAL)
            self._words.close()
            self._process.wait()


def ignore_warnings(action: signal.Handlers = signal.SIG_IGN) -> None:
    """For a helper that the job needs and that has no part in it: batch systems send warnings to
    all that belongs to a job, and a helper would die of them. SIG_DFL takes it back."""
    for signum in _WARNING_SIGNALS:
        signal.signal(signum, action)


def _guard(session: int) -> None:
    ignore_warnings()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it goes when the launcher goes, and last
    if sys.stdin.buffer.read() != _DONE:  # until the launcher dismisses us, or dies
        end_session(session, _GUARD_PATIENCE_SECONDS)


if __name__ == "__main__":
    _guard(int(sys.argv[1]))
