# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole run --schedule` has every rank take the file's schedule where it fits; ranks
with different files, or of which only some have one, are told so and go on.

Method: three ranks that print what they ran by, from the statistics, and whether it was right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

Start = Callable[..., Job]
Write = Callable[[str], Path]

STAR = Path(__file__).parents[2] / "examples" / "schedules" / "star3.txt"

PROGRAM = """
import numpy as np
import farandole

farandole.init()
rank = farandole.rank()
assert np.array_equal(farandole.allreduce(np.ones(1000)), np.full(1000, 3.0))
fixed = farandole.allreduce(np.ones(10), deterministic=True)
assert np.array_equal(fixed, np.full(10, 3.0))
pair = farandole.split(0 if rank < 2 else 1)
assert np.array_equal(pair.allreduce(np.ones(10)), np.full(10, float(pair.size)))
if rank == 0:
    for label, plan in farandole.statistics()["plans"].items():
        print(label, plan["calls"], sep="|")
"""

UNLIKE = """
import os
if os.environ["FARANDOLE_RANK"] == "1":
    os.environ["FARANDOLE_SCHEDULE"] = os.environ["OTHER"]
import numpy as np
import farandole

farandole.init()
try:
    farandole.allreduce(np.ones(1000))
except farandole.MismatchError as error:
    text = str(error)
else:
    text = "no error"
again = farandole.allreduce(np.ones(1000), algorithm="ring")
assert np.array_equal(again, np.full(1000, 3.0))
print(text)
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_rank_takes_the_file(start: Start, write: Write, transport: str) -> None:
    job = start("-n", 3, "--transport", transport, "--schedule", STAR, write(PROGRAM))
    assert job.finish() == 0, job.stderr
    labels = {line.partition(" ")[2] for line in job.stdout.splitlines()}
    stars = [line for line in job.stdout.splitlines() if line.startswith("allreduce star")]
    assert len(stars) == 1, labels
    # The communicator of two ranks and the call with a fixed order took something else.
    assert sum(line.startswith("allreduce") for line in job.stdout.splitlines()) >= 2


@pytest.mark.parametrize("other", ["another file", "none"])
def test_ranks_with_different_files_are_told(
    start: Start, write: Write, tmp_path: Path, other: str
) -> None:
    path = tmp_path / "other.txt"
    path.write_text(STAR.read_text().replace("scratch 0", "scratch 1"))
    settings = {
        "OTHER": str(path) if other == "another file" else "",
        "FARANDOLE_OPERATION_TIMEOUT": "20",  # what hangs ends, instead of the test
    }
    job = start("-p", "-n", 3, "--schedule", STAR, write(UNLIKE), **settings)
    assert job.finish() == 0, job.stderr
    lines = job.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "ranks disagree on allreduce" in line
        assert "by a registered algorithm" in line


def test_a_file_that_is_wrong_ends_the_start(start: Start, write: Write, tmp_path: Path) -> None:
    program = write("import farandole\nfarandole.init()\n")
    path = tmp_path / "wrong.txt"
    path.write_text(STAR.read_text().replace("from 2", "from 1"))
    job = start("-n", 3, program, FARANDOLE_SCHEDULE=str(path))
    assert job.finish() != 0
    assert f"FARANDOLE_SCHEDULE: schedule file '{path}': the proof fails" in job.stderr
