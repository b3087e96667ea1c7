# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of network.py: times algorithms of collectives, size by size.

Reads from its argument [[collective, bytes, [algorithm, …]], …]. Rank 0 prints a line of JSON per
measurement: collective, algorithm, bytes, seconds (the median over rounds of the slowest rank's).
In a round every algorithm has its turn, so that what disturbs the machine disturbs all alike. One
that took more than SLACK times as long as the fastest in the first round sits the others out; after
two sizes of SLOW_FROM bytes and more, larger ones as well, whatever its options.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

import farandole

BUDGET_SECONDS = 4.0  # of one collective and size
ROUNDS = (2, 200)
LONG_SECONDS = 1.0  # beside which making plans and connections is nothing
SLACK = 2.0
SLOW_FROM = 64 << 10


def timed(call: Callable[[], object]) -> float:
    """All ranks together; the same on every rank."""
    farandole.barrier()
    start = time.perf_counter()
    call()
    took = np.array([time.perf_counter() - start])
    return float(farandole.allreduce(took, op="max")[0])


def call_of(collective: str, data: np.ndarray, out: np.ndarray, spec: str) -> Callable[[], object]:
    if collective == "broadcast":
        return lambda: farandole.broadcast(data, algorithm=spec)
    return lambda: farandole.allreduce(data, out=out, algorithm=spec)


def measure(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    first = {spec: timed(call) for spec, call in calls.items()}  # makes plans and connections
    first |= {spec: timed(calls[spec]) for spec in calls if first[spec] < LONG_SECONDS}
    close = [spec for spec in calls if first[spec] <= SLACK * min(first.values())]
    rounds = BUDGET_SECONDS / sum(first[spec] for spec in close)
    times = {spec: [seconds] for spec, seconds in first.items()}
    for _ in range(int(min(max(rounds, ROUNDS[0]), ROUNDS[1])) - 1):
        for spec in close:
            times[spec].append(timed(calls[spec]))
    return {spec: statistics.median(seconds) for spec, seconds in times.items()}


def main() -> None:
    farandole.init()
    slow: Counter[tuple[str, str]] = Counter()
    for collective, size, specs in json.loads(sys.argv[1]):
        names = {spec: spec.split(":")[0] for spec in specs}
        data = np.ones(size // 4, np.float32)
        out = np.empty_like(data)
        took = measure(
            {
                spec: call_of(collective, data, out, spec)
                for spec in specs
                if slow[collective, names[spec]] < 2
            }
        )
        for spec, seconds in took.items():
            row = {"collective": collective, "algorithm": spec, "bytes": size, "seconds": seconds}
            if farandole.rank() == 0:
                print(json.dumps(row), flush=True)
        for name in {names[spec] for spec in took}:
            best = min(seconds for spec, seconds in took.items() if names[spec] == name)
            late = size >= SLOW_FROM and best > SLACK * min(took.values())
            slow[collective, name] = slow[collective, name] + 1 if late else 0
    farandole.shutdown()


if __name__ == "__main__":
    main()
