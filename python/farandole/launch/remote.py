# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a job on several hosts: an agent on each, reached through ssh, starts its ranks there."""

from __future__ import annotations

import os
import queue
import selectors
import shlex
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from farandole import _native
from farandole.launch.agent import PING_SECONDS, frame
from farandole.launch.hosts import Host, Placement
from farandole.launch.job import new_job_id, new_secret
from farandole.launch.launcher import (
    READER_GONE_STATUS,
    TIMED_OUT_STATUS,
    JobStatus,
    LaunchError,
    LaunchOptions,
    Output,
    Reports,
    drop_bytes,
    refuse_to_start_after,
    report_to_stderr,
)
from farandole.launch.output import MarkedOutput, OutputFolder, write_all
from farandole.launch.ssh import (
    CANNOT_CONNECT_STATUS,
    COMPLAINT_BYTES_MAX,
    END_SECONDS_MAX,
    Agent,
    Ssh,
)

# What ranks on other hosts get of this process's environment, besides what --env gives them.
TRAVELLING_NAMES = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
TRAVELLING_PREFIXES = ("FARANDOLE_", "HOROVOD_", "PYTHON", "OMP_", "MKL_", "NCCL_", "TORCH_")
# What is this host's or this process's alone.
_STAYING_NAMES = (
    "FARANDOLE_SECRET",
    "FARANDOLE_SECRET_FILE",
    "FARANDOLE_HOST_ID",
    "FARANDOLE_LISTEN_FD",
    "FARANDOLE_LAUNCHER_FD",
    "FARANDOLE_LAUNCHER",
)


