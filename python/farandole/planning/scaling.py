# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step costs at a number of ranks of a described machine.

The step is simulated (simulator/training.hpp) from three parts: the gradients of a model and when
each is ready (planning/models.py); time until all ranks agree on what to run, simulated with the
controllers that production runs; the time of each allreduce, predicted by the planner.

Assumed: all ranks compute equally fast, at a rate that is given; the control network costs what
simulate_coordination() has as defaults, and every cycle as much as one that agrees on all tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from farandole import _native
from farandole.errors import InvalidArgumentError
from farandole.planning import models

DESIGNS = ("cached", "tree", "flat")  # of the coordinator


@dataclass(frozen=True)
class Training:
    """What is trained, and the coordinator's settings."""

    model: str = "resnet50"
    batch: float = 32.0  # samples of a rank and step
    device_tflops: float = 7.0  # that a device reaches, in 10^12 operations per second
    fusion_threshold_bytes: int = 128 * 2**20
    cycle_seconds: float = 1e-3
    group_count: int = 0  # of explicit groups of gradients; 0: none
    design: str = "cached"
    overlap: bool = True  # False: nothing travels before the backward pass has ended

    def __post_init__(self) -> None:
        positive = {"batch": self.batch, "device_tflops": self.device_tflops}
        for name, value in positive.items():
            if not 0 < value < float("inf"):
                raise InvalidArgumentError(f"{name} is {value}, allowed are numbers above 0")
        if self.group_count < 0:
            raise InvalidArgumentError(f"group_count is {self.group_count}, allowed is 0 or more")
        if self.design not in DESIGNS:
            raise InvalidArgumentError(
                f"design is '{self.design}', allowed are {', '.join(DESIGNS)}"
            )


@dataclass(frozen=True)
class Step:
    """One simulated step of all ranks. Times in seconds."""

    ranks: int
    seconds: float
    compute_seconds: float
    exposed_seconds: float  # of the step, after the backward pass
    communication_seconds: float  # sum over allreduces
    control_seconds: float  # sum over cycles
    cycles: int
    batches: int
    samples_per_second: float  # of all ranks

    @property
    def efficiency(self) -> float:
        """Samples per second, over those of as many ranks that need not communicate."""
        return self.compute_seconds / self.seconds

    def fields(self) -> dict[str, Any]:
        return asdict(self) | {"efficiency": self.efficiency}


class AllreduceTimes:
    """Predicted time of an allreduce by its bytes. The algorithm is chosen once per size class,
    for the largest size of the class, as a communicator does."""

    def __init__(self, machine: _native.Machine, ranks: int) -> None:
        self._machine, self._ranks = machine, ranks
        self.chosen: dict[int, str] = {}  # by the largest size of a class

    def __call__(self, size_bytes: int) -> float:
        limit = size_class(size_bytes)
        if limit not in self.chosen:
            self.chosen[limit] = _native.choose(self._machine, "allreduce", limit, self._ranks)
        cost = _native.predict(
            self._machine, "allreduce", self.chosen[limit], size_bytes, self._ranks
        )
        return float(cost["seconds"])


def size_class(size_bytes: int) -> int:
    """The largest size that is planned alike: 1, 2, 3, 4, 6, 8, 12, ... (planner/plan_table.hpp)"""
    power = 1 << max(0, size_bytes - 1).bit_length()
    middle = power // 4 * 3
    return middle if size_bytes <= middle else power


@cache
def control_seconds(design: str, ranks: int, tensors: int) -> float:
    """Of a cycle in which all ranks agree on tensors that they have agreed on before; simulated."""
    if ranks == 1:
        return 0.0
    _, later = _native.simulate_coordination(
        design, rank_count=ranks, tensor_count=tensors, step_count=2
    )
    return float(later["seconds"])


def train(training: Training, ranks: int, allreduce_seconds: Callable[[int], float]) -> Step:
    """Simulates one step. `allreduce_seconds`: for example AllreduceTimes(machine, ranks)."""
    model = models.model(training.model)
    found = models.gradients(model)
    compute = model.operations * training.batch / (training.device_tflops * 1e12)
    groups = [-1] * len(found)
    if training.group_count:
        groups = models.equal_groups(found, training.group_count)
    cost = _native.simulate_training(
        gradients=[
            _native.Gradient(
                elements=gradient.elements,
                ready=compute * (gradient.ready if training.overlap else 1.0),
                group=group,
            )
            for gradient, group in zip(found, groups, strict=True)
        ],
        compute_seconds=compute,
        cycle_seconds=training.cycle_seconds,
        control_seconds=control_seconds(training.design, ranks, model.tensor_count),
        fusion_threshold=training.fusion_threshold_bytes,
        allreduce_seconds=allreduce_seconds,
    )
    rate = ranks * training.batch / cost["seconds"]
    return Step(ranks=ranks, compute_seconds=compute, samples_per_second=rate, **cost)


def variants(training: Training, group_count: int) -> dict[str, Training]:
    """The same training with one thing changed at a time."""
    return {
        "overlap, cache": training,
        "no overlap": replace(training, overlap=False),
        "no cache": replace(training, design="tree"),
        "flat coordinator": replace(training, design="flat"),
        f"{group_count} groups": replace(training, group_count=group_count),
    }


@dataclass(frozen=True)
class Point:
    """One point of a scaling curve."""

    mode: str  # "weak": the batch of a rank stays; "strong": that of all ranks together
    variant: str
    step: Step

    def fields(self) -> dict[str, Any]:
        return {"mode": self.mode, "variant": self.variant, **self.step.fields()}


def scale(
    machine: _native.Machine,
    chosen: dict[str, Training],
    ranks: Sequence[int],
    global_batch: float,
) -> Iterator[Point]:
    """Weak scaling of each training, and strong scaling with `global_batch` samples of all ranks
    together, up to the number of ranks that get one sample each."""
    for count in ranks:
        times = AllreduceTimes(machine, count)
        for name, training in chosen.items():
            yield Point("weak", name, train(training, count, times))
            if count <= global_batch:
                share = replace(training, batch=global_batch / count)
                yield Point("strong", name, train(share, count, times))
