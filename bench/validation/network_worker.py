# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of network.py: times algorithms of collectives, size by size.

Reads from its argument [[collective, bytes, [algorithm, …]], …]. Rank 0 prints a line of JSON per
measurement: collective, algorithm, bytes, seconds (the median over rounds of the slowest rank's).
In a round every algorithm has its turn, so that what disturbs the machine disturbs all alike, in an
order that changes, since what ran before leaves ranks asleep or awake: in one fixed order the same
message took 45 % longer under another name. Who takes how many times as long as the fastest sits
out the rounds of a pass: PASSES. Who sits out the second one at two sizes of SLOW_FROM bytes and
more, larger ones as well, whatever its options.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

import farandole

# For one collective and size: who is no slower than so many times the fastest, for so many seconds,
# in at least so many rounds. All have some rounds first where calls are short: the first time of
# one says little.
PASSES = ((math.inf, 1.0, 0), (2.0, 4.0, 1), (1.2, 12.0, 0))
ROUNDS_MAX = 200  # of a pass
LONG_SECONDS = 1.0  # beside which making plans and connections is nothing
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


def measure(
    calls: dict[str, Callable[[], object]], shuffle: Callable[[list[str]], None]
) -> dict[str, float]:
    """`shuffle` does the same on all ranks."""
    first = {spec: timed(call) for spec, call in calls.items()}  # makes plans and connections
    first |= {spec: timed(calls[spec]) for spec in calls if first[spec] < LONG_SECONDS}
    times = {spec: [seconds] for spec, seconds in first.items()}
    medians = first
    for slack, seconds, rounds_min in PASSES:
        close = [spec for spec in calls if medians[spec] <= slack * min(medians.values())]
        rounds = int(seconds / sum(medians[spec] for spec in close))
        for _ in range(min(max(rounds, rounds_min), ROUNDS_MAX)):
            shuffle(close)
            for spec in close:
                times[spec].append(timed(calls[spec]))
        medians = {spec: statistics.median(seconds) for spec, seconds in times.items()}
    return medians


def main() -> None:
    farandole.init()
    slow: Counter[tuple[str, str]] = Counter()
    turns = random.Random(0)
    for collective, size, specs in json.loads(sys.argv[1]):
        names = {spec: spec.split(":")[0] for spec in specs}
        data = np.ones(size // 4, np.float32)
        out = np.empty_like(data)
        took = measure(
            {
                spec: call_of(collective, data, out, spec)
                for spec in specs
                if slow[collective, names[spec]] < 2
            },
            turns.shuffle,
        )
        for spec, seconds in took.items():
            row = {"collective": collective, "algorithm": spec, "bytes": size, "seconds": seconds}
            if farandole.rank() == 0:
                print(json.dumps(row), flush=True)
        for name in {names[spec] for spec in took}:
            best = min(seconds for spec, seconds in took.items() if names[spec] == name)
            late = size >= SLOW_FROM and best > PASSES[1][0] * min(took.values())
            slow[collective, name] = slow[collective, name] + 1 if late else 0
    farandole.shutdown()


if __name__ == "__main__":
    main()
