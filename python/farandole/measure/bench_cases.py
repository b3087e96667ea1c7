# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The calls that `farandole bench` measures, with their inputs and what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

import farandole
from farandole.core.arrays import numpy_dtype
from farandole.core.calls import ReduceOp
from farandole.core.communicator import Communicator
from farandole.measure import bench_data as data
from farandole.measure.bench_data import Array
from farandole.measure.bench_plan import BenchPlan


@dataclass(frozen=True)
class Part:
    """Elements of an output, and where they come from."""

    elements: Array
    rank: int | None  # whose input; None: the reduction of all inputs
    offset: int = 0  # position of the first one there


@dataclass(frozen=True)
class Case:
    """One placement of one row on this rank."""

    call: Callable[[], Any]
    source: Array | None = None
    target: Array | None = None
    parts: Sequence[Part] = ()  # all of what this rank gets


class Cases:
    """Makes the cases of one plan. `count` is elements per rank, as nccl-tests counts them."""

    def __init__(self, world: Communicator, plan: BenchPlan) -> None:
        self._world = world
        self._rank, self._size = world.rank, world.size
        self._plan, self._root = plan, plan.root
        self._op = cast(ReduceOp, plan.op)  # bench has looked
        self._options: dict[str, Any] = {"algorithm": plan.algorithm}
        self._reducing = self._options | {"deterministic": plan.deterministic}

    def make(self, count: int, in_place: bool) -> Case:
        makers = {
            "allreduce": self._allreduce,
            "reduce": self._reduce,
            "broadcast": self._broadcast,
            "reducescatter": self._reducescatter,
            "allgather": self._allgather,
            "gather": self._gather,
            "scatter": self._scatter,
            "alltoall": self._alltoall,
            "sendrecv": self._sendrecv,
            "barrier": lambda *_: Case(self._world.barrier),
        }
        return makers[self._plan.collective](count, in_place)

    def prepare(self, case: Case) -> None:
        """Lays out the input and spoils the output."""
        if case.target is not None:
            case.target.fill(1)
        if case.source is not None:
            data.fill(case.source, self._tile(self._rank))

    def count_wrong(self, case: Case) -> int:
        """This rank's wrong elements after a call."""
        return sum(
            data.count_wrong(part.elements, self._tile(part.rank), part.offset)
            for part in case.parts
        )

    def _tile(self, rank: int | None) -> Array:
        dtype, op = self._plan.dtype, self._plan.op
        if rank is None:
            return data.reduced_tile(self._size, dtype, op)
        return data.input_tile(rank, self._size, dtype, op)

    def _array(self, count: int) -> Array:
        if self._plan.owned:
            return farandole.empty(count, self._plan.dtype)
        return np.empty(count, numpy_dtype(self._plan.dtype))

    def _pair(self, count: int, in_place: bool) -> tuple[Array, Array]:
        source = self._array(count)
        return source, source if in_place else self._array(count)

    def _block(self, array: Array, count: int) -> Array:
        return array[count * self._rank : count * (self._rank + 1)]

    def _blocks_of_all(self, target: Array, count: int, offset: int = 0) -> list[Part]:
        """Block r comes from rank r."""
        starts = enumerate(range(0, count * self._size, count)) if count else ()
        return [Part(target[start : start + count], rank, offset) for rank, start in starts]

    def _allreduce(self, count: int, in_place: bool) -> Case:
        source, target = self._pair(count, in_place)
        return Case(
            lambda: self._world.allreduce(source, target, self._op, **self._reducing),
            source,
            target,
            [Part(target, None)],
        )

    def _reduce(self, count: int, in_place: bool) -> Case:
        at_root = self._rank == self._root
        source = self._array(count)
        apart = self._array(count) if at_root else None
        target = source if in_place else apart
        return Case(
            lambda: self._world.reduce(source, target, self._op, self._root, **self._reducing),
            source,
            target,
            [Part(target, None)] if at_root and target is not None else [],
        )

    def _broadcast(self, count: int, in_place: bool) -> Case:
        source, target = self._pair(count, in_place)
        return Case(
            lambda: self._world.broadcast(source, target, self._root, **self._options),
            source,
            target,
            [Part(target, self._root)],
        )

    def _reducescatter(self, count: int, in_place: bool) -> Case:
        source = self._array(count * self._size)
        target = self._block(source, count) if in_place else self._array(count)
        return Case(
            lambda: self._world.reducescatter(source, target, self._op, **self._reducing),
            source,
            target,
            [Part(target, None, count * self._rank)],
        )

    def _allgather(self, count: int, in_place: bool) -> Case:
        target = self._array(count * self._size)
        source = self._block(target, count) if in_place else self._array(count)
        return Case(
            lambda: self._world.allgather(source, target, **self._options),
            source,
            target,
            self._blocks_of_all(target, count),
        )

    def _gather(self, count: int, in_place: bool) -> Case:
        target = self._array(count * self._size) if self._rank == self._root else None
        within = target if in_place else None
        source = self._array(count) if within is None else self._block(within, count)
        return Case(
            lambda: self._world.gather(source, target, self._root, **self._options),
            source,
            target,
            [] if target is None else self._blocks_of_all(target, count),
        )

    def _scatter(self, count: int, in_place: bool) -> Case:
        source = self._array(count * self._size) if self._rank == self._root else None
        within = source if in_place else None
        target = self._array(count) if within is None else self._block(within, count)
        return Case(
            lambda: self._world.scatter(source, target, self._root, **self._options),
            source,
            target,
            [Part(target, self._root, count * self._rank)],
        )

    def _alltoall(self, count: int, in_place: bool) -> Case:
        source, target = self._pair(count * self._size, in_place)
        return Case(
            lambda: self._world.alltoall(source, target, **self._options),
            source,
            target,
            self._blocks_of_all(target, count, count * self._rank),
        )

    def _sendrecv(self, count: int, _: bool) -> Case:
        after, before = (self._rank + 1) % self._size, (self._rank - 1) % self._size
        source, target = self._pair(count, False)
        return Case(
            lambda: self._world.sendrecv(source, after, target, before),
            source,
            target,
            [Part(target, before)],
        )
