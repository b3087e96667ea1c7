# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Gloo through torch.distributed: what measure.hpp does, in Python. Arguments as there."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

BURSTS = 5
if "RIVALS_BOUND" in os.environ:  # as bind_if_asked() in measure.hpp
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(os.environ["FARANDOLE_RANK"]) % len(_cores)]})
SETTLE_SECONDS = 0.3


def call_of(collective: str, data: torch.Tensor, block: torch.Tensor) -> Callable[[], object]:
    if collective == "allreduce":
        return lambda: dist.all_reduce(data)
    if collective == "allreduce_apart":  # it works in place only
        return lambda: (block.copy_(data), dist.all_reduce(block))
    if collective == "broadcast":
        return lambda: dist.broadcast(data, 0)
    if collective == "allgather":
        return lambda: dist.all_gather_into_tensor(data, block)
    return lambda: dist.reduce_scatter_tensor(block, data)


def is_right(collective: str, data: torch.Tensor, block: torch.Tensor) -> bool:
    """One call, with every element checked, on all ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    base = torch.arange(data.numel(), dtype=torch.float32) % 7
    mine = slice(rank * block.numel(), (rank + 1) * block.numel())
    if collective == "allreduce_apart":
        mine = slice(None)
    sums = collective in ("allreduce", "allreduce_apart", "reducescatter")
    data.copy_(base + rank if sums else base if rank == 0 else torch.full_like(base, -1.0))
    if collective == "allgather":
        data.fill_(-1.0)
        block.copy_(base[mine])
    call_of(collective, data, block)()
    wanted = base * ranks + ranks * (ranks - 1) / 2 if sums else base
    scatters = collective in ("allreduce_apart", "reducescatter")
    right = torch.equal(block, wanted[mine]) if scatters else torch.equal(data, wanted)
    wrong = torch.tensor([0 if right else 1])
    dist.all_reduce(wrong)
    data.zero_()
    block.zero_()
    return int(wrong) == 0


def burst(call: Callable[[], object], calls: int) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    spent = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
    dist.all_reduce(spent, op=dist.ReduceOp.MAX)
    return float(spent) / calls


def main() -> None:
    collective = sys.argv[1]
    smallest, largest, factor = (int(argument) for argument in sys.argv[2:5])
    seconds = float(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size, settled = smallest, False
    while size <= largest:
        count, ranks = size // 4, dist.get_world_size()
        size *= factor
        if collective in ("allgather", "reducescatter") and count % ranks:
            continue
        block_count = count if collective == "allreduce_apart" else max(count // ranks, 1)
        data, block = torch.zeros(count), torch.zeros(block_count)
        right = is_right(collective, data, block)
        call = call_of(collective, data, block)
        each = burst(call, 2)
        each = min(each, burst(call, int(min(max(2e-3 / each, 1), 2000))))
        if not settled:
            each = min(each, burst(call, int(max(SETTLE_SECONDS / each, 1))))
            settled = True
        calls = int(min(max(seconds / BURSTS / each, 1), 100_000))
        times = [burst(call, calls) * 1e6 for _ in range(BURSTS)]
        if dist.get_rank() == 0:
            row = {"collective": collective, "bytes": 4 * count, "us": times, "right": right}
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # its threads sometimes outlive it


if __name__ == "__main__":
    main()
