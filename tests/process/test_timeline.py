# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: every rank of a job writes down what its tensors did, and the files can be read, also when
a rank was killed.

Method: real jobs that exchange named tensors in random orders, some killed with SIGKILL; the files
are read by the commands that users have.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from launched import Job
from typer.testing import CliRunner

from farandole.cli.app import app

Start = Callable[..., Job]
Write = Callable[[str], Path]

RANKS = 3
TENSORS, STEPS = 12, 20
PROGRAM = f"""
import os, random, sys, time
import torch
import farandole.torch as hvd

hvd.init()
tensors = [torch.ones(1000) for _ in range({TENSORS})]
shuffler = random.Random(hvd.rank())
endless = len(sys.argv) > 1
step = 0
while endless or step < {STEPS}:
    order = list(range({TENSORS}))
    shuffler.shuffle(order)
    handles = [hvd.allreduce_async_(tensors[i], name=f"tensor {{i}}") for i in order]
    for handle in handles:
        hvd.synchronize(handle)
    step += 1
    if endless and step == {STEPS}:
        os.write(1, f"{{hvd.rank()}} {{os.getpid()}}\\n".encode())
hvd.shutdown()
"""


def files_of(folder: Path) -> list[str]:
    return [str(folder / f"t.rank-{rank}.json") for rank in range(RANKS)]


def test_files_tell_what_every_rank_did(start: Start, write: Write, tmp_path: Path) -> None:
    job = start("-n", RANKS, "--timeline-filename", tmp_path / "t.json", write(PROGRAM))
    assert job.finish() == 0, job.stderr
    files, table = files_of(tmp_path), tmp_path / "summary.json"
    result = CliRunner().invoke(app, ["trace", "summary", *files, "--json", str(table)])
    assert result.exit_code == 0, result.output
    assert json.loads(table.read_text())
    assert "collective" in result.output
    merged = tmp_path / "all.json"
    result = CliRunner().invoke(app, ["trace", "merge", *files, "-o", str(merged)])
    assert result.exit_code == 0, result.output
    events = json.loads(merged.read_text())["traceEvents"]
    done = [event for event in events if event["name"] == "collective"]
    assert len(done) == RANKS * TENSORS * STEPS
    assert len({event["pid"] for event in done}) == RANKS


def test_files_are_whole_after_a_kill(start: Start, write: Write, tmp_path: Path) -> None:
    job = start(
        *("-n", RANKS, "--grace", "1", "--timeline-filename", tmp_path / "t.json"),
        *(write(PROGRAM), "endless"),
    )
    pids = dict(map(int, job.line().split()) for _ in range(RANKS))
    time.sleep(0.5)  # some flushes
    os.kill(pids[1], signal.SIGKILL)
    assert job.finish() != 0
    for file in files_of(tmp_path):
        assert json.loads(Path(file).read_text())["traceEvents"], file
    result = CliRunner().invoke(app, ["trace", "summary", *files_of(tmp_path)])
    assert result.exit_code == 0, result.output


SWITCHED = """
import sys
import torch
import farandole.torch as hvd

hvd.init()

def refused(call, *arguments):
    try:
        call(*arguments)
    except ValueError:
        return True
    return False

hvd.allreduce(torch.ones(3), name="before")
assert refused(hvd.stop_timeline)
assert refused(hvd.start_timeline, "/nowhere/at/all.json")
hvd.start_timeline(sys.argv[1])
assert refused(hvd.start_timeline, sys.argv[1])
hvd.allreduce(torch.ones(3), name="during")
hvd.barrier()
hvd.stop_timeline()
hvd.allreduce(torch.ones(3), name="after")
"""


def test_recording_is_switched_on_and_off(start: Start, write: Write, tmp_path: Path) -> None:
    job = start("-n", 2, write(SWITCHED), tmp_path / "{rank}.json")
    assert job.finish() == 0, job.stderr
    for rank in range(2):
        text = (tmp_path / f"{rank}.json").read_text()
        assert json.loads(text)
        assert '"during"' in text
        assert '"before"' not in text
        assert '"after"' not in text
