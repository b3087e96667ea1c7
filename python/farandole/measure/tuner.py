# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures algorithms between the running ranks, and says which of them calls should take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farandole import _native
from farandole.core import job
from farandole.core.communicator import Communicator
from farandole.measure.bench_cases import Cases
from farandole.measure.bench_plan import BenchPlan, elements_per_rank, size_of_row
from farandole.measure.timing import Budget, measure
from farandole.report.plan import time_text
from farandole.report.tables import Row

_DTYPE, _ITEM_BYTES = "float32", 4
_NEAR = 3.0  # times the best prediction
_CANDIDATES_MIN = 4
_SMALL_BYTES = 64 << 10  # below, every algorithm without layers is tried,
_CHEAP_SECONDS = 10e-3  # if it is predicted to take no longer
_PASSES = 2  # over the candidates in turn, so that a disturbance does not hit one alone
_AS_FAST = 1.03


@dataclass(frozen=True)
class Timing:
    algorithm: str
    predicted: float  # seconds
    measured: float  # seconds: the median of the slowest rank's


@dataclass(frozen=True)
class Choice:
    """One collective and size: what was tried, and what calls should take."""

    collective: str
    size_bytes: int
    algorithm: str
    model: str  # what the model alone would take
    timings: tuple[Timing, ...]  # fastest first


@dataclass(frozen=True)
class Shape:
    """Of the job, as tuning files describe it."""

    ranks: int
    hosts: int
    transport: str

    def __str__(self) -> str:
        hosts = "1 host" if self.hosts == 1 else f"{self.hosts} hosts"
        return f"{self.ranks} ranks on {hosts} over {self.transport}"


class Tuner:
    """Collective: all ranks of the world make one and run it; all get the same choices."""

    def __init__(self, world: Communicator, budget: Budget) -> None:
        self._world, self._budget = world, budget
        hosts = job.cross_size()
        local = np.array([job.local_size()], np.int64)
        world.allreduce(local, local, "max")
        self._local = int(local[0])
        transport = _native.setting("FARANDOLE_TRANSPORT")
        self.shape = Shape(world.size, hosts, _native.transport_for(transport, hosts == 1))
        given = job.machine()
        self._machine = given or _native.default_machine(self._local, hosts, transport)

    def run(self, collectives: Sequence[str], sizes: Sequence[int]) -> Iterator[Choice]:
        for collective in collectives:
            done = set()
            for size in sizes:
                count = elements_per_rank(collective, size, _ITEM_BYTES, self._world.size)
                size_bytes = size_of_row(collective, count, _ITEM_BYTES, self._world.size)
                if count > 0 and size_bytes not in done:
                    done.add(size_bytes)
                    yield self._choose(collective, count, size_bytes)

    def _choose(self, collective: str, count: int, size_bytes: int) -> Choice:
        plans = _native.plan(
            self._machine,
            collective,
            size_bytes,
            self._world.size,
            ranks_per_host=self._local,
        )
        model = next(plan["algorithm"] for plan in plans if plan["chosen"])
        tried = candidates(plans, size_bytes)
        samples: dict[str, list[float]] = {plan["algorithm"]: [] for plan in tried}
        for _ in range(_PASSES):
            for algorithm, times in samples.items():
                times += self._times(collective, algorithm, count)
        timings = [
            Timing(p["algorithm"], p["seconds"], float(np.median(samples[p["algorithm"]])) / 1e6)
            for p in tried
        ]
        timings.sort(key=lambda timing: timing.measured)
        return Choice(collective, size_bytes, winner(timings, model), model, tuple(timings))

    def _times(self, collective: str, algorithm: str, count: int) -> list[float]:
        plan = BenchPlan(
            collective=collective,
            sizes=(),
            dtype=_DTYPE,
            op="sum",
            root=0,
            places=(),
            owned=False,
            algorithm=algorithm,
            deterministic=False,
            iterations=None,
            warmup=None,
        )
        cases = Cases(self._world, plan)
        case = cases.make(count, in_place=False)
        cases.prepare(case)
        return [float(time) for time in measure(self._world, case.call, self._budget)]


def candidates(plans: Sequence[dict[str, Any]], size_bytes: int) -> list[dict[str, Any]]:
    """What is worth measuring of a plan's candidates, which come fastest first."""
    near = _NEAR * plans[0]["seconds"]
    small = size_bytes < _SMALL_BYTES

    def is_worth_it(place: int, plan: dict[str, Any]) -> bool:
        flat = "layers=" not in plan["algorithm"]
        cheap = small and flat and plan["seconds"] <= _CHEAP_SECONDS
        return place < _CANDIDATES_MIN or plan["seconds"] <= near or plan["chosen"] or cheap

    return [plan for place, plan in enumerate(plans) if is_worth_it(place, plan)]


def winner(timings: Sequence[Timing], model: str) -> str:
    """The fastest, which comes first; the model's choice if that is as fast."""
    limit = _AS_FAST * timings[0].measured
    if any(one.algorithm == model and one.measured <= limit for one in timings):
        return model
    return timings[0].algorithm


def tuning_text(choices: Sequence[Choice], shape: Shape, how: str) -> str:
    """The file. Between two sizes the limit is twice the smaller one, as beyond the largest;
    neighbours with the same winner share a line."""
    condition = f"ranks={shape.ranks} hosts={shape.hosts} transport={shape.transport}"
    lines = ["farandole-tuning 1", f"# Measured by farandole tune: {shape}, {how}."]
    for choice, following in zip(choices, [*choices[1:], None], strict=True):
        same = following is not None and following.collective == choice.collective
        if same and following is not None and following.algorithm == choice.algorithm:
            continue
        limit = f"bytes<={2 * choice.size_bytes}"
        lines.append(f"{choice.collective} {condition} {limit} {choice.algorithm}")
    return "\n".join(lines) + "\n"


def timing_rows(choices: Sequence[Choice]) -> list[Row]:
    """Measured beside predicted."""
    rows: list[Row] = []
    for choice in choices:
        for timing in choice.timings:
            marks = (timing.algorithm == choice.algorithm, timing.algorithm == choice.model)
            rows.append(
                {
                    "collective": choice.collective,
                    "bytes": f"{choice.size_bytes:,}",
                    "algorithm": timing.algorithm,
                    "measured": time_text(timing.measured),
                    "predicted": time_text(timing.predicted),
                    "choice of": _MARKS[marks],
                }
            )
    return rows


_MARKS = {
    (True, True): "both",
    (True, False): "file",
    (False, True): "model",
    (False, False): "",
}
