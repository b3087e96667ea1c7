# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole probe` measures between the ranks of a job, on one host and on several, and
writes a machine file that is read again.

Method: small jobs over shared memory, over TCP, with hosts that exist by name only, and in network
namespaces. What the figures are depends on the machine; that they are there, and what they are
about, does not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import DEADLINE_SECONDS, Job

from farandole import machines
from namespaces import HOSTS, Hosts

Start = Callable[..., Job]

# The command of a rank, after it has chosen the host that it belongs to.
ON_TWO_HOSTS = """
import os, sys
os.environ["FARANDOLE_HOST_ID"] = f"host {int(os.environ['FARANDOLE_RANK']) // 2}"
sys.argv = ["farandole", "probe", "-o", sys.argv[1], "--json", sys.argv[2], "--end", "64K"]
from farandole.cli import main
main()
"""
IN_A_NAMESPACE = """
import sys
sys.argv = ["farandole", "probe", "-o", {path!r}, "--end", "64K", "--name", "spaces"]
from farandole.cli import main
main()
"""
COMMAND = [sys.executable, "-m", "farandole.cli", "probe"]


def probe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], timeout=DEADLINE_SECONDS, capture_output=True, text=True
    )


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_by_itself_it_starts_ranks(transport: str, tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    done = probe("-n", 3, "-o", file, "--end", "64K", "--transport", transport)
    assert done.returncode == 0, done.stderr
    description = machines.load(file)
    machine = description.machine()
    assert (machine.hosts, machine.devices_per_host) == (1, 3)
    assert transport in description.summary
    assert set(machine.hops["host"]["ring_rates"]) == {(3, 0)}
    assert all(link.bytes_per_second > 0 for link in machine.links)
    assert machine.reduce_seconds_per_byte > 0
    assert machine.copy_seconds_per_byte > 0
    assert done.stdout.count("within a host   exchange") == 6  # 0 B to 64 KiB
    assert done.stdout.count("within a host   allreduce") == 6
    assert f"wrote {file}" in done.stdout
    cores = sorted(os.sched_getaffinity(0))
    times = re.findall(r"^ *(\d+) +(\d+) +(\d+) ns *$", done.stdout, re.M)
    assert [(int(a), int(b)) for a, b, _ in times] == [(cores[0], core) for core in cores[1:65]]
    assert all(int(ns) > 0 for *_, ns in times)


# Goal: in a job it measures between that job's ranks, within hosts and between them, one pair and
# all of them. Method: 4 ranks that believe to be on two hosts.
def test_ranks_of_a_job_on_two_hosts(
    start: Start, write: Callable[[str], Path], tmp_path: Path
) -> None:
    file, times = tmp_path / "machine.toml", tmp_path / "times.json"
    job = start("-n", 4, "--transport", "tcp", write(ON_TWO_HOSTS), file, times)
    assert job.finish() == 0, job.stderr
    machine = machines.load(file).machine()
    assert (machine.hosts, machine.devices_per_host) == (2, 2)
    assert machine.nic_bytes_per_second > 0
    assert [name for name, kind in machine.nodes if kind == "nic"] == ["nic"]
    measured = json.loads(times.read_text())
    lines, samples = measured["lines"], measured["samples"]
    cores = sorted(os.sched_getaffinity(0))
    assert [(line["core"], line["other"]) for line in lines] == [
        (cores[0], core) for core in cores[1:65]
    ]
    assert all(0 < line["seconds"] < 1e-3 for line in lines)
    assert {(s["hop"], s["ranks"], s["groups"]) for s in samples} == {
        ("host", 2, 1),
        ("rack", 2, 1),
        ("rack", 2, 2),
    }
    assert all(sample["seconds"] > 0 for sample in samples)


def test_hosts_in_namespaces(hosts: Hosts, tmp_path: Path) -> None:
    program, file = tmp_path / "program.py", tmp_path / "machine.toml"
    program.write_text(IN_A_NAMESPACE.format(path=str(file)))
    hosts.start(program)
    assert "between hosts" in hosts.finish()[0]
    machine = machines.load(file).machine()
    assert (machine.name, machine.hosts, machine.devices_per_host) == ("spaces", HOSTS, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--end", "1K"], "--end is 1024, allowed is 64K or more"),
        (["--end", "much"], "a size is 'much'"),
        (
            ["--json", "/no/such/place/times.json"],
            "cannot write /no/such/place/times.json: No such file or directory",
        ),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = probe("-o", tmp_path / "machine.toml", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


# Goal: hosts with unequal numbers of ranks are refused, as a machine file cannot say it.
# Method: 3 ranks, two on one host and one on the other.
def test_unequal_hosts_are_refused(
    start: Start, write: Callable[[str], Path], tmp_path: Path
) -> None:
    job = start("-n", 3, "--transport", "tcp", write(ON_TWO_HOSTS), tmp_path / "m", tmp_path / "t")
    assert job.finish() == 2
    assert "hosts have 1 to 2 ranks, allowed is as many on each" in job.stderr


def test_one_rank_is_refused(start: Start, tmp_path: Path) -> None:
    job = start("-n", 1, sys.executable, "-m", "farandole.cli", "probe", "-o", tmp_path / "m.toml")
    assert job.finish() == 2
    assert "the job has 1 rank, allowed are 2 or more" in job.stderr
