# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the checks of `farandole bench` find every collective right between real processes, and
notice blocks that went to the wrong rank.

Method: one job runs the measuring part for all collectives, in turn with every root; once more with
blocks exchanged behind the library's back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

Start = Callable[..., Job]
Write = Callable[[str], Path]

HEAD = """
import os
import farandole
from farandole.measure import bench_plan as columns
from farandole.measure.bench_plan import BenchPlan
from farandole.measure.bench_worker import Bench

farandole.init()

def wrong(collective, root=0, deterministic=False):
    op = "sum" if collective in columns.REDUCING else ""
    sizes, places = [0, 4, 600, 30_000], columns.PLACES
    plan = BenchPlan(
        collective, sizes, "float32", op, root, places, False, "", deterministic, 1, 0
    )
    return Bench(plan).run()
"""

ALL = """
for collective in columns.COLLECTIVES:
    roots = range(farandole.size()) if collective in columns.ROOTED else [0]
    for root in roots:
        assert wrong(collective, root) == 0, (collective, root)
for collective in columns.REDUCING:
    assert wrong(collective, deterministic=True) == 0, collective
os.write(1, b"all right\\n")
"""

# Results are those of the next rank: right values of right length at the wrong place.
TURNED = """
from farandole.measure import bench_cases

def turned(self, case):
    rank, size = farandole.rank(), farandole.size()
    received = case.target.copy()
    farandole.sendrecv(received, (rank + 1) % size, case.target, (rank - 1) % size)
    return count_wrong(self, case)

count_wrong, bench_cases.Cases.count_wrong = bench_cases.Cases.count_wrong, turned
for collective in ("reducescatter", "scatter", "alltoall", "sendrecv"):
    assert wrong(collective) > 10_000, collective
os.write(1, b"all noticed\\n")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_is_right(start: Start, write: Write, ranks: int) -> None:
    job = start("-n", str(ranks), write(HEAD + ALL))
    assert job.finish() == 0, job.stderr
    assert job.stdout.count("all right") == ranks


def test_blocks_of_other_ranks_are_noticed(start: Start, write: Write) -> None:
    job = start("-n", "3", write(HEAD + TURNED))
    assert job.finish() == 0, job.stderr
    assert job.stdout.count("all noticed") == 3
