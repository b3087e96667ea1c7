# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""How long calls take that all ranks of a communicator make together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from farandole.core.communicator import Communicator

_ITERATIONS_MAX, _WARMUP_MAX = 5000, 50


@dataclass(frozen=True)
class Budget:
    """How long to measure for, and how often at least; `iterations` and `warmup` fix the number."""

    seconds: float = 0.5
    warmup_seconds: float = 0.1
    iterations_min: int = 5
    iterations: int | None = None
    warmup: int | None = None


def measure(
    communicator: Communicator, call: Callable[[], Any], budget: Budget
) -> npt.NDArray[np.float64]:
    """Microseconds of the slowest rank, per iteration; the same on all ranks."""
    communicator.barrier()
    first = float(_times(communicator, call, 1).max())
    warmup = budget.warmup
    if warmup is None:
        warmup = min(_WARMUP_MAX, math.floor(budget.warmup_seconds * 1e6 / first))
    estimate = float(np.median(_times(communicator, call, warmup))) if warmup else first
    iterations = budget.iterations
    if iterations is None:
        iterations = math.floor(budget.seconds * 1e6 / estimate)
        iterations = max(budget.iterations_min, min(_ITERATIONS_MAX, iterations))
    return _times(communicator, call, iterations)


def _times(
    communicator: Communicator, call: Callable[[], Any], iterations: int
) -> npt.NDArray[np.float64]:
    clock = time.perf_counter_ns
    times = np.empty(iterations, np.float64)
    for index in range(iterations):
        start = clock()
        call()
        times[index] = clock() - start
    communicator.allreduce(times, times, "max")  # so all ranks go on from the same numbers
    return times / 1e3
