# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole probe`'s fit finds the costs that made the times.

Method: times computed from known costs, exactly and with errors that cancel out; the machine that
comes of them says the same again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole import _native, machines
from farandole.measure import probed
from farandole.measure.fit import (
    FAN,
    PASS,
    RINGS,
    Fit,
    Sample,
    bytes_per_second,
    fit,
    nonnegative_least_squares,
)
from farandole.measure.probe import Measurements

SIZES = (0, 1 << 10, 1 << 14, 1 << 18, 1 << 22)
TRUE = Fit(call=20e-6, alpha=30e-6, per_byte=1e-9, fill_per_byte=0.4e-9, reduce_per_byte=1e-10)


def timed(costs: Fit, hop: str = "rack", ranks: int = 4, groups: int = 1) -> list[Sample]:
    blank = [Sample(hop, pattern, ranks, groups, n, 1.0) for pattern in RINGS for n in SIZES]
    return [Sample(hop, s.pattern, ranks, groups, s.size_bytes, costs.seconds(s)) for s in blank]


# Goal: the model's terms are those of struct HopCost. Method: by hand, for 4 ranks and 4 KiB.
def test_terms_of_each_pattern() -> None:
    def terms(pattern: str) -> tuple[float, ...]:
        return Sample("rack", pattern, 4, 1, 4096, 1.0).terms()

    assert terms("exchange") == (1, 1, 4096, 4096)
    assert terms("allgather") == (1, 3, 3 * 1024, 1024)
    assert terms("allreduce") == (1, 6, 6 * 1024, 1024)
    assert Sample("rack", "allreduce", 4, 1, 4096, 1.0).reduced_bytes() == 3 * 1024


