# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Even and odd ranks train two different models at the same time, in two process sets.

    farandole run -n 4 examples/process_sets.py

Each set fits a straight line of its own to points that its ranks see a part of. The global set,
which needs no making, brings the results together.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch
from torch import nn

import farandole.torch as hvd


@dataclass(frozen=True)
class Line:
    slope: float
    offset: float

    def at(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope * x + self.offset


LINES = {"even": Line(2.0, 1.0), "odd": Line(-3.0, 0.5)}
STEPS_PER_EPOCH = 20


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains two models in two process sets.")
    parser.add_argument("--epochs", type=int, default=5)
    return parser.parse_args()


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, line: Line, mine: hvd.ProcessSet
) -> float:
    """The loss of the last step, over the ranks of the set."""
    x = torch.linspace(-1.0, 1.0, 16 * len(mine.ranks or []))[mine.rank() :: mine.size()]
    x = x.unsqueeze(1)
    loss = torch.zeros(())
    for _ in range(STEPS_PER_EPOCH):
        optimizer.zero_grad()
        loss = (model(x) - line.at(x)).square().mean()
        loss.backward()
        optimizer.step()  # waits for the ranks of this set, and for no other
    return hvd.allreduce(loss.detach(), name="loss", process_set=mine).item()


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    if hvd.size() < 2:
        sys.exit("Two process sets need 2 ranks or more: farandole run -n 4 ...")
    torch.set_num_threads(1)
    # Every rank makes both sets, in the same order, and is a member of one.
    sets = {
        "even": hvd.add_process_set(range(0, hvd.size(), 2)),
        "odd": hvd.add_process_set(range(1, hvd.size(), 2)),
    }
    name = "odd" if hvd.rank() % 2 else "even"
    mine = sets[name]

    torch.manual_seed(hvd.rank())  # so that only broadcasts make the ranks of a set start alike
    model = nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.3),
        named_parameters=model.named_parameters(),
        process_set=mine,
    )
    first = hvd.rank() % 2  # the set's first rank; roots are ranks of the job
    hvd.broadcast_parameters(model.state_dict(), root_rank=first, process_set=mine)

    for epoch in range(arguments.epochs):
        loss = train_epoch(model, optimizer, LINES[name], mine)
        losses = hvd.allgather_object((name, loss))  # by all ranks
        if hvd.rank() == 0:
            text = "  ".join(f"{each} loss {value:.6f}" for each, value in losses[:2])
            print(f"epoch {epoch + 1}/{arguments.epochs}  {text}", flush=True)

    own = torch.tensor(hvd.rank())
    in_set = hvd.allreduce(own, op=hvd.Sum, name="ranks", process_set=mine).item()
    in_all = hvd.allreduce(own, op=hvd.Sum, name="ranks").item()
    slope, offset = model.weight.item(), model.bias.item()
    report = (
        f"{name} ranks {mine.ranks}: y = {slope:.2f} x + {offset:.2f}, ranks add up to {in_set}"
    )
    reports = hvd.allgather_object(report)
    if hvd.rank() == 0:
        print("\n".join(reports[:2]))
        print(f"all ranks agree with their sets: {len(set(reports)) == 2}, add up to {in_all}")
    for each in sets.values():
        hvd.remove_process_set(each)
    hvd.shutdown()


if __name__ == "__main__":
    main()
