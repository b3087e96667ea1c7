# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent: the ranks of one host, on behalf of a `farandole run` on another one.

The two talk in frames over the agent's standard input and output:

    run    → agent   job      command, directory, environment, ranks, secret, ...
                     start    where rank 0 listens
                     signal   forward it to every rank
                     end      SIGTERM after some seconds, then SIGKILL
                     ping     every few seconds, so that the agent notices a dead network
    agent  → run     hello    the version, once
                     refused  why the job cannot run here
                     ready    the command can run; where rank 0 listens, if it is here
                     output   what a rank wrote
                     report   a line for the user
                     failed   a rank's exit status, of the first that failed and of one that was
                              killed after it, at once
                     done     all ranks have ended

When the connection closes or falls silent the agent goes, and its ranks go as those of any
launcher that was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

from farandole.launch.job import LocalJob, Meeting, free_port, listen_for_ranks
from farandole.launch.launcher import (
    NOT_EXECUTABLE_STATUS,
    Launcher,
    LaunchError,
    LaunchOptions,
    forward_signals,
    refuse_crowding,
    resolve_command,
)
from farandole.launch.output import RankStream
from farandole.launch.processes import ignore_warnings, lead_session

# What comes before it on standard output, a login shell has printed.
HELLO_MARK = b"\nfarandole agent speaks\n"
PING_SECONDS = 5.0
SILENCE_SECONDS_MAX = 60.0
_READ_BYTES = 1 << 16
_LOST_STATUS = 255
_LOOPBACK = "127.0.0.1"


def frame(kind: str, data: bytes = b"", **fields: Any) -> bytes:
    """A line of JSON, which says how many bytes of `data` follow it."""
    return json.dumps({"kind": kind, "bytes": len(data), **fields}).encode() + b"\n" + data


