# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What timelines of ranks say in sum: times of phases, who came last, which tensors waited."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from farandole.trace.timeline import Trace, times_of

PHASES = (
    "queued",
    "negotiating",
    "waiting for group",
    "fused copy in",
    "collective",
    "fused copy out",
    "done",
)
WAITING = ("queued", "negotiating", "waiting for group")
SLOWEST_TENSORS = 10


@dataclass(frozen=True)
class PhaseTime:
    """share: of the time in all phases. Percentiles are times that occurred (nearest rank)."""

    phase: str
    count: int
    total_ns: int
    share: float
    p50_ns: int
    p99_ns: int


@dataclass(frozen=True)
class RankArrivals:
    """last: how often this rank alone was the last that began to negotiate a tensor. The others
    waited for it: all of them together, and one of them once at most."""

    rank: int
    host: str
    last: int
    others_waited_ns: int
    longest_wait_ns: int


@dataclass(frozen=True)
class TensorWait:
    """Time before its collectives, of all ranks together; longest: in one phase, once."""

    tensor: str
    count: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True)
class CounterValues:
    name: str
    count: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    ranks: list[int]
    size: int
    duration_ns: int  # from the earliest to the latest event
    negotiations: int  # of two ranks or more
    phases: list[PhaseTime]
    arrivals: list[RankArrivals]  # who was last most often comes first
    tensors: list[TensorWait]
    counters: list[CounterValues]
    dropped: dict[int, dict[str, int]]  # by rank


def summarize(traces: Sequence[Trace]) -> Summary:
    times = list(times_of(traces))
    ends = [span.end_ns for trace in traces for span in trace.spans]
    rounds = list(negotiations(traces))
    return Summary(
        ranks=[trace.rank for trace in traces],
        size=traces[0].size if traces else 0,
        duration_ns=max([*times, *ends], default=0) - min(times, default=0),
        negotiations=len(rounds),
        phases=_phase_times(traces),
        arrivals=_arrivals(traces, rounds),
        tensors=_tensor_waits(traces),
        counters=_counter_values(traces),
        dropped={trace.rank: trace.dropped for trace in traces},
    )


def negotiations(traces: Sequence[Trace]) -> Iterator[dict[int, int]]:
    """For each time that two ranks or more negotiated a tensor: when each rank began.

    All of them end with the same agreement, so those of one time overlap; the next begins after
    the earliest end. Ranks that dropped events, or joined, are missing in some.
    """
    by_tensor: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for trace in traces:
        for span in trace.spans:
            if span.phase == "negotiating":
                by_tensor[span.tensor].append((span.begin_ns, span.end_ns, trace.rank))
    for spans in by_tensor.values():
        begins: dict[int, int] = {}
        earliest_end = 0
        for begin, end, rank in sorted(spans):
            if begins and (begin > earliest_end or rank in begins):
                if len(begins) > 1:
                    yield begins
                begins = {}
            earliest_end = min(earliest_end, end) if begins else end
            begins[rank] = begin
        if len(begins) > 1:
            yield begins


def _percentile(ordered: Sequence[int], percent: int) -> int:
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def _phase_times(traces: Sequence[Trace]) -> list[PhaseTime]:
    durations: dict[str, list[int]] = {phase: [] for phase in PHASES}
    for trace in traces:
        for span in trace.spans:
            durations.setdefault(span.phase, []).append(span.duration_ns)
    everything = sum(map(sum, durations.values()))
    rows = []
    for phase, times in durations.items():
        if times:
            times.sort()
            total = sum(times)
            share = total / everything if everything else 0.0
            p50, p99 = _percentile(times, 50), _percentile(times, 99)
            rows.append(PhaseTime(phase, len(times), total, share, p50, p99))
    return rows


def _arrivals(traces: Sequence[Trace], rounds: Iterable[dict[int, int]]) -> list[RankArrivals]:
    last: dict[int, int] = defaultdict(int)
    waited: dict[int, int] = defaultdict(int)
    longest: dict[int, int] = defaultdict(int)
    for begins in rounds:
        latest = max(begins.values())
        ranks = [rank for rank, begin in begins.items() if begin == latest]
        if len(ranks) == 1:
            rank = ranks[0]
            waits = [latest - begin for begin in begins.values()]
            last[rank] += 1
            waited[rank] += sum(waits)
            longest[rank] = max(longest[rank], *waits)
    rows = [
        RankArrivals(
            trace.rank, trace.host, last[trace.rank], waited[trace.rank], longest[trace.rank]
        )
        for trace in traces
    ]
    return sorted(rows, key=lambda row: (-row.last, -row.others_waited_ns, row.rank))


def _tensor_waits(traces: Sequence[Trace]) -> list[TensorWait]:
    waits: dict[str, list[int]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for trace in traces:
        for span in trace.spans:
            if span.phase in WAITING:
                waits[span.tensor].append(span.duration_ns)
                counts[span.tensor] += span.phase == "negotiating"
    rows = [
        TensorWait(tensor, counts[tensor], sum(times), max(times))
        for tensor, times in waits.items()
        if any(times)
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.tensor))[:SLOWEST_TENSORS]


def _counter_values(traces: Sequence[Trace]) -> list[CounterValues]:
    values: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        for sample in trace.samples:
            values[sample.name].append(sample.value)
    return [
        CounterValues(name, len(some), sum(some) / len(some), min(some), max(some))
        for name, some in sorted(values.items())
    ]
