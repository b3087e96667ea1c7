# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: when a rank dies, every other rank is told which one, within a second, by the operation
that it has in flight; and afterwards nothing of the job is left on the machine.

Method: four ranks stream allreduces; one of them, chosen by a seed, is killed at a moment that the
seed chooses. FARANDOLE_TEST_FAILURE_RUNS sets the number of runs per transport (20; 100 for a
release), FARANDOLE_TEST_SEED the first seed; the name of each test holds its seed. What the job
held is looked up in /proc before the kill and must be gone from there after the end.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import Job
from traces import known_inodes, shared_memory_names, socket_inodes

Start = Callable[..., Job]

RANKS = 4
RUNS = int(os.environ.get("FARANDOLE_TEST_FAILURE_RUNS", "20"))
FIRST_SEED = int(os.environ["FARANDOLE_TEST_SEED"])
TOLD_WITHIN_SECONDS = 1.0
GONE_WITHIN_SECONDS = 10.0
KILL_WITHIN_SECONDS = 0.05  # of the moment when all ranks are streaming
FAILED_STATUS = 17  # of programs/stream.py
TRANSPORTS = ("shm", "tcp")


def ready(job: Job) -> list[dict[str, Any]]:
    """Waits until all ranks stream; by rank."""
    rows = [json.loads(job.line()) for _ in range(RANKS)]
    assert {row["event"] for row in rows} == {"ready"}, rows
    return sorted(rows, key=lambda row: int(row["rank"]))


def failures(job: Job) -> list[dict[str, Any]]:
    """Waits for the end; what the surviving ranks reported, by rank."""
    job.finish()
    rows = [json.loads(line) for line in job.stdout.splitlines()]
    assert all(row["event"] == "failed" for row in rows), rows
    return sorted(rows, key=lambda row: int(row["rank"]))


class Traces:
    """What a running job holds; nothing_left() once it has ended."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pids = job.processes()
        self._inodes = socket_inodes(self._pids)
        assert len(self._pids) > RANKS
        assert self._inodes & known_inodes()  # else their absence would prove nothing

    def left(self) -> list[object]:
        """Processes, sockets, names of shared memory that are still there."""
        sockets = self._inodes & known_inodes()
        return [*self._job.processes(), *sorted(sockets), *shared_memory_names()]

    def nothing_left(self, within_seconds: float = 0) -> None:
        end = time.monotonic() + within_seconds
        while (left := self.left()) and time.monotonic() < end:
            pass
        assert left == []


def pause_at_random(seed: int) -> random.Random:
    """Lets the stream run for a time that the seed chooses; this is the random moment."""
    chooser = random.Random(seed)
    select.select([], [], [], chooser.uniform(0, KILL_WITHIN_SECONDS))
    return chooser


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RUNS))
def test_killed_rank_is_named_within_a_second(
    start: Start, programs: Path, transport: str, seed: int
) -> None:
    job = start("-n", str(RANKS), "--transport", transport, programs / "stream.py")
    ranks = ready(job)
    traces = Traces(job)
    victim = pause_at_random(seed).randrange(RANKS)
    killed_at = time.monotonic()
    os.kill(ranks[victim]["pid"], signal.SIGKILL)
    rows = failures(job)
    assert [row["rank"] for row in rows] == [r for r in range(RANKS) if r != victim], job.stderr
    for row in rows:
        assert row["culprit"] == victim, row
        assert row["culprit_pid"] == ranks[victim]["pid"]
        assert row["host"]
        assert "allreduce" in row["operation"]
        assert row["at_seconds"] - killed_at < TOLD_WITHIN_SECONDS, row
    assert job.process.returncode == 128 + signal.SIGKILL
    assert f"rank {victim} (pid {ranks[victim]['pid']}) was killed by SIGKILL" in job.stderr
    traces.nothing_left()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
def test_everything_goes_with_a_killed_launcher(
    start: Start, programs: Path, transport: str, wrapped: bool
) -> None:
    # Behind a shell the kernel's parent-death signal ends the shell only; the rank itself must
    # see that its launcher is gone.
    stream = str(programs / "stream.py")
    command = ["bash", "-c", f"{sys.executable} {stream}; true"] if wrapped else [stream]
    job = start("-n", str(RANKS), "--transport", transport, *command)
    ready(job)
    traces = Traces(job)
    job.process.kill()
    traces.nothing_left(within_seconds=GONE_WITHIN_SECONDS)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_silent_rank_is_named_after_the_timeout(
    start: Start, programs: Path, transport: str
) -> None:
    job = start(
        *("-n", str(RANKS), "--transport", transport, "--grace", "0.5"),
        programs / "stream.py",
        FARANDOLE_TIMEOUT="1",
    )
    ranks = ready(job)
    traces = Traces(job)
    os.kill(ranks[2]["pid"], signal.SIGSTOP)
    rows = failures(job)
    assert [row["rank"] for row in rows] == [0, 1, 3]
    assert {row["culprit"] for row in rows} == {2}
    assert all("silent" in row["message"] for row in rows)
    assert job.process.returncode == FAILED_STATUS
    traces.nothing_left()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_ranks_die_at_once(start: Start, programs: Path, transport: str) -> None:
    job = start("-n", str(RANKS), "--transport", transport, programs / "stream.py")
    ranks = ready(job)
    traces = Traces(job)
    for victim in (0, 3):
        os.kill(ranks[victim]["pid"], signal.SIGKILL)
    rows = failures(job)
    # Rank 3 may have been told of rank 0 before its own turn came.
    assert {row["rank"] for row in rows} in ({1, 2}, {1, 2, 3})
    assert {row["culprit"] for row in rows} <= {0, 3}
    traces.nothing_left()


def test_terminated_job_leaves_nothing(start: Start, programs: Path) -> None:
    job = start("-n", str(RANKS), programs / "stream.py")
    ready(job)
    traces = Traces(job)
    job.process.send_signal(signal.SIGTERM)
    job.finish()
    assert job.process.returncode == 128 + signal.SIGTERM
    traces.nothing_left()


def test_interrupted_stream_ends(start: Start, programs: Path) -> None:
    # Python handles Ctrl-C between bytecodes only, so a wait that never returned would hang here.
    job = start("-n", str(RANKS), programs / "stream.py")
    ready(job)
    job.process.send_signal(signal.SIGINT)
    job.finish()
    assert job.process.returncode != 0
    assert job.processes() == []


def test_rank_that_never_joins(start: Start, write: Callable[[str], Path]) -> None:
    source = """
import os, sys
if os.environ["RANK"] == "1":
    sys.exit(3)
import farandole
farandole.init()
"""
    job = start("-n", str(RANKS), "--grace", "0.2", write(source))
    assert job.finish() == 3
    assert job.processes() == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_init_that_fails_late(start: Start, write: Callable[[str], Path], transport: str) -> None:
    """Each rank finds its mistake when it is connected, while it hears that others leave."""
    source = """
import farandole
try:
    farandole.init()
except farandole.InvalidArgumentError as error:
    print(error, flush=True)
"""
    job = start(
        *("-n", str(RANKS), write(source)),
        FARANDOLE_SPIN="100us",
        FARANDOLE_TRANSPORT=transport,
    )
    assert job.finish() == 0, job.stderr
    assert job.stdout.count("FARANDOLE_SPIN is '100us'") == RANKS
