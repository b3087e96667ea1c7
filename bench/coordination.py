# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What coordination costs per training step, with the response cache and without.

    farandole run -n 4 python bench/coordination.py

161 gradients with the sizes of ResNet-50's, submitted one by one in another random order by every
rank in every step. The two coordinators take turns, step by step, in one run. Control time is what
a rank spends inside cycles, waiting for other ranks included; the median over steps of rank 0.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import numpy as np

import farandole
from farandole import _native
from farandole.core.arrays import COLLECTIVE_INDEX, DTYPE_INDEX, REDUCTION_INDEX
from farandole.planning.models import gradients, model


class Job:
    """One coordinator and its tensors."""

    def __init__(self, sizes: list[int], cache_capacity: int) -> None:
        self.coordinator = _native.Coordinator.create(
            farandole.context(), farandole.world().native, cache_capacity=cache_capacity
        )
        self._arrays = [np.ones(size, np.float32) for size in sizes]
        self._control: list[float] = []
        self._step: list[float] = []
        self._talks: list[int] = []

    def step(self, order: list[int]) -> None:
        before = self.coordinator.statistics()
        start = time.perf_counter()
        submissions = []
        for index in order:
            array = self._arrays[index]
            call = (
                *(f"gradient {index}", COLLECTIVE_INDEX["allreduce"], REDUCTION_INDEX["sum"]),
                *(False, DTYPE_INDEX["float32"], [array.size], 0, (1.0, 1.0, False), []),
                *(array.ctypes.data, array.ctypes.data),
            )
            submissions += self.coordinator.submit([call])
        for submission in submissions:
            submission.wait()
        after = self.coordinator.statistics()
        self._step.append(time.perf_counter() - start)
        self._control.append(after["control_seconds"] - before["control_seconds"])
        self._talks.append(after["talks"] - before["talks"])

    def report(self, title: str) -> str:
        return (
            f"{title:<12} control {statistics.median(self._control) * 1e3:8.3f} ms   "
            f"step {statistics.median(self._step) * 1e3:8.2f} ms   "
            f"uncached cycles: first step {self._talks[0]}, later {sum(self._talks[1:])}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--shrink", type=int, default=1, help="divide the tensors' sizes by this")
    arguments = parser.parse_args()
    farandole.init()
    sizes = [max(1, g.elements // arguments.shrink) for g in gradients(model("resnet50"))]
    jobs = {"cache on": Job(sizes, 1024), "cache off": Job(sizes, 0)}
    shuffler = random.Random(farandole.rank())
    for _ in range(arguments.steps):
        for job in jobs.values():
            order = list(range(len(sizes)))
            shuffler.shuffle(order)
            job.step(order)
    if farandole.rank() == 0:
        print(f"{len(sizes)} tensors, {sum(sizes):,} elements, {farandole.size()} ranks")
        for title, job in jobs.items():
            print(job.report(title))
    for job in jobs.values():
        job.coordinator.close()
    farandole.shutdown()


if __name__ == "__main__":
    main()
