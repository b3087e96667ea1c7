# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a blocking allreduce of 4 bytes costs from Python, on NumPy and on torch, beside Gloo's.

    farandole run -n 2 [--bind] python bench/calls.py [--json FILE]

Kinds of calls take turns in bursts; a burst takes what its slowest rank takes, and the median over
bursts is shown. `alone` is the same call on a communicator of this rank only: what Python and the
way into the library cost. `named` goes through farandole.torch and its coordinator. The rows of
torch are left out where torch is not installed. Ranks are said to be bound where no two may use the
same core.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import farandole

Call = Callable[[], object]


def numpy_calls() -> dict[str, Call]:
    world = farandole.world()
    alone = world.split(world.rank)
    assert alone is not None
    array = np.zeros(1, np.float32)
    return {
        "numpy, in place": lambda: farandole.allreduce(array, array),
        "numpy, new result": lambda: farandole.allreduce(array),
        "numpy, in place, alone": lambda: alone.allreduce(array, array),
        "numpy, new result, alone": lambda: alone.allreduce(array),
    }


def torch_calls() -> dict[str, Call]:
    import torch
    import torch.distributed as dist

    import farandole.torch as hvd

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    hvd.init()
    dist.init_process_group("gloo")
    world = farandole.world()
    alone = world.split(world.rank)
    assert alone is not None
    tensor = torch.zeros(1)
    return {
        "torch, in place": lambda: farandole.allreduce(tensor, tensor),
        "torch, new result": lambda: farandole.allreduce(tensor),
        "torch, in place, alone": lambda: alone.allreduce(tensor, tensor),
        "torch, named": lambda: hvd.allreduce_(tensor, name="tensor"),
        "torch, Gloo": lambda: dist.all_reduce(tensor),
    }


def burst(call: Call, calls: int) -> float:
    """Microseconds per call on this rank."""
    farandole.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def are_bound() -> bool:
    """Whether every core is for one rank only. Collective."""
    mine = np.zeros(os.sysconf("SC_NPROCESSORS_CONF"), np.int32)
    mine[list(os.sched_getaffinity(0))] = 1
    return bool(farandole.allreduce(mine, op="sum").max() == 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="bursts of each kind")
    parser.add_argument("--calls", type=int, default=2000, help="calls in a burst")
    parser.add_argument("--json", type=Path, help="file for every burst")
    arguments = parser.parse_args()
    farandole.init()
    calls = numpy_calls()
    if importlib.util.find_spec("torch") is not None:
        calls |= torch_calls()
    for call in calls.values():
        burst(call, arguments.calls // 10)
    us = np.array(
        [[burst(call, arguments.calls) for call in calls.values()] for _ in range(arguments.rounds)]
    )
    us = farandole.allreduce(us, op="max")
    bound = "bound" if are_bound() else "unbound"
    if farandole.rank() == 0:
        load = os.getloadavg()[0]
        print(f"{farandole.size()} {bound} ranks on {os.cpu_count()} cores, load {load:.1f}")
        rows = {name: [float(x) for x in us[:, index]] for index, name in enumerate(calls)}
        for name, samples in rows.items():
            print(f"{name:<26}{statistics.median(samples):9.2f} us   best {min(samples):8.2f} us")
        if arguments.json is not None:
            row = {"ranks": farandole.size(), "ranks_are": bound, "load": load, "us": rows}
            arguments.json.write_text(json.dumps(row) + "\n")
    farandole.shutdown()
    os._exit(0)  # Gloo's threads sometimes outlive their process group


if __name__ == "__main__":
    main()
