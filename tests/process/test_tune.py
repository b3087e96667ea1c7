# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole tune` measures between the ranks of a job and writes a file by which later jobs
choose.

Method: two real ranks, small sizes; then a job that says what it would take and what it took. How
fast anything is does not matter here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import DEADLINE_SECONDS, Job

from farandole import _native

Start = Callable[..., Job]
COMMAND = [sys.executable, "-m", "farandole.cli", "tune"]
QUICK = ["--end", "4K", "--seconds", "0.002"]

PROGRAM = """
import numpy as np
import farandole
farandole.init()
world = farandole.context().world
for collective in ("allreduce", "allgather"):
    for size in (64, 256, 1024, 4096):
        before = farandole.statistics()["plans"]
        if collective == "allreduce":
            farandole.allreduce(np.ones(size // 4, np.float32))
        else:
            farandole.allgather(np.ones(size // 8, np.float32))
        name = world.algorithm(farandole._native.Collective[collective], size)
        now = farandole.statistics()["plans"]
        took = [plan for plan in now if now[plan] != before.get(plan)]
        assert [plan.split()[:2] for plan in took] == [[collective, name]], took
        if farandole.rank() == 0:
            print(collective, size, name, flush=True)
"""


def tune(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], timeout=DEADLINE_SECONDS, capture_output=True, text=True
    )


def in_file(text: str, collective: str, size_bytes: int) -> str:
    """The first line that matches, read apart from the library."""
    lines = [line.split() for line in text.splitlines() if line.startswith(collective + " ")]
    for _, *conditions, algorithm in lines:
        if size_bytes <= int(conditions[-1].removeprefix("bytes<=")):
            return algorithm
    raise AssertionError(f"no line for {size_bytes} bytes of {collective} in {text}")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_later_jobs_take_what_the_file_says(
    start: Start, write: Callable[[str], Path], tmp_path: Path, transport: str
) -> None:
    file = tmp_path / "file.tuning"
    names = "allreduce,allgather"
    done = tune("-o", file, *QUICK, "--collectives", names, "--transport", transport)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert f"# Measured by farandole tune: 2 ranks on 1 host over {transport}, " in text
    assert _native.check_tuning(text, "file").splitlines()[1:] == text.splitlines()[2:]
    assert f"wrote {file}" in done.stdout
    for size in ("64", "256", "1,024", "4,096"):
        for collective in names.split(","):
            found = re.findall(rf"^ {collective} +{size} +\S+ .*", done.stdout, re.M)
            assert len(found) >= 2
            assert sum(row.split()[-1] in ("file", "both") for row in found) == 1
            assert sum(row.split()[-1] in ("model", "both") for row in found) == 1
    job = start("-n", 2, "--transport", transport, write(PROGRAM), FARANDOLE_TUNING=str(file))
    assert job.finish() == 0, job.stderr
    took = [line.split() for line in job.stdout.splitlines()]
    assert len(took) == 8
    for collective, size, algorithm in took:
        assert algorithm == in_file(text, collective, int(size))


def test_in_a_job_it_measures_that_job(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "file.tuning"
    job = start("-n", 3, *COMMAND, "-o", file, *QUICK, "--collectives", "broadcast")
    assert job.finish() == 0, job.stderr
    assert "broadcast ranks=3 hosts=1 transport=shm bytes<=" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--end", "much"], "'--end': a size is 'much'"),
        (["--end", "32"], "--end is 32, allowed is 64 bytes or more"),
        (["--collectives", "allreduce,barrier"], "--collectives has 'barrier', allowed are all"),
        (["--collectives", "reduce,reduce"], "allowed is each name once"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = tune("-o", tmp_path / "file", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_folder_that_is_not_there_is_refused() -> None:
    done = tune("-o", "/no/such/place/file")
    assert done.returncode == 2
    assert "cannot write /no/such/place/file: No such file or directory" in done.stderr


def test_one_rank_is_refused(start: Start, tmp_path: Path) -> None:
    job = start("-n", 1, *COMMAND, "-o", tmp_path / "file")
    assert job.finish() == 2
    assert "the job has 1 rank, allowed are 2 or more" in job.stderr
