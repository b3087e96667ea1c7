# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: whoever reads, clips or scales gradients after backward() finds averages, also where a
network is idle while a rank computes, so that gradients leave during backward().

Method: three namespaces stand for hosts, with a rank each. Every rank also trains a copy on all
ranks' batches, alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from namespaces import HOSTS, Hosts

DEADLINE_SECONDS = 150.0  # of which starting torch on a busy machine takes most

TRAINING = """
import copy
import torch
import farandole
import farandole.torch as hvd

torch.set_num_threads(1)
hvd.init()
assert not farandole.context().occupies_host
torch.manual_seed(0)
layers = torch.nn.Linear(4, 60), torch.nn.Tanh(), torch.nn.Linear(60, 2)
model = torch.nn.Sequential(*layers).double()
reference = copy.deepcopy(model)
models = (model, reference)
optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in models]
optimizers[0] = hvd.DistributedOptimizer(optimizers[0], bucket_bytes=100)
scalers = [torch.amp.GradScaler("cpu", init_scale=512.0) for _ in models]
for step in range(4):
    data = torch.randn(hvd.size(), 5, 4, dtype=torch.float64)
    for each, optimizer, scaler in zip(models, optimizers, scalers):
        batch = data[hvd.rank()] if each is model else data.flatten(0, 1)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        scaler.scale(each(batch).square().mean()).backward()
        if step > 1:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    for mine, expected in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(mine.data, expected.data, rtol=1e-12, atol=1e-14)
hvd.shutdown()
print("as alone")
"""


@pytest.mark.timeout(DEADLINE_SECONDS + 30)
def test_gradients_are_averages_after_backward(hosts: Hosts, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(TRAINING)
    hosts.start(program)
    assert hosts.finish(DEADLINE_SECONDS) == ["as alone\n"] * HOSTS
