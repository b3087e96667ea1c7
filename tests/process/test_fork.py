# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a child that was forked from a rank can do the job no harm: whatever it calls is an error
that says so, its end, of whatever kind, is quick and tells nobody anything, and memory, operations
in flight and later collectives of its parent are as if it had never been.

Method: two ranks fork children while another of their threads is in the library; the children call
everything, drop their copies of the rank's arrays and end. A DataLoader with workers, which PyTorch
forks, does what it always does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

Start = Callable[..., Job]


@pytest.mark.parametrize(
    ("how", "transport"), [("exit", "shm"), ("os._exit", "tcp"), ("shutdown", "shm")]
)
def test_a_forked_child_is_told_and_harms_nothing(
    start: Start, programs: Path, how: str, transport: str
) -> None:
    job = start("-n", "2", "python", programs / "forked.py", how, FARANDOLE_TRANSPORT=transport)
    assert job.finish() == 0, job.stderr
    assert job.stderr == ""
    for line in job.stdout.splitlines():
        assert json.loads(line) == {
            "statuses": [0] * 5,
            "request": True,
            "submission": True,
            "sums": [[3.0] * 4] * 3,
            "memory": [True] * 4,
            "after": [3],
        }
    assert len(job.stdout.splitlines()) == 2


TORCH = """
import os, signal, sys
import torch
import torch.multiprocessing
import farandole.torch as hvd
from torch.utils.data import DataLoader, Dataset

hvd.init()
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01),
                                     named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
mine = hvd.ProcessSet([hvd.rank()])
handle = hvd.allreduce_async(torch.ones(4), name="early") if hvd.rank() == 0 else None

class Numbers(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):  # in a worker
        return torch.full((4,), float(index + hvd.rank()))

for _ in range(2):
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

CALLS = {
    "init": hvd.init,
    "allreduce": lambda: hvd.allreduce(torch.ones(4)),
    "allreduce_": lambda: hvd.allreduce_(torch.ones(4)),
    "allreduce_async": lambda: hvd.allreduce_async(torch.ones(4)),
    "grouped": lambda: hvd.grouped_allreduce([torch.ones(4)]),
    "allgather": lambda: hvd.allgather(torch.ones(4)),
    "broadcast": lambda: hvd.broadcast(torch.ones(4), 0),
    "alltoall": lambda: hvd.alltoall(torch.ones(4)),
    "reducescatter": lambda: hvd.reducescatter(torch.ones(4)),
    "join": hvd.join,
    "barrier": hvd.barrier,
    "synchronize": lambda: hvd.synchronize(handle) if handle else hvd.barrier(),
    "poll": lambda: hvd.poll(handle) if handle else hvd.barrier(),
    "broadcast_object": lambda: hvd.broadcast_object(1, 0),
    "broadcast_parameters": lambda: hvd.broadcast_parameters(model.state_dict(), 0),
    "add_process_set": lambda: hvd.add_process_set(mine),
    "training": lambda: (model(torch.ones(4)).sum().backward(), optimizer.step()),
}
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    wrong = []
    for name, call in CALLS.items():
        try:
            call()
            wrong.append(name)
        except ValueError as error:
            if "was forked from rank" not in str(error):
                wrong.append(f"{name}: {error}")
    os.write(2, repr(wrong).encode() if wrong else b"")
    sys.exit(len(wrong))
status = os.waitpid(pid, 0)[1]
if hvd.rank() == 1:
    handle = hvd.allreduce_async(torch.ones(4), name="early")
early = hvd.synchronize(handle).tolist()
weights = hvd.allgather(model.weight.detach().reshape(1, -1))
same = bool((weights[0] == weights[1]).all())
os.write(1, repr((status, early, same)).encode() + bytes([10]))
"""


def test_workers_and_forked_children_of_a_training(
    start: Start, write: Callable[[str], Path]
) -> None:
    pytest.importorskip("torch")
    job = start("-n", "2", "python", write(TORCH))
    assert job.finish() == 0, job.stderr
    assert job.stderr == ""
    assert job.stdout.splitlines() == [repr((0, [1.0] * 4, True))] * 2
