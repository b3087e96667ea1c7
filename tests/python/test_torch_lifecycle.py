# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: however a process stops using farandole.torch, no thread stays behind and nothing hangs.

Method: programs on real ranks that leave in the middle of things, with deadlines.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from torch_checks import launch

RESTART = """
import os
import torch
import farandole
import farandole.torch as hvd

def threads():
    return len(os.listdir("/proc/self/task"))

hvd.init()
hvd.allreduce(torch.ones(100_000), op=hvd.Sum)  # torch's own threads are there from now on
hvd.shutdown()
before = threads()
for _ in range(3):
    half = hvd.ProcessSet([0])
    hvd.init()
    if hvd.size() > 1:
        hvd.init(process_sets=[half])
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    assert threads() > before
    dropped = hvd.allreduce_async(torch.ones(1000))
    hvd.barrier()
    hvd.shutdown()
    assert half.process_set_id is None
    assert threads() == before, (threads(), before)
    try:
        hvd.allreduce(torch.ones(1))
    except farandole.FarandoleError as error:
        assert "not initialized" in str(error), error
    else:
        raise AssertionError("used after shutdown()")
farandole.init()  # and no more: coordinators start with the first call that needs them
idle = threads()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
assert threads() > idle
hvd.barrier()
print("all is well")
"""

EXITS = {
    "exits in the middle": "sys.exit(3)",
    "raises in the middle": "raise ValueError('on purpose')",
    "shuts down in the middle": "hvd.shutdown(); time.sleep(1); sys.exit(3)",
}
LEAVES = """
import sys, time
import torch
import farandole.torch as hvd
from farandole.errors import FarandoleError

hvd.init()
try:
    handles = [hvd.allreduce_async(torch.ones(1000), name=f"tensor {i}") for i in range(20)]
    if hvd.rank() == 1:
        LEAVE
    hvd.allreduce(torch.ones(3), name="never on rank 1")
except FarandoleError as error:
    assert "rank 1" in str(error) or "closed" in str(error), error
    print("told on", hvd.rank(), flush=True)
"""

INTERRUPTED = """
import os, signal, threading, time
import torch
import farandole.torch as hvd

hvd.init()
given = torch.ones(1000)
if hvd.rank() == 0:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        hvd.allreduce_(given, name="late", op=hvd.Sum)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    hvd.broadcast_object("go on", 0)
else:
    assert hvd.broadcast_object(None, 0) == "go on"
    hvd.allreduce_(given, name="late", op=hvd.Sum)
hvd.barrier()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
deadline = time.monotonic() + 20
while given[0] != hvd.size() and time.monotonic() < deadline:
    time.sleep(0.01)
assert given.tolist() == [hvd.size()] * 1000
print("all is well", flush=True)
"""

# Handles and an optimizer that live until the interpreter ends, waited for by nobody; rank 1 never
# asks for some of them, and some fail.
LEFT_OVER = """
import numpy as np
import torch
import farandole
import farandole.torch as hvd

hvd.init()
mine = hvd.rank()
kept = [hvd.allreduce_async(torch.ones(3), name=f"of rank {mine}")]
kept.append(hvd.allgather_async(torch.ones(2)))
sparse = hvd.sparse_allreduce_async(torch.eye(3).to_sparse(), name="sparse")
failing = hvd.allreduce_async(torch.ones(3 + mine), name="disputed")
request = farandole.allreduce_async(np.ones(4))
weight = torch.nn.Parameter(torch.ones(3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
weight.sum().backward()
circle = [kept]
circle.append(circle)
hvd.barrier()
"""


def write(folder: Path, text: str) -> Path:
    program = folder / "program.py"
    program.write_text(text)
    return program


@pytest.mark.parametrize("rank_count", [1, 3])
def test_starting_again(tmp_path: Path, rank_count: int) -> None:
    job = launch(rank_count, write(tmp_path, RESTART))
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("all is well") == rank_count


@pytest.mark.parametrize("how", EXITS)
def test_a_rank_that_leaves(tmp_path: Path, how: str) -> None:
    job = launch(3, write(tmp_path, LEAVES.replace("LEAVE", EXITS[how])))
    assert job.returncode in (1, 3), job.stderr
    assert "Traceback" not in job.stderr or how == "raises in the middle", job.stderr
    assert job.stdout.count("told on") == 2, job.stdout + job.stderr


def test_an_interrupted_wait_does_not_end_the_operation(tmp_path: Path) -> None:
    job = launch(2, write(tmp_path, INTERRUPTED))
    assert job.returncode == 0, job.stderr
    assert job.returncode != 128 + signal.SIGINT
    assert job.stdout.count("all is well") == 2
    assert job.stdout.count("interrupted") == 1


# Goal: no finalizer prints while the interpreter ends.
def test_what_is_left_over_at_exit_says_nothing(tmp_path: Path) -> None:
    job = launch(2, write(tmp_path, LEFT_OVER))
    assert (job.returncode, job.stdout, job.stderr) == (0, "", "")
