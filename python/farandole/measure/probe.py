# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures, between the running ranks, what a machine file needs.

Every rank sends to a neighbour and receives from one at the same time, as in a ring, since that is
what collectives do; rings of collectives are timed as they are; and all ranks exchange with all
others at once, which shows what several messages of a rank take from each other; and one message
goes from rank to rank, which shows what it costs while nobody else sends. Within the hosts
all hosts are measured at once, between hosts first one rank of each, then all of them, which shows
how they share the way out.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from farandole import _native
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError
from farandole.measure.fit import FAN, PASS, Sample
from farandole.measure.timing import Budget, measure

_LOCAL_BUDGET = Budget(seconds=0.2, warmup_seconds=0.05)
_PASSES = 3  # over all samples: what disturbs the machine for a while disturbs one of them
_PASS_SECONDS = 0.07  # of one sample
_ITERATIONS = (1, 40)
_LOCAL_BYTES = 4 << 20
_PASSED_BYTES = (4, 64)
_SHARING_BYTES_MIN = 1 << 16  # from here on a rate can be seen
_ITEM_BYTES = 4
_CORES = 1024  # those that a thread can be bound to
_LINES_MAX = 64


@dataclass(frozen=True)
class LineTime:
    """How long a cache line takes from one core to another, both of rank 0's host."""

    core: int
    other: int
    seconds: float


@dataclass(frozen=True)
class Measurements:
    hosts: int
    local_size: int
    transports: tuple[str, ...]
    samples: tuple[Sample, ...]
    reduce_per_byte: float
    copy_per_byte: float
    lines: tuple[LineTime, ...]


@dataclass(frozen=True)
class _Ring:
    """Ranks of `communicator` in blocks of `ranks` neighbours; this one may sit out."""

    hop: str
    communicator: Communicator
    ranks: int
    groups: int
    takes_part: bool = True

    def neighbours(self) -> tuple[int, int]:
        first = self.communicator.rank // self.ranks * self.ranks
        here = self.communicator.rank - first
        return first + (here + 1) % self.ranks, first + (here - 1) % self.ranks


_Wanted = tuple[_Ring, str, int]  # a pattern of fit.py, and its bytes


