# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of network.py: times algorithms of collectives, size by size.

Reads from its argument [[collective, bytes, [algorithm, …]], …]. Rank 0 prints a line of JSON per
measurement: collective, algorithm, bytes, seconds (the median over iterations of the slowest
rank's). What took more than SLACK times as long as the fastest one, for two sizes one after the
other, is not measured at larger ones, whatever its options.
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

BUDGET_SECONDS = 0.4
ITERATIONS = (3, 50)
LONG_SECONDS = 1.0  # what takes longer is measured once: its plan costs nothing beside it
SLACK = 3.0


def seconds_of(call: Callable[[], object]) -> float:
    """All ranks together; the same on every rank."""

    def once() -> float:
        farandole.barrier()
        start = time.perf_counter()
        call()
        took = np.array([time.perf_counter() - start])
        return float(farandole.allreduce(took, op="max")[0])

    first = once()
    if first > LONG_SECONDS:
        return first
    count = int(min(max(BUDGET_SECONDS / first, ITERATIONS[0]), ITERATIONS[1]))
    return statistics.median(once() for _ in range(count))  # with plan and connections made


def call_of(collective: str, size: int, algorithm: str) -> Callable[[], object]:
    data = np.ones(size // 4, np.float32)
    if collective == "broadcast":
        return lambda: farandole.broadcast(data, algorithm=algorithm)
    out = np.empty_like(data)
    return lambda: farandole.allreduce(data, out=out, algorithm=algorithm)


def main() -> None:
    farandole.init()
    slow: Counter[tuple[str, str]] = Counter()
    for collective, size, algorithms in json.loads(sys.argv[1]):
        took = {}
        for algorithm in algorithms:
            if slow[collective, algorithm.split(":")[0]] >= 2:
                continue
            took[algorithm] = seconds_of(call_of(collective, size, algorithm))
            if farandole.rank() == 0:
                row = {"collective": collective, "algorithm": algorithm, "bytes": size}
                print(json.dumps(row | {"seconds": took[algorithm]}), flush=True)
        fastest = min(took.values())
        best: dict[str, float] = {}
        for algorithm, seconds in took.items():
            name = algorithm.split(":")[0]
            best[name] = min(seconds, best.get(name, seconds))
        for name, seconds in best.items():
            late = seconds > SLACK * fastest
            slow[collective, name] = slow[collective, name] + 1 if late else 0
    farandole.shutdown()


if __name__ == "__main__":
    main()
