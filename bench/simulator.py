# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, and how much memory it takes.

    python bench/simulator.py

The machine resembles ABCI: 4 devices and 2 NICs per host, 32 hosts per rack, a third of a rack's
bandwidth above it. Every row runs in a process of its own. Rows that leap over repeated iterations
are followed by the same without; "messages/s" of the former counts messages that were leapt over.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from farandole import _native

BYTES = 128 * 2**20
NIC = 1.25e10


def machine(hosts: int, thin_core: bool = True) -> _native.Machine:
    nodes = [("switch", "switch"), ("nic0", "nic"), ("nic1", "nic")]
    nodes += [(f"gpu{i}", "gpu") for i in range(4)]
    cost = {"alpha": 4.8e-6, "call": 147e-6, "fill_chunks": 0.4}
    return _native.Machine(
        name="like abci",
        nodes=nodes,
        links=[(node, 0, 3e10, False, 0.0) for node in range(1, len(nodes))],
        devices=[3, 4, 5, 6],
        nic_of=[1, 1, 2, 2],
        hosts=hosts,
        nic_bytes_per_second=NIC,
        hosts_per_rack=32 if thin_core else 0,
        uplinks=32 if thin_core else 0,
        uplink_bytes_per_second=2 / 3 * NIC if thin_core else 0.0,
        hops={"host": {"alpha": 1e-6, "call": 20e-6}, "rack": cost, "fabric": cost},
        copy_seconds_per_byte=1e-11,
    )


def simulator(rank_count: int, thin_core: bool = True) -> _native.Simulator:
    return _native.Simulator(machine(-(-rank_count // 4), thin_core), rank_count, routing="ideal")


def ring(rank_count: int, skip_repeats: bool) -> int:
    schedule = _native.Schedule.build("allreduce", "ring", rank_count)
    result = simulator(rank_count).run(
        [(schedule, BYTES, [], [])], path="rounds", skip_repeats=skip_repeats
    )
    return int(result["messages"])


def factorizations(rank_count: int) -> Iterator[list[int]]:
    """All ordered ways to write a power of two as a product of powers of two."""
    exponent = rank_count.bit_length() - 1
    for cuts in itertools.product((False, True), repeat=exponent - 1):
        factors = [2]
        for cut in cuts:
            if cut:
                factors.append(2)
            else:
                factors[-1] *= 2
        yield factors


def hierarchies(rank_count: int) -> int:
    shared = simulator(rank_count)
    messages = 0
    for factors in factorizations(rank_count):
        layers = "/".join(map(str, factors))
        schedule = _native.Schedule.build("allreduce", f"hierarchical:layers={layers}", rank_count)
        messages += shared.run([(schedule, BYTES, [], [])], path="rounds")["messages"]
    return messages


Call = tuple[_native.Schedule, float, list[int], list[float]]


def arrivals(rank_count: int, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.uniform(0, 1e-3) for _ in range(rank_count)]


def bruck(rank_count: int, thin_core: bool) -> int:
    schedule = _native.Schedule.build("alltoall", "bruck", rank_count)
    call: Call = (schedule, 2**20, [], arrivals(rank_count, 1))
    return int(simulator(rank_count, thin_core).run([call], path="events")["messages"])


def overlap(rank_count: int, thin_core: bool) -> int:
    calls: list[Call] = [
        (_native.Schedule.build(*names, rank_count), 2**20, [], arrivals(rank_count, seed))
        for seed, names in enumerate((("allreduce", "ring"), ("alltoall", "bruck")))
    ]
    return int(simulator(rank_count, thin_core).run(calls)["messages"])


CASES: dict[str, tuple[str, Callable[[], int]]] = {
    "ring-2048": ("ring allreduce, 2,048 ranks", lambda: ring(2048, True)),
    "ring-2048-all": ("  every iteration", lambda: ring(2048, False)),
    "ring-27600": ("ring allreduce, 27,600 ranks", lambda: ring(27600, True)),
    "ring-27600-all": ("  every iteration", lambda: ring(27600, False)),
    "hierarchies": ("1,024 hierarchies of 2,048 ranks", lambda: hierarchies(2048)),
    "bruck": ("bruck alltoall, 16,384 late ranks, one switch", lambda: bruck(16384, False)),
    "bruck-racks": ("  racks, a third above", lambda: bruck(16384, True)),
    "overlap": ("ring and bruck, 1,024 late ranks, one switch", lambda: overlap(1024, False)),
    "overlap-racks": ("  256 ranks, racks, a third above", lambda: overlap(256, True)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", nargs="?", choices=CASES, help="one row; all without")
    case = parser.parse_args().case
    if case is None:
        print(f"{'simulated':46} {'messages':>14} {'seconds':>9} {'messages/s':>12} {'MB':>6}")
        for name in CASES:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    title, run = CASES[case]
    start = time.perf_counter()
    messages = run()
    seconds = time.perf_counter() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rate = f"{messages / seconds:12.3g}"
    print(f"{title:46} {messages:14,} {seconds:9.3f} {rate} {megabytes:6.0f}", flush=True)


if __name__ == "__main__":
    main()
