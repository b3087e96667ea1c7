# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: who shares a host, and who a core, is found among the ranks that met, whatever mask a rank
has itself and whatever the starter said.

Method: ranks bind themselves as launchers bind them, or get the variables of a starter that knows
little or counts otherwise, and say what the library found. What that leads to, the algorithms that
are chosen, is compared between ranks that have the cores of the machine together and one each.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import DEADLINE_SECONDS, Job

Start = Callable[..., Job]
Write = Callable[[str], Path]
CORES = sorted(os.sched_getaffinity(0))

REPORT = """
import json, os, sys
import farandole
farandole.init()
context, world = farandole.context(), farandole.world()
report = {
    "rank": farandole.rank(),
    "local": [farandole.local_rank(), farandole.local_size()],
    "cross": [farandole.cross_rank(), farandole.cross_size()],
    "shares": context.shares_cores,
    "occupies": context.occupies_host,
    "chosen": [
        world.algorithm(collective, 1 << bits)
        for collective in ("allreduce", "broadcast", "reducescatter")
        for bits in range(2, 26, 2)
    ],
}
farandole.barrier()
farandole.shutdown()
os.write(1, json.dumps(report).encode() + b"\\n")
"""
BIND = """
import os, sys
masks = {masks}
os.sched_setaffinity(0, masks[int(os.environ["FARANDOLE_RANK"])])
"""


def rows(output: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in output.splitlines()), key=lambda row: row["rank"])


def bound(start: Start, write: Write, masks: list[list[int]]) -> list[dict[str, Any]]:
    job = start("-n", str(len(masks)), write(BIND.format(masks=masks) + REPORT))
    assert job.finish() == 0, job.stderr
    return rows(job.stdout)


# Goal: ranks that can have a core each are no crowd, and choose alike; ranks on one core are.
@pytest.mark.skipif(len(CORES) < 2, reason="one core only")
def test_bound_ranks_share_only_what_they_must(start: Start, write: Write) -> None:
    one, other = CORES[:2]
    free = bound(start, write, [[one, other], [one, other]])
    for masks in ([[one], [other]], [[one], [one, other]]):
        for row, like in zip(bound(start, write, masks), free, strict=True):
            assert row == like, masks
    assert not any(row["shares"] for row in free)
    assert all(row["occupies"] for row in free)
    crowd = bound(start, write, [[one], [one], [one, other]])
    assert all(row["shares"] and row["occupies"] for row in crowd)
    assert bound(start, write, [[one], [one]])[0]["chosen"] != free[0]["chosen"]


def started(tmp_path: Path, variables: list[dict[str, str]]) -> list[dict[str, Any]]:
    """One process for each of these; nothing else tells it that it is in a job."""
    program = tmp_path / "report.py"
    program.write_text(REPORT)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = os.environ | {
        "WORLD_SIZE": str(len(variables)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port - 1),
        "FARANDOLE_SECRET": "not much of one",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, program],
            env=common | {"RANK": str(rank)} | own,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, own in enumerate(variables)
    ]
    try:
        outputs = [rank.communicate(timeout=DEADLINE_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * len(ranks)
    return rows("".join(outputs))


# Goal: local numbers say who shares this host. Method: a starter that says nothing of it, also with
# an address that does not look local; one that counts every process as alone; one that leaves gaps.
@pytest.mark.parametrize(
    "said",
    [
        [{}] * 3,
        [{"MASTER_ADDR": socket.gethostname()}] * 3,
        [{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}] * 3,
        [{"LOCAL_RANK": number} for number in ("0", "2", "2")],
    ],
    ids=["nothing", "a name", "alone", "gaps"],
)
def test_local_numbers_come_from_who_met(said: list[dict[str, str]], tmp_path: Path) -> None:
    found = started(tmp_path, said)
    assert [row["local"] for row in found] == [[0, 3], [1, 3], [2, 3]]
    assert [row["cross"] for row in found] == [[0, 1]] * 3


# Goal: local ranks that number a host's processes are kept, in whatever order.
def test_complete_local_ranks_are_kept(tmp_path: Path) -> None:
    whole = {"LOCAL_WORLD_SIZE": "3"}
    found = started(tmp_path, [whole | {"LOCAL_RANK": str(2 - rank)} for rank in range(3)])
    assert [row["local"] for row in found] == [[2, 3], [1, 3], [0, 3]]


# Goal: the same over hosts. Method: two that FARANDOLE_HOST_ID tells apart, while the starter says
# that all ranks are on one.
def test_local_numbers_are_those_of_the_host(tmp_path: Path) -> None:
    said = [
        {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "4", "FARANDOLE_HOST_ID": "ab"[rank // 2]}
        for rank in range(4)
    ]
    found = started(tmp_path, said)
    assert [row["local"] for row in found] == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert [row["cross"] for row in found] == [[0, 2], [0, 2], [1, 2], [1, 2]]