class Frames:
    """Cuts a stream into frames again, from `mark` on."""

    def __init__(self, mark: bytes = b"") -> None:
        self._mark = mark
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The frames that `data` completes."""
        self._bytes += data
        if self._mark:
            _, found, rest = bytes(self._bytes).partition(self._mark)
            if not found:
                del self._bytes[: -len(self._mark)]
                return
            self._bytes = bytearray(rest)
            self._mark = b""
        while (end := self._bytes.find(b"\n")) >= 0:
            fields = json.loads(self._bytes[:end])
            last = end + 1 + fields["bytes"]
            if len(self._bytes) < last:
                return
            content = bytes(self._bytes[end + 1 : last])
            del self._bytes[:last]
            yield fields, content


def serve() -> None:
    """Runs the ranks of this host for the `farandole run` at standard input and output."""
    ignore_warnings(signal.SIG_DFL)  # what stands in for ssh may have handed that down
    lead_session()
    connection = _Connection()
    from farandole import _native

    connection.send("hello", mark=HELLO_MARK, version=_native.VERSION)
    job = connection.expect("job")
    try:
        part = _Part(job)
        connection.send("ready", **part.meeting_point)
        options, local_job = part.prepare(connection)
    except LaunchError as error:
        connection.send("refused", message=str(error), status=error.status)
        connection.end_of_input()
    launcher = Launcher(
        options,
        report=lambda message: connection.send("report", message=message),
        job=local_job,
        when_failed=lambda status, killed: connection.send("failed", status=status, killed=killed),
    )
    with forward_signals(launcher, launcher.reap):
        try:
            with launcher, _obedience(connection, launcher):
                launcher.wait()
        except (LaunchError, OSError) as error:
            status = error.status if isinstance(error, LaunchError) else NOT_EXECUTABLE_STATUS
            message = f"cannot start {options.command[0]}: {error}"
            connection.send("refused", message=message, status=status)
            connection.end_of_input()
    connection.send("done")


class _Connection:
    """The standard input and output, which nobody else gets to see from here on.

    Threads   send() from any; the rest from one at a time.
    Errors    When it breaks, this process ends: see _lost().
    """

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        self._frames = Frames()
        self._received: list[dict[str, Any]] = []
        self._sending = threading.Lock()

    def send(self, kind: str, data: bytes = b"", mark: bytes = b"", **fields: Any) -> None:
        view = memoryview(mark + frame(kind, data, **fields))
        try:
            with self._sending:
                while view:
                    view = view[os.write(self._out, view) :]
        except OSError:
            _lost()

    def receive(self) -> dict[str, Any]:
        """The next frame that is not a ping; blocks."""
        while not self._received:
            ready, _, _ = select.select([self._in], [], [], SILENCE_SECONDS_MAX)
            try:
                data = os.read(self._in, _READ_BYTES) if ready else b""
            except OSError:
                data = b""
            if not data:
                _lost()
            frames = (fields for fields, _ in self._frames.feed(data))
            self._received += [fields for fields in frames if fields["kind"] != "ping"]
        return self._received.pop(0)

    def expect(self, kind: str) -> dict[str, Any]:
        fields = self.receive()
        if fields["kind"] != kind:  # the job ended before it began
            _lost()
        return fields

    def end_of_input(self) -> NoReturn:
        """Waits until `farandole run` has read all that we said and hangs up."""
        while True:
            self.receive()


def _lost() -> NoReturn:
    # The ranks die with this process, and the guard ends what they have started. Nothing here
    # could do it better: another thread may be stuck in a write that nobody will read.
    os._exit(_LOST_STATUS)


@contextlib.contextmanager
def _obedience(connection: _Connection, launcher: Launcher) -> Iterator[None]:
    """A thread that does what it is told even while the main thread waits for a slow reader."""
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    delays: list[float] = []

    def end_ranks() -> None:
        while delays:
            launcher.end_after(delays.pop(0))

    def obey() -> None:
        while True:
            order = connection.receive()
            if order["kind"] == "signal":
                os.kill(os.getpid(), order["signum"])  # the handlers forward it
            elif order["kind"] == "end":
                delays.append(order["after_seconds"])
                with contextlib.suppress(OSError):  # all have ended
                    waker.send(b"e")

    with woken, waker:
        launcher.wake_on(woken, end_ranks)
        threading.Thread(target=obey, daemon=True).start()
        yield


class _Part:
    """This host's part of the job: checks what it needs, and listens for rank 0."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._job = job
        sizes, host = job["local_sizes"], job["host"]
        first_rank = sum(sizes[:host])
        self._ranks = range(first_rank, first_rank + sizes[host])
        self._rank_count = sum(sizes)
        try:
            os.chdir(job["directory"])
        except OSError as error:
            raise LaunchError(
                f"cannot enter the working directory {job['directory']}: {error.strerror}",
                NOT_EXECUTABLE_STATUS,
            ) from error
        environment = dict(job["environment"])
        here = os.environ.get("PATH", "")
        if here not in ("", environment.get("PATH")) and "PATH" in environment:
            environment["PATH"] += os.pathsep + here
        os.environ.update(environment)
        self._command = resolve_command(job["command"])
        refuse_crowding(len(self._ranks), job["oversubscribe"])
        self.meeting_point: dict[str, Any] = {}
        self._listener: socket.socket | None = None
        if self._ranks.start == 0:
            self._listen()

    def _listen(self) -> None:
        if len(self._job["local_sizes"]) == 1:
            bound, address, family = _LOOPBACK, _LOOPBACK, socket.AF_INET
        else:
            bound, (address, family) = "", _own_address(self._job["addresses"])
        self._listener = listen_for_ranks(self._rank_count, bound, family)
        self.meeting_point = {
            "address": address,
            "port": self._listener.getsockname()[1],
            "torch_port": free_port(),
        }

    def prepare(self, connection: _Connection) -> tuple[LaunchOptions, LocalJob]:
        """Once every host is ready."""
        start = connection.expect("start")
        meeting = Meeting(
            self._job["job_id"],
            self._job["secret"],
            tuple(self._job["local_sizes"]),
            start["address"],
            start["port"],
            start["torch_port"],
        )
        options = LaunchOptions(
            command=self._command,
            rank_count=self._rank_count,
            environment=self._job["own_environment"],
            output=partial(_SentStream, connection.send),
            grace_seconds=self._job["grace_seconds"],
            bind=self._job["bind"],
        )
        return options, LocalJob(meeting, self._ranks, self._listener)


def _own_address(candidates: list[str]) -> tuple[str, socket.AddressFamily]:
    """This host as the others see it: the first candidate that is no loopback address here.

    Debian gives a machine's own name the address 127.0.1.1, which other hosts cannot reach; then
    it is the address at which ssh has reached this host.
    """
    reached = os.environ.get("SSH_CONNECTION", "").split()[2:3]
    loopback = None
    for candidate in [*candidates, *reached]:
        try:
            found = socket.getaddrinfo(candidate, None, type=socket.SOCK_STREAM)
        except OSError:
            continue  # not a name that this host knows
        family, address = found[0][0], str(found[0][4][0])
        if not address.startswith("127.") and address != "::1":
            return candidate, family
        loopback = loopback or (candidate, family)
    return loopback or (candidates[0], socket.AF_INET)


class _SentStream(RankStream):
    """Sends what comes, as it comes."""

    def __init__(
        self, send: Callable[..., None], rank: int, source_fd: int, target_fd: int
    ) -> None:
        super().__init__(source_fd)
        self._send = partial(send, "output", rank=rank, stream=target_fd)

    def take(self, data: bytes) -> None:
        self._send(data=data)
