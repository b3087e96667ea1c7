# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: what is said of training steps and of hierarchies holds together.

Method: a machine of one switch and one device per host, where time grows with the number of ranks;
then facts that hold whatever the numbers are, and sums that can be done by hand.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from farandole import _native
from farandole.errors import InvalidArgumentError
from farandole.planning import models, scaling, sweeps
from farandole.planning.scaling import AllreduceTimes, Training

ALPHA, RATE = 5e-6, 1e10


def switch(hosts: int, rate: float = RATE) -> _native.Machine:
    return _native.Machine(
        name="switch",
        nodes=[("gpu", "gpu"), ("nic", "nic")],
        links=[_native.Link(ends=(0, 1), bytes_per_second=1e18)],
        devices=[0],
        nic_of=[1],
        hosts=hosts,
        nic_bytes_per_second=rate,
        hops={"rack": {"alpha": ALPHA}},
    )


def step(training: Training, ranks: int, machine: _native.Machine | None = None) -> scaling.Step:
    return scaling.train(training, ranks, AllreduceTimes(machine or switch(ranks), ranks))


def test_one_rank_computes_and_waits_for_nobody() -> None:
    alone = step(Training(batch=4, device_tflops=2), 1)
    operations = models.model("resnet50").operations
    assert alone.seconds == pytest.approx(operations * 4 / 2e12)
    assert alone.efficiency == 1
    assert alone.exposed_seconds == alone.communication_seconds == alone.control_seconds == 0
    assert alone.samples_per_second == pytest.approx(4 / alone.seconds)


@pytest.mark.parametrize("name", ["resnet50", "vgg16"])
@pytest.mark.parametrize("changes", [{}, {"group_count": 3}, {"design": "tree"}, {"batch": 1.5}])
def test_weak_scaling_is_never_better_with_more_ranks(
    name: str, changes: dict[str, float | int | str]
) -> None:
    training = replace(Training(model=name), **changes)
    steps = [step(training, ranks) for ranks in (1, 2, 4, 8, 16, 32, 64)]
    for fewer, more in pairwise(steps):
        assert more.seconds >= fewer.seconds
    for one in steps:
        assert 0 < one.efficiency <= 1
        assert one.exposed_seconds >= 0
        assert one.seconds == pytest.approx(one.compute_seconds + one.exposed_seconds)
    assert steps[-1].exposed_seconds > 0


@pytest.mark.parametrize("ranks", [2, 16, 64])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_overlap_helps(ranks: int, batch: float) -> None:
    training = Training(batch=batch)
    late = step(replace(training, overlap=False), ranks)
    assert step(training, ranks).seconds < late.seconds
    assert late.exposed_seconds == pytest.approx(late.communication_seconds + late.control_seconds)


def test_the_cache_costs_less_than_a_tree_and_that_less_than_rank_0() -> None:
    cached, tree, flat = (step(Training(design=design), 64) for design in scaling.DESIGNS)
    assert cached.control_seconds / cached.cycles < tree.control_seconds / tree.cycles
    assert tree.control_seconds / tree.cycles < flat.control_seconds / flat.cycles
    assert cached.seconds < flat.seconds


def test_groups_are_batches() -> None:
    grouped = step(Training(group_count=3, fusion_threshold_bytes=1), 4)
    assert grouped.batches == 3


def test_the_algorithm_is_chosen_once_per_class_of_sizes() -> None:
    times = AllreduceTimes(switch(8), 8)
    for size in (1, 2, 3, 4, 5, 6, 7, 8, 2**20 - 5, 2**20):
        chosen = _native.choose(switch(8), "allreduce", scaling.size_class(size), 8)
        cost = _native.predict(switch(8), "allreduce", chosen, size, 8)
        assert times(size) == cost["seconds"]
    assert sorted(times.chosen) == [1, 2, 3, 4, 6, 8, 2**20]
    assert [scaling.size_class(n) for n in (0, 9, 12, 13, 17)] == [0, 12, 12, 16, 24]


