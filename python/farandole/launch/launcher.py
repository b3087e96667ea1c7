# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job on this machine and sees every one of them to its end."""

from __future__ import annotations

import contextlib
import enum
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol

from farandole.launch.job import LocalJob, cores_of_rank, usable_cores
from farandole.launch.output import (
    PIPE_READS_MAX,
    MarkedOutput,
    MarkedStream,
    OutputFolder,
    RankStream,
)
from farandole.launch.processes import (
    ENDING_SIGNALS,
    FORWARDED_SIGNALS,
    Guard,
    belongings,
    die_with_parent,
    end_all,
    reap_orphans,
    signal_group_quietly,
)

_KILL_AFTER_SECONDS = 2.0  # from SIGTERM to SIGKILL
_LEFTOVER_PATIENCE_SECONDS = 0.5
TIMED_OUT_STATUS = 124  # as of timeout(1)
NOT_FOUND_STATUS = 127  # as of a shell
NOT_EXECUTABLE_STATUS = 126
OUTPUT_LOST_STATUS = 74  # EX_IOERR of sysexits.h
READER_GONE_STATUS = 128 + signal.SIGPIPE
INVALID_STATUS = 2  # as of a wrong argument
RANKS_PER_CORE_MAX = 8  # without --oversubscribe


class LaunchError(Exception):
    """Why a job does not come to run, in words for the user, and the exit status that says so."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


# From rank, the pipe's read end, and 1 for standard output or 2 for standard error.
StreamMaker = Callable[[int, int, int], RankStream]


class Output(enum.Enum):
    """Where the ranks' output goes when it does not go to files."""

    INHERIT = enum.auto()  # straight to the launcher's own stdout and stderr
    PREFIX = enum.auto()  # there too, in lines marked "[rank] "


@dataclass(frozen=True)
class LaunchOptions:
    command: Sequence[str]
    rank_count: int  # of the whole job
    environment: Mapping[str, str] = field(default_factory=dict)  # on top of the launcher's own
    output: Output | OutputFolder | StreamMaker = Output.INHERIT
    timeout_seconds: float | None = None
    grace_seconds: float = 5.0
    bind: bool = False
    oversubscribe: bool = False  # see refuse_crowding()


@dataclass
class _Rank:
    rank: int
    process: subprocess.Popen[bytes]
    pidfd: int
    streams: list[RankStream]

    @property
    def title(self) -> str:
        return f"rank {self.rank} (pid {self.process.pid})"


