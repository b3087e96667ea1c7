# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank at a random moment of a job's start, and judges what the others say of it.

As a program it runs a campaign and prints what came of it:
python tests/process/startup_kills.py KIND RANKS RUNS [SEED]
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tools"))

PROGRAM = Path(__file__).parent / "programs" / "start_together.py"
KINDS = ("shm", "tcp", "hosts")  # hosts: two network namespaces, ranks in turn on either
START_TIMEOUT_SECONDS = 6.0
# A rank may take so long to say who died, from the death or from when it would have needed it.
NAMED_WITHIN_SECONDS = 2.0
DEADLINE_SECONDS = 120.0

Row = dict[str, Any]


def free_port() -> int:
    """One that the system gives to no outgoing connection meanwhile."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass
class Start:
    """One start of a job whose ranks wait for go()."""

    kind: str
    ranks: int
    hosts: Any = None  # Hosts, for the kind hosts
    extra: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    pids: dict[int, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        host_count = 2 if self.kind == "hosts" else 1
        address = "10.77.0.1" if self.kind == "hosts" else "127.0.0.1"
        environment = {
            "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": address,
            "MASTER_PORT": "29500",
            "FARANDOLE_RENDEZVOUS": f"{address}:{29501 if self.hosts else free_port()}",
            "FARANDOLE_SECRET": uuid.uuid4().hex,
            "FARANDOLE_START_TIMEOUT": str(START_TIMEOUT_SECONDS),
            "FARANDOLE_TRANSPORT": "tcp" if self.kind == "tcp" else "auto",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        for host in range(host_count):
            mine = [str(rank) for rank in range(self.ranks) if rank % host_count == host]
            prefix = ["ip", "netns", "exec", f"{self.hosts.mark}{host}"] if self.hosts else []
            self.processes.append(
                subprocess.Popen(
                    [*prefix, sys.executable, str(PROGRAM), *mine],
                    env=os.environ | environment | self.extra,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            )
        self.buffers = {p.stdout: b"" for p in self.processes}
        self._read(lambda: len(self.pids) == self.ranks)

    def _read(self, enough: Any) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while not enough() and self.buffers and time.monotonic() < end:
            for pipe in select.select(list(self.buffers), [], [], 1)[0]:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    del self.buffers[pipe]
                    continue
                *lines, self.buffers[pipe] = (self.buffers[pipe] + data).split(b"\n")
                for line in lines:
                    row = json.loads(line)
                    self.rows.append(row)
                    if row["event"] == "pid":
                        self.pids[row["rank"]] = row["pid"]
        assert enough() or not self.buffers, f"nothing more within {DEADLINE_SECONDS} s"

    def go(self) -> float:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        return time.monotonic()

    def until_ready(self) -> float:
        """When the last rank was ready."""
        self._read(lambda: sum(row["event"] == "ready" for row in self.rows) == self.ranks)
        return max(row["at_seconds"] for row in self.rows if row["event"] == "ready")

    def until_over(self) -> None:
        self._read(lambda: False)

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@dataclass
class Outcome:
    """What the survivors of one kill said."""

    seed: int
    victim: int
    at_seconds: float  # of the kill, after go()
    phase: str  # absent: it had not come to rank 0; starting; running
    delays: list[float] = field(default_factory=list)  # of naming it, by survivor
    complaints: list[str] = field(default_factory=list)


def start_seconds(kind: str, ranks: int, hosts: Any = None) -> float:
    """How long a start takes that nobody disturbs."""
    start = Start(kind, ranks, hosts)
    try:
        began = start.go()
        return start.until_ready() - began
    finally:
        start.end()


def kill_one(seed: int, kind: str, ranks: int, within_seconds: float, hosts: Any = None) -> Outcome:
    chooser = random.Random(seed)
    victim, moment = chooser.randrange(ranks), chooser.uniform(0, within_seconds)
    start = Start(kind, ranks, hosts)
    try:
        began = start.go()
        while time.monotonic() < began + moment:
            pass
        os.kill(start.pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        start.until_over()
    finally:
        start.end()
    return judge(Outcome(seed, victim, moment, ""), start.rows, ranks, began, killed)


def judge(outcome: Outcome, rows: list[Row], ranks: int, began: float, killed: float) -> Outcome:
    victim = outcome.victim
    failed = {row["rank"]: row for row in rows if row["event"] == "failed"}
    absent = any("did not come" in r["message"] or "did not find" in r["message"]
                 for r in failed.values())  # fmt: skip
    ready = any(row["event"] == "ready" for row in rows)
    outcome.phase = "absent" if absent else "running" if ready else "starting"
    for rank in range(ranks):
        if rank == victim:
            continue
        if (row := failed.get(rank)) is None:
            outcome.complaints.append(f"rank {rank} said nothing")
            continue
        # Who was never heard of is missed when the time is up.
        alone = "did not come" in row["message"] or "did not find" in row["message"]
        missed = began + START_TIMEOUT_SECONDS if alone else killed
        outcome.delays.append(max(0.0, row["at_seconds"] - missed))
        named = row["culprit"] == victim or row["message"].startswith(f"rank {victim} of ")
        named |= victim == 0 and "did not find rank 0 " in row["message"]
        if not named:
            outcome.complaints.append(f"rank {rank} blames another: {row['message']}")
        if alone and row["at_seconds"] > began + START_TIMEOUT_SECONDS + NAMED_WITHIN_SECONDS:
            outcome.complaints.append(f"rank {rank} waited too long: {row['message']}")
    return outcome


def main() -> int:
    kind, ranks, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    first = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(10**6)
    hosts = None
    if kind == "hosts":
        from namespaces import Hosts

        hosts = Hosts(2)
        hosts.build()
    try:
        within = 1.2 * start_seconds(kind, ranks, hosts)
        outcomes = []
        for seed in range(first, first + runs):
            outcomes.append(kill_one(seed, kind, ranks, within, hosts))
            last = outcomes[-1]
            if last.complaints or max(last.delays, default=0) > NAMED_WITHIN_SECONDS:
                longest = max(last.delays, default=0)
                print(f"seed {seed}: rank {last.victim} killed after {last.at_seconds:.3f} s, "
                      f"{last.phase}, longest {longest:.2f} s", flush=True)  # fmt: skip
                print(*last.complaints[:4], f"{len(last.complaints)} complaints", sep="\n  ")
    finally:
        if hosts is not None:
            hosts.remove()
    delays = sorted(delay for outcome in outcomes for delay in outcome.delays)
    phases = [outcome.phase for outcome in outcomes]
    print(
        f"{kind} {ranks} ranks: {runs} kills within {within:.2f} s, seeds from {first}; "
        + ", ".join(f"{phases.count(p)} {p}" for p in ("absent", "starting", "running"))
        + f"; {len(delays)} survivors spoke, median {delays[len(delays) // 2]:.2f} s, "
        f"longest {delays[-1]:.2f} s, {sum(d > NAMED_WITHIN_SECONDS for d in delays)} late; "
        f"{sum(len(o.complaints) for o in outcomes)} complaints"
    )
    return any(outcome.complaints for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
