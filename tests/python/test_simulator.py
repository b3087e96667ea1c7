# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules timed on a machine, from Python. The model's own tests are in tests/unit/simulator."""

from __future__ import annotations

import threading
import time

import pytest

from farandole import _native
from farandole.errors import InvalidArgumentError, UnsupportedError

ALPHA, RATE, BYTES = 5e-6, 1e10, 1e6


def crossbar(hosts: int, ring_rates: dict[tuple[int, int], float] | None = None) -> _native.Machine:
    return _native.Machine(
        name="crossbar",
        nodes=[("gpu", "gpu"), ("nic", "nic")],
        links=[_native.Link(ends=(0, 1), bytes_per_second=1e18)],
        devices=[0],
        nic_of=[1],
        hosts=hosts,
        nic_bytes_per_second=RATE,
        hops={"rack": {"alpha": ALPHA, "ring_rates": ring_rates or {}}},
    )


@pytest.mark.parametrize("path", ["auto", "events", "rounds"])
def test_a_ring_takes_what_its_formula_says(path: str) -> None:
    schedule = _native.Schedule.build("allreduce", "ring", 8)
    result = _native.simulate_schedule(crossbar(8), schedule, BYTES, path=path)
    assert result["seconds"] == pytest.approx(14 * (ALPHA + BYTES / 8 / RATE), rel=1e-9)
    assert result["exact"]
    assert result["path"] == ("events" if path == "events" else "rounds")
    assert result["messages"] == 8 * 14
    assert result["bytes"] == pytest.approx(14 * BYTES)
    assert [stage["name"] for stage in result["stages"]] == ["ring"]
    assert result["busiest"][0]["name"].startswith("host 0: ")


# Goal: a measured rate of rings of one stride is for those only, as in the closed forms.
# Method: layer 2 of 2x4 is rings of 4 at stride 2; a rate for these, and one for others.
@pytest.mark.parametrize("path", ["events", "rounds"])
@pytest.mark.parametrize(("stride", "rate"), [(2, RATE / 2), (0, RATE / 2), (1, RATE)])
def test_ring_rates_by_stride(path: str, stride: int, rate: float) -> None:
    layers = "hierarchical:layers=2ring/4ring"
    schedule = _native.Schedule.build("allreduce", layers, 8)
    machine = crossbar(8, {(4, stride): RATE / 2})
    result = _native.simulate_schedule(machine, schedule, BYTES, path=path)
    first, second = 2 * (ALPHA + BYTES / 2 / RATE), 6 * (ALPHA + BYTES / 8 / rate)
    assert result["seconds"] == pytest.approx(first + second, rel=1e-9)
    predicted = _native.predict(machine, "allreduce", layers, BYTES, 8)
    assert predicted["seconds"] == pytest.approx(first + second, rel=1e-9)


def test_calls_overlap_on_places_of_their_own() -> None:
    simulator = _native.Simulator(crossbar(8), 4, placement=[(6, 0), (1, 0), (3, 0), (4, 0)])
    pair = _native.Schedule.build("broadcast", "binomial", 2)
    calls = [
        _native.SimulatedCall(schedule=pair, bytes=BYTES, ranks=[0, 1]),
        _native.SimulatedCall(schedule=pair, bytes=BYTES, ranks=[0, 2], start_seconds=[0.0, 1e-3]),
    ]
    del pair  # the calls keep it
    result = simulator.run(calls, finish=True)
    assert result["path"] == "events"
    first, second = result["finish_seconds"]
    assert first == pytest.approx([ALPHA + BYTES / RATE] * 2)
    assert second == pytest.approx([1e-3 + ALPHA + BYTES / RATE] * 2)
    assert {link["name"].split(":")[0] for link in result["busiest"]} == {
        "host 6",
        "host 1",
        "host 3",
    }


def test_errors_name_the_argument() -> None:
    ring = _native.Schedule.build("allreduce", "ring", 4)
    with pytest.raises(InvalidArgumentError, match="'path' is 'fast', allowed are auto, events"):
        _native.simulate_schedule(crossbar(4), ring, BYTES, path="fast")
    with pytest.raises(InvalidArgumentError, match="'routing' is 'none'"):
        _native.simulate_schedule(crossbar(4), ring, BYTES, routing="none")
    with pytest.raises(InvalidArgumentError, match="'rank_count' is 4"):
        _native.simulate_schedule(crossbar(3), ring, BYTES)
    with pytest.raises(InvalidArgumentError, match="'placement' names 1 places"):
        _native.Simulator(crossbar(4), 4, placement=[(0, 0)])
    simulator = _native.Simulator(crossbar(4), 4)
    with pytest.raises(InvalidArgumentError, match="'bytes' is -1"):
        simulator.run([_native.SimulatedCall(schedule=ring, bytes=-1)])
    with pytest.raises(UnsupportedError, match="several"):
        simulator.run([_native.SimulatedCall(schedule=ring, bytes=BYTES)] * 2, path="rounds")


def step(*gradients: tuple[int, float, int], **changes: object) -> dict[str, float]:
    arguments = {
        "gradients": [
            _native.Gradient(elements=elements, ready=ready, group=group)
            for elements, ready, group in gradients
        ],
        "compute_seconds": 0.05,
        "cycle_seconds": 1e-3,
        "control_seconds": 1e-4,
        "fusion_threshold": 2**27,
        "allreduce_seconds": lambda size: 1e-3 + size * 1e-9,
    }
    return _native.simulate_training(**(arguments | changes))


# Goal: Python's function is asked for the time of every batch, and its numbers are added up.
# Method: two gradients apart, the second at the very end; by hand.
def test_a_training_step_asks_for_the_time_of_each_batch() -> None:
    asked: list[int] = []

    def seconds(size: int) -> float:
        asked.append(size)
        return 1e-3 + size * 1e-9

    cost = step((250_000, 0.01, -1), (500_000, 0.05, -1), allreduce_seconds=seconds)
    assert asked == [1_000_000, 2_000_000]
    assert (cost["cycles"], cost["batches"]) == (2, 2)
    assert cost["communication_seconds"] == pytest.approx(5e-3)
    assert cost["exposed_seconds"] == pytest.approx(1e-4 + 3e-3)
    assert cost["seconds"] == pytest.approx(0.05 + 1e-4 + 3e-3)


def test_errors_of_a_training_step() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'gradients\[0\].ready' is 0.06"):
        step((1, 0.06, -1))
    with pytest.raises(ZeroDivisionError):
        step((1, 0.0, -1), (1, 0.02, -1), allreduce_seconds=lambda size: size / 0)
    with pytest.raises(RuntimeError):
        step((1, 0.0, -1), allreduce_seconds=lambda size: "long")


def test_other_threads_run_meanwhile() -> None:
    simulator = _native.Simulator(crossbar(512), 512)
    schedule = _native.Schedule.build("allreduce", "ring", 512)
    call = _native.SimulatedCall(schedule=schedule, bytes=BYTES)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (simulator.run([call], path="events"), done.set()))
    thread.start()
    turns = 0
    while not done.is_set():
        time.sleep(1e-4)
        turns += 1
    thread.join()
    assert turns > 3  # half a million messages without the GIL
