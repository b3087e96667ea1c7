# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Costs of a hop from measured times, by least squares on relative errors.

The model is that of struct HopCost (src/model/machine.hpp). What does not depend on the size comes
from the smallest messages alone: a library call, the start-up of a message, and what it pays for
others, of its rank and of all ranks. They are told apart by rings, in which all ranks send in every
round, by exchanges of all with all, and by a message that is passed from rank to rank by itself.
Larger messages would not do: networks pass so many bytes faster than the rate at which they go on.

Then come seconds per byte, and a pipeline's fill in seconds per byte, at most one message. Rings of
more than two ranks alone tell it from the rate; it stays 0 unless it explains a good part of the
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

_Vector = npt.NDArray[np.float64]
_WORTH_A_FILL = 0.9  # what a fill must leave of the squared error
_SMALL_BYTES = 64
_LARGEST = 5  # sizes of a fifth of the largest and more
_CREDIBLE = 0.01  # share of the time per byte that was seen
_CROWDED = 1.3  # times as long a start-up is in a ring as alone, or nothing is said of crowding
RINGS = ("exchange", "allgather", "allreduce")
FAN = "alltoall"
PASS = "broadcast"


@dataclass(frozen=True)
class Sample:
    """One measured time. `ranks` neighbours in a ring sent `size_bytes` each to the next one
    (exchange), or ran a collective of that size by algorithm ring, an alltoall by direct, a
    broadcast by chain; `groups` such rings at once."""

    hop: str
    pattern: str  # of RINGS, FAN or PASS
    ranks: int
    groups: int
    size_bytes: int
    seconds: float

    def terms(self) -> tuple[float, float, float, float]:
        """What is paid for: calls, messages, their bytes, and the bytes of the first one."""
        if self.pattern == "exchange":
            return 1.0, 1.0, float(self.size_bytes), float(self.size_bytes)
        rounds = (self.ranks - 1) * (2 if self.pattern == "allreduce" else 1)
        if self.pattern == PASS:
            return 1.0, float(rounds), float(rounds * self.size_bytes), float(self.size_bytes)
        block = self.size_bytes / self.ranks
        if self.pattern == FAN:
            return 1.0, 1.0, rounds * block, rounds * block
        return 1.0, float(rounds), rounds * block, block

    def others(self) -> int:
        """Messages of a rank at once, beyond the first."""
        return self.ranks - 2 if self.pattern == FAN else 0

    def around(self) -> int:
        """Messages of all ranks in a round, beyond the first."""
        messages = {PASS: 1, FAN: self.ranks * (self.ranks - 1)}
        return messages.get(self.pattern, self.ranks) - 1

    def reduced_bytes(self) -> float:
        if self.pattern != "allreduce":
            return 0.0
        return (self.ranks - 1) * self.size_bytes / self.ranks


@dataclass(frozen=True)
class Fit:
    """Seconds, and seconds per byte."""

    call: float
    alpha: float
    per_byte: float
    fill_per_byte: float
    reduce_per_byte: float
    overhead: float = 0.0
    fan_efficiency: float = 1.0
    crowding: float = 0.0

    @property
    def fill_chunks(self) -> float:
        return self.fill_per_byte / self.per_byte

    def seconds(self, sample: Sample) -> float:
        _, _, moved, first = sample.terms()
        on_wire = moved * self.per_byte + first * self.fill_per_byte
        if sample.others() > 0:
            on_wire /= self.fan_efficiency
        return self.fixed(sample) + on_wire + sample.reduced_bytes() * self.reduce_per_byte

    def fixed(self, sample: Sample) -> float:
        """What does not depend on the size."""
        calls, messages, _, _ = sample.terms()
        start_up = self.alpha + sample.others() * self.overhead + sample.around() * self.crowding
        return calls * self.call + messages * start_up

    def error(self, sample: Sample) -> float:
        """Relative to what was measured."""
        return self.seconds(sample) / sample.seconds - 1


def fit(samples: Sequence[Sample], reduce_per_byte: float) -> Fit:
    """All unknowns, rates to the largest messages alone. `reduce_per_byte` was measured apart."""
    small = [sample for sample in samples if sample.size_bytes <= _SMALL_BYTES]
    found = _fit_start_up(small, reduce_per_byte)
    found = _fit_rate([sample for sample in samples if sample.pattern in RINGS], found)
    fans = [sample for sample in samples if sample.others() > 0]
    if fans:
        slower = bytes_per_second(_largest(fans), found) * found.per_byte
        found = replace(found, fan_efficiency=min(slower, 1.0))
    return found