class RemoteLauncher:
    """One run of one command on several hosts; used as Launcher is.

    start() contacts all hosts at once, lets every agent check that the command can run there, and
    only then has the ranks started. Each agent runs a Launcher, which ends the ranks of its host
    by the same rules; this class tells the others when a host's first rank has failed.

    Threads   All calls from one thread; signal() also from a signal handler.
    Errors    LaunchError from start(), naming the host; nothing is left running.
    """

    def __init__(
        self,
        options: LaunchOptions,
        placements: Sequence[Placement],
        ssh: Ssh,
        start_timeout_seconds: float,
        verbose: bool = False,
        report: Callable[[str], None] = report_to_stderr,
    ) -> None:
        self._options = options
        self._placements = placements
        self._ssh = ssh
        self._start_timeout_seconds = start_timeout_seconds
        self._verbose = verbose
        self._reports = Reports(report)
        self._report = self._reports.say
        self._agents: list[Agent] = []
        self._output = _RankOutput(options, self._reports.output_failed(self._reader_gone))
        self._reports.before_each = self._output.marked.break_lines
        self._selector = selectors.DefaultSelector()
        self._outbox = _Outbox()
        self._running = False
        self._interrupts = 0
        self._early_signals: list[int] = []
        self._timeout_at: float | None = None
        self._give_up_at: float | None = None
        self._status = JobStatus()

    def __enter__(self) -> RemoteLauncher:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
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
        self._output.open()
        for placement in self._placements:
            self._contact(placement)
            refuse_to_start_after(self._early_signals)
        self._outbox.start([agent.send for agent in self._agents])
        deadline = time.monotonic() + self._start_timeout_seconds
        self._await("hello", deadline)
        job_id, secret = new_job_id(), new_secret()
        for agent in self._agents:
            self._outbox.put(agent.send, self._job_frame(agent, job_id, secret))
        self._await("ready", deadline)
        where = self._agents[0].answers["ready"]
        start = frame("start", **{k: where[k] for k in ("address", "port", "torch_port")})
        self._tell_all(start)
        self._say(f"rank 0 listens at {where['address']}, port {where['port']}")
        self._running = True
        for signum in self._early_signals:
            self.signal(signum)
        if self._options.timeout_seconds is not None:
            self._timeout_at = time.monotonic() + self._options.timeout_seconds

    def _contact(self, placement: Placement) -> None:
        agent = Agent(placement, self._ssh)
        first, last = placement.ranks[0], placement.ranks[-1]
        self._say(
            f"{agent.title} runs rank{'s' if last > first else ''} "
            f"{first}{f' to {last}' if last > first else ''}: {shlex.join(agent.command_line)}"
        )
        agent.start()
        self._agents.append(agent)
        for fd, action in ((agent.stdout_fd, self._hear), (agent.stderr_fd, self._hear_complaint)):
            self._selector.register(fd, selectors.EVENT_READ, lambda act=action: act(agent))

    def _job_frame(self, agent: Agent, job_id: str, secret: str) -> bytes:
        options = self._options
        return frame(
            "job",
            job_id=job_id,
            secret=secret,
            local_sizes=[len(placement.ranks) for placement in self._placements],
            host=self._placements.index(agent.placement),
            command=list(options.command),
            directory=str(Path.cwd()),
            environment=travelling_environment(os.environ),
            own_environment=dict(options.environment),
            grace_seconds=options.grace_seconds,
            bind=options.bind,
            oversubscribe=options.oversubscribe,
            addresses=self._addresses(agent.placement.host),
        )

    def _addresses(self, host: Host) -> list[str]:
        """By what names the others may reach a host, the best first."""
        if not host.is_here:
            return [host.address]
        others = [p.host.address for p in self._placements if not p.host.is_here]
        towards = _own_address_towards(others[0]) if others else None
        names = [] if host.is_localhost else [host.address]
        return [*names, *([towards] if towards else []), socket.gethostname()]

    def _await(self, kind: str, deadline: float) -> None:
        """Until every agent has sent such a frame."""
        while waiting := [agent for agent in self._agents if kind not in agent.answers]:
            refuse_to_start_after(self._early_signals)
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                names = " and ".join(agent.title for agent in waiting)
                raise LaunchError(
                    f"{names} did not answer within {self._start_timeout_seconds:g} s",
                    CANNOT_CONNECT_STATUS,
                )
            self._turn(seconds)

    # While the ranks run

    def wait(self) -> int:
        """Until every rank on every host has ended; returns the exit status, as Launcher.wait()."""
        while any(agent.unfinished for agent in self._agents):
            times = [t for t in (self._timeout_at, self._give_up_at) if t is not None]
            seconds = [max(0.0, t - time.monotonic()) for t in times]
            if (show := self._output.marked.seconds_to_show()) is not None:
                seconds.append(show)
            self._turn(min(seconds, default=None))
            self._output.marked.show_unfinished()
            self._take_step()
        return self._reports.status_with_output(self._status.value)

    def signal(self, signum: int) -> None:
        """Forwards a signal to every rank; a second SIGINT kills them."""
        if not self._running:
            self._early_signals.append(signum)
            return
        if signum == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 2:
                self._give_up_at = time.monotonic() + END_SECONDS_MAX
        self._tell_all(frame("signal", signum=signum))

    def wake_on(self, source: socket.socket) -> None:
        """wait() also wakes when `source` has bytes, and drops them."""
        self._selector.register(source, selectors.EVENT_READ, lambda: drop_bytes(source))

    def _turn(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    def _take_step(self) -> None:
        now = time.monotonic()
        if self._timeout_at is not None and now >= self._timeout_at:
            self._timeout_at = None
            self._report("the job's time limit is over")
            self._failed(TIMED_OUT_STATUS, after_seconds=0)
            self._status.final = True
        if self._give_up_at is not None and now >= self._give_up_at:
            self._give_up_at = None
            for agent in self._agents:
                if agent.unfinished:
                    self._report(f"{agent.title} does not end its ranks: hanging up")
                    agent.process.kill()

    def _tell_all(self, message: bytes, but: Agent | None = None) -> None:
        for agent in self._agents:
            if agent.unfinished and agent is not but:
                self._outbox.put(agent.send, message)

    def _failed(
        self, status: int, after_seconds: float, where: Agent | None = None, killed: bool = False
    ) -> None:
        first = self._status.value == 0
        self._status.take(status, killed)
        if first or after_seconds == 0:
            self._tell_all(frame("end", after_seconds=after_seconds), but=where)

    def _say(self, message: str) -> None:
        if self._verbose:
            self._report(message)

    def _reader_gone(self) -> None:
        self._failed(READER_GONE_STATUS, after_seconds=0, killed=True)

    # What agents say

    def _hear(self, agent: Agent) -> None:
        data = agent.read(agent.stdout_fd)
        if data is None:
            return
        try:
            for fields, content in agent.frames.feed(data):
                self._obey(agent, fields, content)
        except (ValueError, KeyError) as error:
            self._report(f"{agent.title} sent what is no message: {error!r}")
            agent.process.kill()
        if not data:
            self._selector.unregister(agent.stdout_fd)
            self._hang_up(agent)

    def _obey(self, agent: Agent, fields: dict[str, Any], content: bytes) -> None:
        kind = fields["kind"]
        agent.answers[kind] = fields
        if kind == "hello" and fields["version"] != _native.VERSION:
            raise LaunchError(
                f"{agent.title} has farandole {fields['version']}, here it is {_native.VERSION}", 1
            )
        if kind == "refused":
            message = f"{agent.title}: {fields['message']}"
            if not self._running:
                raise LaunchError(message, fields["status"])
            self._report(message)
            agent.unfinished = False
            self._failed(fields["status"], self._options.grace_seconds, agent)
        elif kind == "output" and not self._reports.reader_gone:
            self._output.write(fields["rank"], fields["stream"], content)
        elif kind == "report":
            self._report(f"{agent.title}: {fields['message']}")
        elif kind == "failed":
            grace_seconds = self._options.grace_seconds
            self._failed(fields["status"], grace_seconds, agent, fields["killed"])
        elif kind == "done":
            agent.unfinished = False

    def _hear_complaint(self, agent: Agent) -> None:
        """Standard error of ssh and of the agent itself; ranks' comes in frames."""
        data = agent.read(agent.stderr_fd)
        if data is None:
            return
        if not data:
            self._selector.unregister(agent.stderr_fd)
        elif "hello" in agent.answers:
            for line in data.decode(errors="replace").splitlines():
                self._report(f"{agent.title}: {line}")
        else:
            agent.complaint = (agent.complaint + data)[-COMPLAINT_BYTES_MAX:]

    def _hang_up(self, agent: Agent) -> None:
        if not agent.unfinished:
            return
        agent.unfinished = False
        agent.read_complaint()
        if "hello" not in agent.answers:
            raise agent.why_no_answer()
        message = f"{agent.title}: the connection was lost{agent.how_it_ended()}"
        if not self._running:
            raise LaunchError(message, CANNOT_CONNECT_STATUS)
        self._report(message)
        self._failed(CANNOT_CONNECT_STATUS, self._options.grace_seconds)

    # The end

    def close(self) -> None:
        """Hangs up, which ends what still runs on any host, and gives everything back."""
        self._outbox.close()
        for agent in self._agents:
            agent.hang_up()
        end = time.monotonic() + END_SECONDS_MAX
        for agent in self._agents:
            agent.end(end - time.monotonic())
        self._output.close()
        self._agents.clear()
        self._selector.close()


class _Outbox:
    """Sends messages to agents, and now and then a ping, whatever the main thread waits for."""

    def __init__(self) -> None:
        # put() of this queue, unlike that of others, may be called by a signal handler.
        self._messages: queue.SimpleQueue[tuple[Callable[[bytes], None], bytes] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def start(self, everybody: Sequence[Callable[[bytes], None]]) -> None:
        self._thread = threading.Thread(target=self._run, args=(everybody,), daemon=True)
        self._thread.start()

    def put(self, send: Callable[[bytes], None], message: bytes) -> None:
        self._messages.put((send, message))

    def close(self) -> None:
        if self._thread is not None:
            self._messages.put(None)
            self._thread.join(END_SECONDS_MAX)
            self._thread = None

    def _run(self, everybody: Sequence[Callable[[bytes], None]]) -> None:
        while True:
            try:
                message = self._messages.get(timeout=PING_SECONDS)
            except queue.Empty:
                for send in everybody:
                    send(frame("ping"))
                continue
            if message is None:
                return
            message[0](message[1])


class _RankOutput:
    """Where ranks' output arrives: our own, with or without marks, or files."""

    def __init__(self, options: LaunchOptions, failed: Callable[[OSError], None]) -> None:
        self._options = options
        self._failed = failed
        self.marked = MarkedOutput(failed)
        self._files: dict[tuple[int, int], int] = {}

    def open(self) -> None:
        folder = self._options.output
        if isinstance(folder, OutputFolder):
            count = self._options.rank_count
            for rank in range(count):
                for stream in (1, 2):
                    self._files[rank, stream] = folder.open(rank, stream, count)

    def write(self, rank: int, stream: int, data: bytes) -> None:
        if self._options.output is Output.PREFIX:
            self.marked.write(rank, stream, data)
            return
        try:
            write_all(self._files.get((rank, stream), stream), data)
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        """Passes on unfinished lines. Idempotent."""
        self.marked.close()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def travelling_environment(own: Mapping[str, str]) -> dict[str, str]:
    """What ranks on other hosts get of `own`."""
    return {
        name: value
        for name, value in own.items()
        if (name in TRAVELLING_NAMES or name.startswith(TRAVELLING_PREFIXES))
        and name not in _STAYING_NAMES
    }


def _own_address_towards(host: str) -> str | None:
    """This machine's address on the way to a host; None if that is not known."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None