def test_costs_that_made_the_times_are_found() -> None:
    found = fit(timed(TRUE), TRUE.reduce_per_byte)
    for name in ("call", "alpha", "per_byte", "fill_per_byte"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    assert found.fill_chunks == pytest.approx(0.4)
    assert max(abs(found.error(sample)) for sample in timed(TRUE)) < 1e-9


# Goal: what several messages of a rank take from each other is found, and nothing if they do not.
@pytest.mark.parametrize(("overhead", "efficiency"), [(5e-6, 0.8), (0.0, 1.0)])
def test_the_cost_of_several_messages_at_once_is_found(overhead: float, efficiency: float) -> None:
    true = replace(TRUE, overhead=overhead, fan_efficiency=efficiency)
    blank = [Sample("rack", FAN, 4, 1, size_bytes, 1.0) for size_bytes in SIZES]
    fans = [replace(sample, seconds=true.seconds(sample)) for sample in blank]
    by_hand = 20e-6 + 30e-6 + 2 * overhead + 3 * (1 << 20) * 1.4e-9 / efficiency
    assert fans[-1].seconds == pytest.approx(by_hand)
    found = fit(timed(TRUE) + fans, TRUE.reduce_per_byte)
    assert found.overhead == pytest.approx(overhead, rel=1e-6, abs=1e-12)
    assert found.fan_efficiency == pytest.approx(efficiency, rel=1e-6)
    assert found.per_byte == pytest.approx(TRUE.per_byte, rel=1e-6)


# Goal: a start-up that is longer because others send too is told from one that is long anyway.
# Method: times of rings, of all to all, and of a message that is passed on, made from both; and
# from a start-up that among others is a fifth longer, which noise could be.
@pytest.mark.parametrize("crowding", [20e-6, 2e-6])
def test_crowds_are_found(crowding: float) -> None:
    true = replace(TRUE, crowding=crowding)
    passed = Sample("rack", PASS, 4, 1, 64, 1.0)
    assert true.seconds(passed) == pytest.approx(20e-6 + 3 * 30e-6 + (3 * 64 + 0.4 * 64) * 1e-9)
    blank = [replace(passed, size_bytes=0)]
    blank += [Sample("rack", FAN, 4, 1, size_bytes, 1.0) for size_bytes in SIZES]
    others = [replace(sample, seconds=true.seconds(sample)) for sample in blank]
    found = fit(timed(true) + others, TRUE.reduce_per_byte)
    if crowding > 10e-6:
        assert found.crowding == pytest.approx(crowding, rel=1e-6)
        assert found.alpha == pytest.approx(30e-6, rel=1e-6)
    else:
        assert found.crowding == 0
        assert 30e-6 < found.alpha < 36e-6


# Goal: what networks pass at once does not shorten the start-up.
# Method: the first 4 KiB of every message are free; that is little where the rate is found.
def test_bytes_that_are_passed_at_once_are_no_start_up() -> None:
    true = replace(TRUE, fill_per_byte=0.0, reduce_per_byte=0.0)

    def seconds(sample: Sample) -> float:
        _, messages, moved, _ = sample.terms()
        free = min(moved, messages * (4 << 10)) * true.per_byte
        return true.seconds(sample) - free

    found = fit([replace(sample, seconds=seconds(sample)) for sample in timed(true)], 0.0)
    assert found.call == pytest.approx(true.call, rel=1e-6)
    assert found.alpha == pytest.approx(true.alpha, rel=1e-6)
    assert found.per_byte == pytest.approx(true.per_byte, rel=0.02)


# Goal: two ranks claim no fill, which they cannot tell from other ways to share a wire.
# Method: times with one, of which the fit to two ranks makes a lower rate.
def test_two_ranks_claim_no_fill() -> None:
    found = fit(timed(TRUE, ranks=2), TRUE.reduce_per_byte)
    assert found.fill_chunks == 0
    assert found.per_byte > TRUE.per_byte


# Goal: no fill is claimed where noise makes one look a little better.
# Method: times without a fill, wrong in turns, and by 2% in favour of one.
@pytest.mark.parametrize("ranks", [4, 8])
def test_no_fill_is_claimed_without_evidence(ranks: int) -> None:
    plain = Fit(20e-6, 30e-6, 1e-9, 0.0, 0.0)
    samples = [
        Sample(s.hop, s.pattern, ranks, 1, s.size_bytes, s.seconds * around * more)
        for i, s in enumerate(timed(plain, ranks=ranks))
        for around in [1.1 if i % 2 else 0.9]
        for more in [1.0 if s.pattern == "allreduce" else 1.02]
    ]
    found = fit(samples, 0.0)
    assert found.fill_chunks == 0
    assert found.per_byte == pytest.approx(1e-9, rel=0.15)


def test_a_rate_alone_is_found() -> None:
    slower = Fit(TRUE.call, TRUE.alpha, 4e-9, 1.6e-9, TRUE.reduce_per_byte)
    assert bytes_per_second(timed(slower), TRUE) == pytest.approx(0.25e9)


# Goal: noise that hides the rate does not make it infinite.
# Method: times that are all the same; the most bytes are those of the largest allreduce.
def test_times_that_do_not_grow_show_a_rate_all_the_same() -> None:
    flat = [Sample("rack", pattern, 4, 1, n, 1e-3) for pattern in RINGS for n in SIZES]
    most = 2 * 3 / 4 * SIZES[-1]
    assert fit(flat, 0.0).per_byte == pytest.approx(1e-3 / most)
    assert bytes_per_second(flat, fit(flat, 0.0)) == pytest.approx(most / 1e-3)


# Goal: no unknown goes below 0, and the rest is then the best that is left.
# Method: a system whose free solution is (3, -1); with the second held at 0 the first is 2.
def test_least_squares_stays_above_zero() -> None:
    rows, targets = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 2.0]]), np.array([2.0, 3.0, 1.0])
    found, error = nonnegative_least_squares(rows, targets)
    assert found == pytest.approx([2.0, 0.0])
    assert error == pytest.approx(2.0)


# Goal: readers pay for messages where memory is shared, both sides where it is not.
def test_only_shared_memory_is_a_memory() -> None:
    samples = tuple(timed(Fit(5e-6, 2e-6, 0.1e-9, 0.0, 1e-10), "host", 4))
    hubs = {}
    for transport in ("shm", "tcp"):
        measured = Measurements(1, 4, (transport,), samples, 1e-10, 0.5e-10, ())
        machine = probed.describe(measured, probed.hops(measured), "made").machine()
        hubs[transport] = machine.nodes[4]
        chosen = _native.choose(machine, "broadcast", 2**20, 4)
        assert (chosen == "knomial:radix=4") == (transport == "shm")
    assert hubs == {"shm": ("memory", "memory"), "tcp": ("loopback", "switch")}


