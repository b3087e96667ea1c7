# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Many questions to the planner or the simulator: every hierarchy, every size and scale."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from farandole import _native
from farandole.errors import InvalidArgumentError

SOURCES = ("predicted", "simulated")  # by closed forms, or by the simulator's rounds
ROUTINGS = ("ideal", "destination", "static_hash")


@dataclass(frozen=True)
class Hierarchy:
    """Rings in layers, the first among neighbours, and what each layer takes."""

    layers: tuple[int, ...]  # ranks of a ring
    layer_seconds: tuple[float, ...]  # [layer]: on the way in and out together
    seconds: float

    @property
    def name(self) -> str:
        return "x".join(map(str, self.layers))


@dataclass(frozen=True)
class Fastest:
    """The predicted fastest algorithm of one size and number of ranks."""

    ranks: int
    size_bytes: int
    algorithm: str  # with its options
    seconds: float

    @property
    def family(self) -> str:
        """The algorithm without its options; of a hierarchy, how many layers it has."""
        name, _, options = self.algorithm.partition(":")
        if "layers=" not in options:
            return name
        return f"{name}, {options.count('/') + 1} layers"


def ring_hierarchies(
    ranks: int, factor_max: int = 0, powers_of_two: bool = False
) -> list[tuple[int, ...]]:
    """Every ordered factorization of a number of ranks, at most `factor_max` in a layer."""
    found = [tuple(layers) for layers in _native.factorizations(ranks, factor_max)]
    if powers_of_two:
        found = [layers for layers in found if all(n & (n - 1) == 0 for n in layers)]
    if ranks < 2 or not found:
        factors = "powers of two" if powers_of_two else "factors"
        raise InvalidArgumentError(
            f"{ranks} ranks cannot be written as {factors} from 2 to {factor_max or ranks}"
        )
    return found


class HierarchyTimes:
    """Times of an allreduce of `size_bytes` by rings in layers. Threads may call it at once."""

    def __init__(
        self,
        machine: _native.Machine,
        ranks: int,
        size_bytes: int,
        source: str = "predicted",
        routing: str = "ideal",
    ) -> None:
        if source not in SOURCES:
            raise InvalidArgumentError(f"source is '{source}', allowed are {', '.join(SOURCES)}")
        self._machine, self._ranks, self._size = machine, ranks, size_bytes
        self._source, self._routing = source, routing
        self._own = threading.local()  # a simulator serves one thread at a time

    def __call__(self, layers: Sequence[int]) -> Hierarchy:
        spec = "hierarchical:layers=" + "/".join(f"{size}ring" for size in layers)
        if self._source == "predicted":
            cost = _native.predict(self._machine, "allreduce", spec, self._size, self._ranks)
        else:
            schedule = _native.Schedule.build("allreduce", spec, self._ranks)
            call = _native.SimulatedCall(schedule=schedule, bytes=self._size)
            cost = self._simulator().run([call], path="rounds")
        seconds = [0.0] * len(layers)
        for stage in cost["stages"]:
            seconds[_layer_of(stage["name"]) - 1] += stage["seconds"]
        return Hierarchy(tuple(layers), tuple(seconds), cost["seconds"])

    def _simulator(self) -> _native.Simulator:
        if not hasattr(self._own, "simulator"):
            made = _native.Simulator(self._machine, self._ranks, routing=self._routing)
            self._own.simulator = made
        simulator: _native.Simulator = self._own.simulator
        return simulator

    def all(self, chosen: Sequence[Sequence[int]]) -> Iterator[Hierarchy]:
        """In the order of `chosen`; simulated on all cores of this process."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            yield from pool.map(self, chosen)


def _layer_of(stage: str) -> int:
    """Stages are named "reduce-scatter layer 2" by the planner, "scatter_2" by schedules."""
    number = re.search(r"(\d+)$", stage)
    assert number is not None, stage
    return int(number[1])


def fastest(
    machine: _native.Machine, collective: str, ranks: Sequence[int], sizes: Sequence[int]
) -> Iterator[Fastest]:
    """Predicted for every number of ranks, then every size: what a call would take."""
    for count in ranks:
        for size in sizes:
            spec = _native.choose(machine, collective, size, count)
            cost = _native.predict(machine, collective, spec, size, count)
            yield Fastest(count, size, spec, cost["seconds"])


def rank_counts(machine: _native.Machine, most: int, factor: int = 2) -> list[int]:
    """factor, factor^2, ... and all devices of the machine, or `most` if it has more."""
    most = min(most, machine.hosts * machine.devices_per_host)
    counts = []
    count = factor
    while count < most:
        counts.append(count)
        count *= factor
    return [*counts, most]
