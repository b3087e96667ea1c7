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
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

# What ends a job whose ranks do not mind it, and what else users and batch systems send to one:
# Slurm's --signal, Grid Engine's warnings, and the keys and commands that stop and continue.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WARNING_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
FORWARDED_SIGNALS = (*ENDING_SIGNALS, *_WARNING_SIGNALS, signal.SIGTSTP, signal.SIGCONT)
# In the environment of ranks, and so of all that they start.
MARK_NAME = "FARANDOLE_LAUNCHER"
# Ranks that use the library end by themselves within two seconds of their launcher; by then the
# others have been told to.
_GUARD_PATIENCE_SECONDS = 1.0
_GUARD_TERMINATE_SECONDS = 2.0
_DONE = b"done"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None).prctl  # looked up before any fork


def die_with_parent(parent_pid: int) -> None:
    """Asks the kernel to kill this process when its parent goes. For a child before its exec.

    The kernel watches the thread that forked, so that thread must outlive the child.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # the parent went before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def open_standard_streams() -> None:
    """What the caller has closed (`>&-`) is /dev/null from here on. Else the next file or socket
    would get that number, and what is printed."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if not Path(f"/proc/self/fd/{fd}").exists():
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, this one
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


def lead_session() -> None:
    """Goes on in a child that leads a session, which has no terminal; the caller waits for it,
    passes signals on, dies with it and takes it along when it dies.

    What the ranks start is found by the session, or below this child, which adopts what is
    orphaned (belongings()), and the terminal's Ctrl-C comes once, through
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
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    session: int


def living_processes() -> list[_Process]:
    """All of this machine, this one aside; zombies do not count."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # gone meanwhile
        state, parent, _, session = stat[stat.rindex(")") + 2 :].split(" ")[:4]
        if state not in "ZX":
            found.append(_Process(int(folder.name), int(parent), int(session)))
    return found


def belongings(session: int, mark: str, ancestor: int, but: int = 0) -> list[int]:
    """Pids of what belongs to a job: in its session, with its mark in the environment, or below a
    process that is one of these or `ancestor`. `but` one and what is below that.

    A daemon leaves the session, and its parents end; a process that also has another environment
    is found only below its launcher, which adopts orphans.
    """
    processes = [process for process in living_processes() if process.pid != but]
    ours = {
        process.pid
        for process in processes
        if process.session == session or _has_mark(process.pid, mark)
    }
    family = ours | {ancestor}
    while more := {p.pid for p in processes if p.parent in family} - family:
        family |= more
    return sorted(family - {ancestor})


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # somebody else's, or gone
    return f"{MARK_NAME}={mark}".encode() in environment.split(b"\0")


def end_all(
    find: Callable[[], list[int]], patience_seconds: float, terminate_seconds: float
) -> list[int]:
    """Leaves nothing of what `find` returns: waits a little for each to go by itself, then sends
    SIGTERM, after some seconds more SIGKILL.

    Python's multiprocessing keeps a helper that cleans up once its parent is gone; the patience
    is for such. Returns the pids that even SIGKILL did not end within two seconds.
    """
    terminate_at = time.monotonic() + patience_seconds
    kill_at = terminate_at + terminate_seconds
    told: set[int] = set()
    while pids := find():
        now = time.monotonic()
        if now > kill_at + 2:
            return pids
        for pid in pids:
            if now > kill_at:
                signal_quietly(pid, signal.SIGKILL)
            elif now > terminate_at and pid not in told:
                signal_quietly(pid, signal.SIGTERM)
                told.add(pid)
        time.sleep(0.01)
    return []


def reap_orphans(but: Collection[int]) -> None:
    """Forgets children that have ended, `but` those: orphans that this process has adopted."""
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, children.read_text().split()):
                if pid not in but:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)


def signal_quietly(pid: int, signum: int) -> None:
    """os.kill() that does not mind a process already gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def signal_group_quietly(group: int, signum: int) -> None:
    """os.killpg() that does not mind a group already gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signum)


class Guard:
    """A process that outlives this one, if this one is killed, to end the rest of its session and
    all that has the `mark`."""

    def __init__(self, mark: str) -> None:
        self._words, theirs = socket.socketpair()
        # A launcher may be below another one's rank, whose guard must not end this one's.
        environment = {name: value for name, value in os.environ.items() if name != MARK_NAME}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, str(os.getsid(0)), mark],
                env=environment,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

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


def _guard(session: int, mark: str) -> None:
    ignore_warnings()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it goes when the launcher goes, and last
    if sys.stdin.buffer.read() != _DONE:  # until the launcher dismisses us, or dies
        end_all(
            lambda: belongings(session, mark, ancestor=os.getpid()),
            _GUARD_PATIENCE_SECONDS,
            _GUARD_TERMINATE_SECONDS,
        )


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2])