def test_strong_scaling_shares_a_batch() -> None:
    chosen = {"a": Training(batch=8)}
    points = list(scaling.scale(switch(64), chosen, [2, 4, 64], global_batch=16))
    assert [(p.mode, p.step.ranks) for p in points] == [
        ("weak", 2),
        ("strong", 2),
        ("weak", 4),
        ("strong", 4),
        ("weak", 64),  # 64 ranks have no sample each of 16
    ]
    weak, strong, _, shared, _ = (point.step for point in points)
    assert weak == strong  # 8 samples each
    assert shared.compute_seconds == pytest.approx(strong.compute_seconds / 2)
    assert shared.samples_per_second == pytest.approx(16 / shared.seconds)


def test_variants_change_one_thing() -> None:
    base, *others = scaling.variants(Training(), 4).values()
    for other in others:
        changed = [f for f in vars(base) if getattr(base, f) != getattr(other, f)]
        assert len(changed) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"device_tflops": float("inf")}, "device_tflops is inf"),
        ({"group_count": -1}, "group_count is -1"),
        ({"design": "star"}, "design is 'star', allowed are cached, tree, flat"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, float | str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Training(**arguments)


# Sweeps


@pytest.mark.parametrize("source", sweeps.SOURCES)
def test_layers_add_up_to_the_whole(source: str) -> None:
    times = sweeps.HierarchyTimes(switch(24), 24, 10**6, source)
    layers = sweeps.ring_hierarchies(24)
    assert len(layers) == 20  # ordered factorizations of 24
    assert [one.layers for one in times.all(layers)] == layers
    assert [times(one) for one in layers] == list(times.all(layers))
    for one in times.all(layers):
        assert sum(one.layer_seconds) == pytest.approx(one.seconds, rel=1e-9)
        assert min(one.layer_seconds) > 0
    # 2 (k - 1) messages of 1/k, of what the layers before have left.
    by_hand = 2 * (ALPHA + 1e6 / 2 / RATE) + 22 * (ALPHA + 1e6 / 24 / RATE)
    assert times((2, 12)).seconds == pytest.approx(by_hand)


def test_hierarchies_may_be_limited() -> None:
    assert sweeps.ring_hierarchies(16, factor_max=4, powers_of_two=True) == [
        layers for layers in sweeps.ring_hierarchies(16) if max(layers) <= 4
    ]
    assert len(sweeps.ring_hierarchies(2048, powers_of_two=True)) == 1024
    with pytest.raises(InvalidArgumentError, match="12 ranks cannot be written as powers of two"):
        sweeps.ring_hierarchies(12, powers_of_two=True)
    with pytest.raises(InvalidArgumentError, match=r"7 ranks cannot .* from 2 to 5"):
        sweeps.ring_hierarchies(7, factor_max=5)
    with pytest.raises(InvalidArgumentError, match="source is 'guessed'"):
        sweeps.HierarchyTimes(switch(2), 2, 1, "guessed")


def test_the_map_holds_what_a_call_would_take() -> None:
    cells = list(sweeps.fastest(switch(16), "allreduce", [2, 16], [4, 2**26]))
    assert [(cell.ranks, cell.size_bytes) for cell in cells] == [
        (2, 4),
        (2, 2**26),
        (16, 4),
        (16, 2**26),
    ]
    for cell in cells:
        candidates = _native.plan(switch(16), "allreduce", cell.size_bytes, cell.ranks)
        assert candidates[0]["seconds"] <= cell.seconds <= 1.07 * candidates[0]["seconds"]
    assert sweeps.Fastest(8, 4, "hierarchical:layers=2ring/4direct", 1).family == (
        "hierarchical, 2 layers"
    )
    assert sweeps.Fastest(8, 4, "chain:chunks=4", 1).family == "chain"


def test_rank_counts_end_with_all_devices() -> None:
    assert sweeps.rank_counts(switch(2), 99) == [2]
    assert sweeps.rank_counts(switch(16), 99) == [2, 4, 8, 16]
    assert sweeps.rank_counts(switch(99), 27) == [2, 4, 8, 16, 27]
    assert sweeps.rank_counts(switch(99), 99, factor=4) == [4, 16, 64, 99]
