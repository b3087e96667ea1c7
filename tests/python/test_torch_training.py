# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a real training run on four processes is the run of one process, to 1e-4 in every step's
loss; and when a process dies in the middle of it, all others are told which, and do not hang.

Method: examples/digits.py for some epochs, alone and on four ranks, comparing the files of losses;
then a small training loop in which one rank kills itself, before or during its backward pass.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch_checks import TIMEOUT_SECONDS, launch

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
EPOCHS, STEPS_PER_EPOCH = 3, 22

pytestmark = pytest.mark.timeout(3 * TIMEOUT_SECONDS)  # two jobs in one test


def losses(path: Path) -> list[float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["loss"] for row in rows]


def test_digits_on_four_ranks_learns_what_one_process_learns(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    arguments = [str(DIGITS), "--epochs", str(EPOCHS), "--loss-file"]
    alone = subprocess.run(
        [sys.executable, *arguments, str(tmp_path / "alone")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    together = launch(4, *arguments, tmp_path / "together")
    assert together.returncode == 0, together.stderr
    one, four = losses(tmp_path / "alone"), losses(tmp_path / "together")
    assert len(one) == len(four) == EPOCHS * STEPS_PER_EPOCH
    assert four == pytest.approx(one, rel=1e-4)
    assert four[-1] < 0.1 * four[0]
    assert "Digits on 4 ranks" in together.stdout
    assert together.stdout.count("test accuracy") == 1


def test_digits_refuses_a_batch_that_ranks_cannot_share() -> None:
    pytest.importorskip("sklearn")
    job = launch(3, DIGITS, "--batch-size", "64")
    assert job.returncode != 0
    assert "64 cannot be shared evenly by 3 ranks" in job.stderr


TRAINING = """
import json, os, signal, sys
from pathlib import Path

import torch
import farandole.torch as hvd
from farandole.errors import RankFailed

VICTIM, STEP = 1, 3
when, folder = sys.argv[1:]
hvd.init()
folder = Path(folder)
(folder / f"{hvd.rank()}.pid").write_text(str(os.getpid()))
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), bucket_bytes=1)

def die(_):
    os.kill(os.getpid(), signal.SIGKILL)

try:
    for step in range(1000):
        if hvd.rank() == VICTIM and step == STEP:
            if when == "before":
                die(None)
            model[1].weight.register_hook(die)
        optimizer.zero_grad()
        model(torch.ones(8, 64)).square().mean().backward()
        optimizer.step()
except RankFailed as failure:
    told = {"step": step, "rank": failure.rank, "pid": failure.pid, "text": str(failure)}
    try:
        hvd.allreduce(torch.ones(3))
    except RankFailed as again:
        told["again"] = again.rank
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(told))
"""


@pytest.mark.parametrize("when", ["before", "during"])
def test_survivors_of_a_killed_rank_are_told(tmp_path: Path, when: str) -> None:
    program = tmp_path / "training.py"
    program.write_text(TRAINING)
    job = launch(4, program, when, tmp_path)
    assert job.returncode == 128 + signal.SIGKILL, job.stderr
    pid = int((tmp_path / "1.pid").read_text())
    assert not (tmp_path / "1.json").exists()
    for rank in (0, 2, 3):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert told["step"] == 3, told
        assert (told["rank"], told["pid"], told["again"]) == (1, pid, 1), told
        assert "gradient bucket" in told["text"] or "rank 1" in told["text"], told