class Probe:
    """Collective: all ranks of the world make one and run it."""

    def __init__(self, world: Communicator, size_bytes_max: int) -> None:
        self._world = world
        self._node, self._across = world.node, world.across
        sizes = world.allgather(np.array(self._node.size))
        smallest, largest = int(sizes.min()), int(sizes.max())
        if smallest != largest:
            raise InvalidArgumentError(
                f"hosts have {smallest} to {largest} ranks, allowed is as many on each"
            )
        self._sizes = _sizes(size_bytes_max)

    def run(self) -> Measurements:
        from farandole import statistics

        samples = self._measured(list(self._samples()))
        sent = {name for name, row in statistics()["transports"].items() if row["sent_bytes"]}
        return Measurements(
            hosts=self._across.size,
            local_size=self._node.size,
            transports=tuple(sorted(sent)),
            samples=samples,
            reduce_per_byte=self._reduce_per_byte(),
            copy_per_byte=self._copy_per_byte(),
            lines=self._lines(),
        )

    def _measured(self, wanted: Sequence[_Wanted]) -> tuple[Sample, ...]:
        times: list[list[float]] = [[] for _ in wanted]
        for _ in range(_PASSES):
            for (ring, pattern, size_bytes), found in zip(wanted, times, strict=True):
                found += self._times(self._call(ring, pattern, size_bytes))
        return tuple(
            Sample(ring.hop, pattern, ring.ranks, ring.groups, size_bytes, median(found))
            for (ring, pattern, size_bytes), found in zip(wanted, times, strict=True)
        )

    def _times(self, call: Callable[[], Any]) -> list[float]:
        """Seconds of the slowest rank, call by call; the same on all ranks."""

        def together(iterations: int) -> list[float]:
            times = np.empty(iterations, np.float64)
            for index in range(iterations):
                self._world.barrier()  # costs are counted from when all have come
                start = perf_counter()
                call()
                times[index] = perf_counter() - start
            self._world.allreduce(times, times, "max")
            return times.tolist()

        (first,) = together(1)  # makes plans, connections and pages
        return together(int(min(max(_PASS_SECONDS / first, _ITERATIONS[0]), _ITERATIONS[1])))

    def _samples(self) -> Iterator[_Wanted]:
        node, across = self._node, self._across
        if node.size > 1:
            yield from self._whole(_Ring("host", node, node.size, 1))
            yield from self._parts("host", node, groups=1)
        if across.size > 1:
            alone = _Ring("rack", across, across.size, 1, takes_part=node.rank == 0)
            yield from self._whole(alone)
            yield from self._parts("rack", across, groups=1, takes_part=node.rank == 0)
            if node.size > 1:
                yield from self._exchanges(_Ring("rack", across, across.size, node.size))

    def _whole(self, ring: _Ring) -> Iterator[_Wanted]:
        """One ring of all, in every pattern and size."""
        yield from self._exchanges(ring, self._sizes)
        for pattern in ("allgather", "allreduce", FAN)[: 3 if ring.ranks > 2 else 2]:
            for size_bytes in self._sizes:
                count = max(size_bytes // (_ITEM_BYTES * ring.ranks), 1) * ring.ranks
                yield ring, pattern, count * _ITEM_BYTES
        if ring.ranks > 2:
            for size_bytes in _PASSED_BYTES:
                yield ring, PASS, size_bytes

    def _parts(
        self, hop: str, communicator: Communicator, groups: int, takes_part: bool = True
    ) -> Iterator[_Wanted]:
        """Smaller rings, all at once; and one pair by itself, while everybody else waits."""
        size = communicator.size
        for ranks in (part for part in range(2, size) if size % part == 0):
            ring = _Ring(hop, communicator, ranks, size // ranks * groups, takes_part)
            yield from self._exchanges(ring)
        if size > 2:
            is_first = takes_part and communicator.rank < 2
            yield from self._exchanges(_Ring(hop, communicator, 2, 1, is_first))

    def _exchanges(self, ring: _Ring, sizes: Sequence[int] | None = None) -> Iterator[_Wanted]:
        if sizes is None:
            sizes = [size for size in self._sizes if size >= _SHARING_BYTES_MIN]
        for size_bytes in sizes:
            yield ring, "exchange", size_bytes

    def _call(self, ring: _Ring, pattern: str, size_bytes: int) -> Callable[[], Any]:
        if not ring.takes_part:
            return lambda: None
        communicator = ring.communicator
        if pattern == "exchange":
            following, previous = ring.neighbours()
            out, array = np.empty(size_bytes, np.uint8), np.ones(size_bytes, np.uint8)
            return lambda: communicator.sendrecv(array, following, out, previous)
        whole = np.zeros(size_bytes // _ITEM_BYTES, np.float32)
        if pattern == PASS:
            return lambda: communicator.broadcast(whole, algorithm="chain")
        if pattern == "allgather":
            part = np.ones(whole.size // ring.ranks, np.float32)
            return lambda: communicator.allgather(part, whole, algorithm="ring")
        if pattern == FAN:
            return lambda: communicator.alltoall(whole, algorithm="direct")
        return lambda: communicator.allreduce(whole, whole, algorithm="ring")

    def _reduce_per_byte(self) -> float:
        count = _LOCAL_BYTES // _ITEM_BYTES
        target, source = np.zeros(count, np.float32), np.ones(count, np.float32)
        into = functools.partial(
            _native.reduce_into,
            target=target.ctypes.data,
            source=source.ctypes.data,
            count=count,
            dtype=_native.DType.float32,
            reduction=_native.Reduction.sum,
        )
        return self._per_byte(into)

    def _copy_per_byte(self) -> float:
        target, source = np.zeros(_LOCAL_BYTES, np.uint8), np.ones(_LOCAL_BYTES, np.uint8)
        return self._per_byte(lambda: np.copyto(target, source))

    def _lines(self) -> tuple[LineTime, ...]:
        """From the first core of rank 0's host to the others that its ranks may use; none on all
        other ranks, which wait."""
        cores = np.zeros(_CORES, np.uint8)
        cores[[core for core in os.sched_getaffinity(0) if core < _CORES]] = 1
        self._node.allreduce(cores, cores, "max")
        usable = np.flatnonzero(cores).tolist() if self._world.rank == 0 else []
        found = tuple(
            LineTime(usable[0], other, seconds)
            for other in usable[1 : 1 + _LINES_MAX]
            if (seconds := _native.line_seconds(usable[0], other)) is not None
        )
        self._world.barrier()
        return found

    def _per_byte(self, call: Callable[[], Any]) -> float:
        return float(np.median(measure(self._world, call, _LOCAL_BUDGET))) / 1e6 / _LOCAL_BYTES


def _sizes(size_bytes_max: int) -> list[int]:
    sizes = [0, 64, 1024, 4096]
    while sizes[-1] * 4 <= size_bytes_max:
        sizes.append(sizes[-1] * 4)
    return sizes