# Goal: how ranks share what is there ends up where the cost model looks for it.
# Method: 2 hosts of 4 ranks. Four rings between the hosts at once get half as much each as one
# does alone, so the NIC carries twice what one rank gets; in the hosts pairs are faster than rings.
def test_sharing_becomes_a_machine() -> None:
    host = Fit(5e-6, 2e-6, 0.1e-9, 0.0, 1e-10)
    rack = Fit(10e-6, 50e-6, 8e-9, 0.0, 1e-10)
    pairs = Fit(host.call, host.alpha, 0.05e-9, 0.0, 0.0)
    shared = Fit(rack.call, rack.alpha, 16e-9, 0.0, 0.0)

    def exchanges(costs: Fit, hop: str, ranks: int, groups: int) -> list[Sample]:
        return [s for s in timed(costs, hop, ranks, groups) if s.pattern == "exchange"]

    samples = timed(host, "host", 4) + exchanges(pairs, "host", 2, 2)
    samples += exchanges(pairs, "host", 2, 1) + timed(rack, "rack", 2)
    samples += exchanges(shared, "rack", 2, 4)
    measured = Measurements(2, 4, ("shm", "tcp"), tuple(samples), 1e-10, 0.5e-10, ())
    found = probed.hops(measured)
    description = probed.describe(measured, found, "made")
    assert machines.parse(machines.as_toml(description), "made") == description
    machine = description.machine()
    assert (machine.hosts, machine.devices_per_host) == (2, 4)
    assert machine.nic_bytes_per_second == pytest.approx(4 / 16e-9, rel=1e-3)
    rates = {frozenset(link.ends): link.bytes_per_second for link in machine.links}
    names = [name for name, _ in machine.nodes]
    way = frozenset((names.index("stack1"), names.index("nic")))
    assert rates[way] == pytest.approx(1 / 8e-9, rel=1e-3)
    assert rates[frozenset((0, names.index("memory")))] == pytest.approx(1e10, rel=1e-3)
    assert machine.hops["host"]["ring_rates"] == pytest.approx(
        {(2, 0): 2e10, (4, 0): 1e10}, rel=1e-3
    )
    assert machine.hops["rack"]["alpha"] == pytest.approx(50e-6, rel=1e-3)
    assert machine.hops["rack"]["call"] == pytest.approx(10e-6, rel=1e-3)
    assert machine.reduce_seconds_per_byte == pytest.approx(1e-10, rel=1e-3)
    assert all(constant.origin for _, constant in description.constants())
    assert [row["measured"] for row in probed.sample_rows(found)] == [
        row["fitted"] for row in probed.sample_rows(found)
    ]
    assert [(row["ring of"], row["at once"]) for row in probed.rate_rows(found)] == [
        ("4", "1"),
        ("2", "2"),
        ("2", "1"),
        ("2", "1"),
        ("2", "4"),
    ]


# Goal: buffers that take the first bytes at once do not make the rate look higher.
# Method: 64 KiB of every message cost nothing; the rate is then that of what is beyond them.
def test_the_rate_is_that_of_large_messages() -> None:
    plain = Fit(20e-6, 30e-6, 10e-9, 0.0, 0.0)
    buffered = [
        Sample(s.hop, s.pattern, 4, 1, s.size_bytes, s.seconds - hidden * plain.per_byte)
        for s in timed(plain)
        for hidden in [min(s.terms()[2], 1 << 16)]
    ]
    found = fit(buffered, 0.0)
    largest = [sample for sample in buffered if sample.size_bytes == SIZES[-1]]
    assert max(abs(found.error(sample)) for sample in largest) < 0.02
    assert found.per_byte == pytest.approx(plain.per_byte, rel=0.03)