def _fit_start_up(samples: Sequence[Sample], reduce_per_byte: float) -> Fit:
    """Hosts with cores of their own have no crowding, and noise would be multiplied by however many
    ranks a plan is for. Without a message by itself nothing tells it from the rest."""
    seconds = np.array([sample.seconds for sample in samples])
    rows = np.array([_start_up_terms(sample) for sample in samples]) / seconds[:, None]
    targets = np.ones(len(samples))
    if any(sample.pattern == PASS for sample in samples):
        (call, alpha, overhead, crowding), _ = nonnegative_least_squares(rows, targets)
        in_ring = alpha + crowding * (samples[0].ranks - 1)
        if in_ring >= alpha * _CROWDED:
            return Fit(call, alpha, 0.0, 0.0, reduce_per_byte, overhead, crowding=crowding)
    (call, alpha, overhead), _ = nonnegative_least_squares(rows[:, :3], targets)
    return Fit(call, alpha, 0.0, 0.0, reduce_per_byte, overhead)


def _start_up_terms(sample: Sample) -> tuple[float, float, float, float]:
    calls, messages, _, _ = sample.terms()
    return calls, messages, messages * sample.others(), messages * sample.around()


def _fit_rate(samples: Sequence[Sample], known: Fit) -> Fit:
    seconds = np.array([sample.seconds for sample in samples])
    rows = np.array([sample.terms()[2:] for sample in samples]) / seconds[:, None]
    fixed = np.array([known.fixed(s) + s.reduced_bytes() * known.reduce_per_byte for s in samples])
    targets = 1 - fixed / seconds
    (per_byte,), plain_error = nonnegative_least_squares(rows[:, :1], targets)
    fill = 0.0
    # In place of the rate, what it is beyond the fill: so that fill <= per_byte.
    rows[:, 1] += rows[:, 0]
    (beyond, filled), error = nonnegative_least_squares(rows, targets)
    if error < plain_error * _WORTH_A_FILL and max(sample.ranks for sample in samples) > 2:
        per_byte, fill = beyond + filled, filled
    found = replace(known, per_byte=_credible(per_byte, samples), fill_per_byte=fill)
    # Buffers of sockets, and of whoever shapes the traffic, hide the rate from smaller messages.
    rate = bytes_per_second(_largest(samples), found)
    return replace(found, per_byte=1 / rate, fill_per_byte=found.fill_chunks / rate)


def _largest(samples: Sequence[Sample]) -> list[Sample]:
    size_bytes_max = max(sample.size_bytes for sample in samples)
    return [s for s in samples if s.size_bytes * _LARGEST >= size_bytes_max]


def bytes_per_second(samples: Sequence[Sample], known: Fit) -> float:
    """The rate alone, where other things are as `known`: the median of what each sample says, since
    one that was disturbed says anything."""
    per_byte = []
    for sample in (sample for sample in samples if sample.size_bytes > 0):
        _, _, moved, first = sample.terms()
        fixed = known.fixed(sample) + sample.reduced_bytes() * known.reduce_per_byte
        per_byte.append((sample.seconds - fixed) / (moved + first * known.fill_chunks))
    return 1 / _credible(float(np.median(per_byte)), samples)


def _credible(per_byte: float, samples: Sequence[Sample]) -> float:
    """Where times do not grow with the size, the rate that was seen is all that can be said."""
    seen = min(s.seconds / s.terms()[2] for s in samples if s.size_bytes > 0)
    return per_byte if per_byte > seen * _CREDIBLE else seen


def nonnegative_least_squares(rows: _Vector, targets: _Vector) -> tuple[list[float], float]:
    """The x >= 0 that makes |rows x - targets|^2 smallest, and this square. With so few unknowns,
    every subset of them that may be above 0 is tried."""
    count = rows.shape[1]
    best, best_error = [0.0] * count, float(targets @ targets)
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = rows[:, chosen]
            scale = np.maximum(np.abs(part).max(axis=0), np.finfo(np.float64).tiny)
            found = np.linalg.lstsq(part / scale, targets, rcond=None)[0] / scale
            difference = part @ found - targets
            error = float(difference @ difference)
            if (found >= 0).all() and error < best_error * (1 - 1e-12):
                best_error = error
                best = [0.0] * count
                for index, value in zip(chosen, found, strict=True):
                    best[index] = float(value)
    return best, best_error
