# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: FARANDOLE_MACHINE decides what a job's calls take, on all ranks alike; one that cannot be
read is the same error on every rank, and no hang.

Method: real processes print what they would take, and what they took, for two machines between
which the choice differs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

from farandole import _native, machines

Start = Callable[..., Job]
RANKS = 4
BYTES = 2**16

MACHINE = """\
name = "{name}"
[[nodes]]
kind = "cpu"
names = ["a", "b", "c", "d"]
[[nodes]]
kind = "switch"
names = ["switch"]
[[links]]
between = [["a", "switch"], ["b", "switch"], ["c", "switch"], ["d", "switch"]]
rate_GBps = {rate}
[devices]
nodes = ["a", "b", "c", "d"]
[hops.host]
alpha_us = {alpha}
overhead_us = {overhead}
"""
SLOW_ROUNDS = MACHINE.format(name="rounds", rate=100, alpha=1000, overhead=0)
SLOW_MESSAGES = MACHINE.format(name="messages", rate=100, alpha=0.001, overhead=1000)

PROGRAM = f"""
import os, sys
import numpy as np
if os.environ["FARANDOLE_RANK"] != "0":
    os.environ["FARANDOLE_MACHINE"] = sys.argv[1]
import farandole
farandole.init()
allreduce = farandole._native.Collective.allreduce
name = farandole.context().world.algorithm(allreduce, {BYTES})
farandole.allreduce(np.ones({BYTES // 4}, np.float32))
took = [plan.split()[1] for plan in farandole.statistics()["plans"] if "allreduce" in plan]
print("takes", name, *took, flush=True)
"""
FAILING = """
import farandole
try:
    farandole.init()
except farandole.InvalidArgumentError as error:
    print("refused:", error, "|", farandole.is_initialized(), flush=True)
"""


def lines(job: Job) -> list[str]:
    assert job.finish() == 0, job.stderr
    found = [line.partition(" ")[2] for line in job.stdout.splitlines()]
    assert len(found) == RANKS
    return found


# Goal: the choice follows the machine and is the same on all ranks, whatever their own environment
# says. Method: two machines; ranks other than 0 name a file that is not there.
def test_all_ranks_choose_by_rank_0s_machine(
    start: Start, write: Callable[[str], Path], tmp_path: Path
) -> None:
    program, chosen = write(PROGRAM), []
    for text in (SLOW_ROUNDS, SLOW_MESSAGES):
        file = tmp_path / "machine.toml"
        file.write_text(text)
        job = start("-p", "-n", RANKS, program, "/not/there.toml", FARANDOLE_MACHINE=str(file))
        machine = machines.load(file).machine()
        name = _native.choose(machine, "allreduce", BYTES, RANKS)
        assert lines(job) == [f"takes {name} {name}"] * RANKS
        chosen.append(name)
    assert chosen[0] != chosen[1]


def test_without_it_typical_costs_decide(start: Start, write: Callable[[str], Path]) -> None:
    name = _native.choose(_native.default_machine(RANKS, 1), "allreduce", BYTES, RANKS)
    job = start("-p", "-n", RANKS, write(PROGRAM), "", FARANDOLE_MACHINE="")
    assert lines(job) == [f"takes {name} {name}"] * RANKS


def test_a_machine_of_the_package_by_name(start: Start, write: Callable[[str], Path]) -> None:
    name = _native.choose(machines.load("sierra").machine(), "allreduce", BYTES, RANKS)
    job = start("-p", "-n", RANKS, write(PROGRAM), "", FARANDOLE_MACHINE="sierra")
    assert lines(job) == [f"takes {name} {name}"] * RANKS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SLOW_ROUNDS.replace("alpha_us = ", "alpha_us = -"), "machine.toml:14: hops.host.alpha"),
        (SLOW_ROUNDS.replace("[devices]", "[device]"), "machine.toml:11: unknown key 'device'"),
        (None, "cannot read the machine file"),
    ],
)
def test_one_that_cannot_be_read_is_an_error_on_every_rank(
    start: Start, write: Callable[[str], Path], tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "machine.toml"
    if text is not None:
        file.write_text(text)
    found = lines(start("-p", "-n", RANKS, write(FAILING), FARANDOLE_MACHINE=str(file)))
    assert len(set(found)) == 1
    assert found[0].startswith("refused: FARANDOLE_MACHINE: ")
    assert found[0].endswith("| False")
    assert message in found[0]