def report_to_stderr(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, or there is no room
        print(f"farandole: {message}", file=sys.stderr, flush=True)


class Launcher:
    """One run of one command in the processes of a job that are this machine's: all `rank_count`,
    or the ranks of `job`.

        lead_session()
        launcher = Launcher(options)
        with forward_signals(launcher), launcher:
            status = launcher.wait()

    Each rank leads a process group of its own, so that a signal reaches everything a rank has
    started. When a rank fails, the others have `grace_seconds` to say what they saw and to end,
    then they get SIGTERM, then SIGKILL. In the end nothing that the ranks started is left, in this
    process's session, which it has to lead for that reason, or out of it.

    Threads   All calls from one thread, which must live until the ranks have ended: the kernel
              kills them with the thread that started them. signal() also from a signal handler.
    Errors    From start() OSError when a process cannot be made, LaunchError when a signal ends
              the job before it has begun; nothing is left running.
    """

    def __init__(
        self,
        options: LaunchOptions,
        report: Callable[[str], None] = report_to_stderr,
        job: LocalJob | None = None,
        when_failed: Callable[[int, bool], None] = lambda status, killed: None,
    ) -> None:
        """`when_failed` hears what `JobStatus.take` takes and what changes the status, at once."""
        self._options = options
        self._reports = Reports(report)
        self._report = self._reports.say
        self._output = MarkedOutput(self._reports.output_failed(self._reader_gone))
        self._reports.before_each = self._output.break_lines
        self._part = job
        self._when_failed = when_failed
        self._ranks: dict[int, _Rank] = {}
        self._running: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._escalation: list[int] = []  # signals still to come, the next one last
        self._next_step_at: float | None = None
        self._timeout_at: float | None = None
        self._started = False
        self._early_signals: list[int] = []
        self._interrupted = False
        self._sent: set[int] = set()  # signals that the ranks have from us
        self._status = JobStatus()

    @property
    def pids(self) -> list[int]:
        """Of the processes started for the ranks, by rank."""
        return [rank.process.pid for rank in self._ranks.values()]

    def __enter__(self) -> Launcher:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Start

    def start(self) -> None:
        if os.getsid(0) != os.getpid():
            raise RuntimeError("this process leads no session, and others' would be ended")
        self._job = self._part or LocalJob.alone(self._options.rank_count)
        self._guard = Guard(self._job.mark)
        try:
            for rank in self._job.ranks:
                # One that came between fork and exec would be noted in the child and forgotten.
                with _signals_blocked() as mask:
                    self._start_rank(rank, mask)
                refuse_to_start_after(self._early_signals)
        except BaseException:
            self.close()
            raise
        self._job.started()
        self._started = True
        for signum in self._early_signals:
            self._signal_ranks(signum)
        self.reap()  # whose SIGCHLD came too early
        if self._options.timeout_seconds is not None:
            self._timeout_at = time.monotonic() + self._options.timeout_seconds

    def _start_rank(self, rank: int, mask: set[int | signal.Signals]) -> None:
        options = self._options
        parent_pid = os.getpid()
        ranks = self._job.ranks
        cores = (
            cores_of_rank(ranks.index(rank), len(ranks), usable_cores()) if options.bind else None
        )

        def prepare_child() -> None:
            os.setpgid(0, 0)
            die_with_parent(parent_pid)
            if cores is not None:
                os.sched_setaffinity(0, cores)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        environment = self._job.environment(rank, os.environ)
        if options.output is not Output.INHERIT:
            environment.setdefault("PYTHONUNBUFFERED", "1")  # lines come when they are printed
        with contextlib.ExitStack() as files:
            stdout, stderr = self._output_files(rank, files)
            process = subprocess.Popen(
                options.command,
                env=environment | dict(options.environment),
                stdin=None if rank == 0 else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=self._job.inherited_fds(rank),
                preexec_fn=prepare_child,
            )
        started = _Rank(rank, process, os.pidfd_open(process.pid), [])
        self._ranks[rank] = started
        self._running.add(rank)
        self._call_when_readable(started.pidfd, lambda: self._rank_ended(started))
        make_stream = (
            options.output if callable(options.output) else partial(MarkedStream, self._output)
        )
        for pipe, target in ((process.stdout, 1), (process.stderr, 2)):
            if pipe is not None:
                with pipe:
                    stream = make_stream(rank, os.dup(pipe.fileno()), target)
                started.streams.append(stream)
                self._call_when_readable(stream.source_fd, partial(self._pump, stream))

    def _output_files(self, rank: int, files: contextlib.ExitStack) -> tuple[int | None, ...]:
        output = self._options.output
        if output is Output.INHERIT:
            return None, None
        if not isinstance(output, OutputFolder):
            return subprocess.PIPE, subprocess.PIPE
        fds = [output.open(rank, stream, self._options.rank_count) for stream in (1, 2)]
        for fd in fds:
            files.callback(os.close, fd)
        return tuple(fds)

    # While the ranks run

    def wait(self) -> int:
        """Until every rank has ended and nothing of the job is left; returns the exit status:
        0 if all ranks returned 0, else that of the rank to blame, see JobStatus."""
        while self._running:
            for key, _ in self._selector.select(self._seconds_to_next_step()):
                key.data()
            self._output.show_unfinished()
            self._take_step()
        self._finish()
        return self._reports.status_with_output(self._status.value)

    def signal(self, signum: int) -> None:
        """Forwards a signal to every rank and to all that it started; a second SIGINT kills, and
        so does the end of the grace after SIGTERM."""
        if signum == signal.SIGINT:
            if self._interrupted:
                signum = signal.SIGKILL
            self._interrupted = True
        if signum == signal.SIGTERM and len(self._escalation) != 1:
            self._escalation = [signal.SIGKILL]
            self._next_step_at = time.monotonic() + self._options.grace_seconds
        self._signal_ranks(signum)

    def reap(self) -> None:
        """Forgets orphans of the ranks that have ended. Also from a handler of SIGCHLD."""
        if self._started:
            reap_orphans(but=[*self.pids, self._guard.pid])

    def kill(self) -> None:
        self._signal_ranks(signal.SIGKILL)

    def end_after(self, delay_seconds: float) -> None:
        """Ends the ranks as if one had failed: SIGTERM after so long, then SIGKILL. From wait()."""
        if not self._escalation and self._next_step_at is None:
            self._escalate_after(delay_seconds)
        elif len(self._escalation) == 2 and self._next_step_at is not None:
            self._next_step_at = min(self._next_step_at, time.monotonic() + delay_seconds)

    def wake_on(self, source: socket.socket, action: Callable[[], object] = lambda: None) -> None:
        """wait() also wakes when `source` has bytes; it drops them and calls `action`."""

        def woken() -> None:
            drop_bytes(source)
            action()

        self._call_when_readable(source.fileno(), woken)

    def _call_when_readable(self, fd: int, action: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, action)

    def _pump(self, stream: RankStream) -> bool:
        fd = stream.source_fd
        more = stream.pump()
        if fd >= 0 and not stream.open:
            self._selector.unregister(fd)
        return more

    def _pump_dry(self, rank: _Rank) -> None:
        """Passes on what the rank has left in its pipes, and no more, should somebody go on."""
        for stream in rank.streams:
            for _ in range(PIPE_READS_MAX):
                if not self._pump(stream):
                    break

    def _signal_ranks(self, signum: int) -> None:
        if not self._started:
            self._early_signals.append(signum)
            return
        self._sent.add(signum)
        for rank in self._ranks.values():
            if rank.rank in self._running:
                # Its zombie is ours until _finish(), so the number cannot have been given anew.
                signal_group_quietly(rank.process.pid, signum)

    def _rank_ended(self, rank: _Rank) -> None:
        self._selector.unregister(rank.pidfd)
        self._running.remove(rank.rank)
        self._pump_dry(rank)  # what it said last comes before what we say of it
        end = os.waitid(os.P_PIDFD, rank.pidfd, os.WEXITED | os.WNOWAIT)
        assert end is not None
        if end.si_code == os.CLD_EXITED:
            if end.si_status != 0:
                self._report(f"{rank.title} exited with status {end.si_status}")
                self._failed(end.si_status)
        else:
            killed = end.si_status not in self._sent  # it was not we who did it
            if killed:
                self._report(f"{rank.title} was killed by {signal_name(end.si_status)}")
            self._failed(128 + end.si_status, killed)

    def _failed(self, status: int, killed: bool = False) -> None:
        if self._status.take(status, killed):
            self._when_failed(status, killed)
        if self._next_step_at is None and not self._escalation:
            self._escalate_after(self._options.grace_seconds)

    def _reader_gone(self) -> None:
        self._status.take(READER_GONE_STATUS, killed=True)
        self._escalate_after(0)

    def _escalate_after(self, delay_seconds: float) -> None:
        self._escalation = [signal.SIGKILL, signal.SIGTERM]
        self._next_step_at = time.monotonic() + delay_seconds

    def _seconds_to_next_step(self) -> float | None:
        times = [t for t in (self._next_step_at, self._timeout_at) if t is not None]
        seconds = [max(0.0, t - time.monotonic()) for t in times]
        if (show := self._output.seconds_to_show()) is not None:
            seconds.append(show)
        return min(seconds, default=None)

    def _take_step(self) -> None:
        now = time.monotonic()
        if self._timeout_at is not None and now >= self._timeout_at:
            self._timeout_at = None
            self._report("the job's time limit is over")
            self._status.take(TIMED_OUT_STATUS)
            self._status.final = True
            self._escalate_after(0)
        if self._next_step_at is None or now < self._next_step_at or not self._running:
            return
        signum = self._escalation.pop()
        who = ", ".join(self._ranks[rank].title for rank in sorted(self._running))
        self._report(f"sending {signal_name(signum)} to {who}")
        self._signal_ranks(signum)
        self._next_step_at = now + _KILL_AFTER_SECONDS if self._escalation else None

    # The end

    def _finish(self) -> None:
        killing = signal.SIGKILL in self._sent
        left = end_all(
            lambda: belongings(os.getsid(0), self._job.mark, os.getpid(), but=self._guard.pid),
            _LEFTOVER_PATIENCE_SECONDS,
            0 if killing else _KILL_AFTER_SECONDS,
        )
        if left:
            self._report(f"could not end these processes: {', '.join(map(str, left))}")
        for rank in self._ranks.values():
            self._pump_dry(rank)
            for stream in rank.streams:
                stream.close()
            rank.process.wait()
            os.close(rank.pidfd)
        self._ranks.clear()
        self._end_job()

    def close(self) -> None:
        """Kills what still runs and gives everything back. Idempotent."""
        if not self._ranks:
            self._end_job()
            return
        for rank in self._ranks.values():
            signal_group_quietly(rank.process.pid, signal.SIGKILL)
            os.waitid(os.P_PIDFD, rank.pidfd, os.WEXITED | os.WNOWAIT)
        self._finish()

    def _end_job(self) -> None:
        self._job.close()
        self._guard.dismiss()
        self._selector.close()


class Reports:
    """What the user hears from a launcher, and whether the ranks' output has reached anybody."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.before_each: Callable[[], None] = lambda: None
        self._report = report
        self._reader_gone = False
        self._lost = False

    @property
    def reader_gone(self) -> bool:
        """Nobody reads the ranks' output: the job ends, and quietly, as others do at SIGPIPE."""
        return self._reader_gone

    def say(self, message: str) -> None:
        if not self._reader_gone:
            self.before_each()
            self._report(message)

    def output_failed(self, when_reader_gone: Callable[[], None]) -> Callable[[OSError], None]:
        """What to do about a failed write. A full disk does not end a job, whose results matter
        more than its output; it is said once, and its status is not 0."""

        def failed(error: OSError) -> None:
            if isinstance(error, BrokenPipeError):
                if not self._reader_gone:
                    self._reader_gone = True
                    when_reader_gone()
            elif not self._lost:
                self._lost = True
                self.say(
                    f"cannot write what the ranks print: {error.strerror}; the job goes on, output "
                    f"is lost, and the exit status will not be 0"
                )

        return failed

    def status_with_output(self, status: int) -> int:
        return OUTPUT_LOST_STATUS if status == 0 and self._lost else status


@dataclass
class JobStatus:
    """The exit status of a job: 0, or that of the rank to blame, 128 + n for signal n.

    To blame is the first that failed, but a rank that was killed before one that exited. The
    others see a dying rank's connections close before the kernel reports its end, and may have
    exited because of it by then.
    """

    value: int = 0
    final: bool = False

    def take(self, status: int, killed: bool = False) -> bool:
        """Hears of a failure, `killed` by a signal that is not from us; returns whether it is the
        one to blame now."""
        if self.final or (self.value != 0 and not killed):
            return False
        self.value, self.final = status, killed
        return True


def refuse_crowding(rank_count: int, oversubscribe: bool) -> None:
    """LaunchError for so many ranks on this host, before any of them is started."""
    cores = len(usable_cores())
    if rank_count > RANKS_PER_CORE_MAX * cores and not oversubscribe:
        raise LaunchError(
            f"{rank_count} ranks on {cores} core{'s' if cores > 1 else ''} are more than "
            f"{RANKS_PER_CORE_MAX} for each; --oversubscribe allows it",
            INVALID_STATUS,
        )


def resolve_command(command: Sequence[str]) -> list[str]:
    """`command` as this machine can execute it; raises LaunchError with a shell's status."""
    program, *arguments = command
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise LaunchError(f"there is no file {program}", NOT_FOUND_STATUS)
        return [sys.executable, program, *arguments]
    if shutil.which(program) is None:
        if "/" in program and Path(program).exists():
            raise LaunchError(f"{program} is not executable", NOT_EXECUTABLE_STATUS)
        raise LaunchError(f"command not found: {program}", NOT_FOUND_STATUS)
    return [program, *arguments]


def signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def refuse_to_start_after(signums: Sequence[int]) -> None:
    """Raises LaunchError if one of these signals, which came early, ends a job."""
    for signum in signums:
        if signum in ENDING_SIGNALS:
            raise LaunchError(
                f"ended by {signal_name(signum)} before the ranks had started", 128 + signum
            )


@contextlib.contextmanager
def _signals_blocked() -> Iterator[set[int | signal.Signals]]:
    """Yields the mask from before."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED_SIGNALS, signal.SIGCHLD))
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class TakesSignals(Protocol):
    def signal(self, signum: int) -> None: ...
    def wake_on(self, source: socket.socket) -> None: ...


@contextlib.contextmanager
def forward_signals(
    launcher: TakesSignals, reap: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """While it lasts, FORWARDED_SIGNALS go to the ranks, and `reap` is called when a child has
    ended. Main thread only."""

    def forward(signum: int, frame: FrameType | None) -> None:
        launcher.signal(signum)

    # The handler runs in Python, so after select() has returned; the byte makes it return.
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    launcher.wake_on(woken)
    wakeup_before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    before = {s: signal.getsignal(s) for s in (*FORWARDED_SIGNALS, signal.SIGCHLD)}
    for signum in FORWARDED_SIGNALS:
        if before[signum] != signal.SIG_IGN:  # nohup: the ranks ignore it as well
            signal.signal(signum, forward)
    signal.signal(signal.SIGCHLD, lambda signum, frame: reap())
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(wakeup_before)
        woken.close()
        waker.close()


def drop_bytes(source: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while source.recv(4096):
            pass
