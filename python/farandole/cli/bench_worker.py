# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of `farandole bench`; rank 0 prints."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

import farandole
from farandole._arrays import numpy_dtype
from farandole.cli import bench_data as data
from farandole.cli import bench_plan as columns
from farandole.cli.bench_data import Array
from farandole.cli.bench_plan import BenchPlan

_ROW_SECONDS, _WARMUP_SECONDS = 0.5, 0.1
_ITERATIONS_MIN, _ITERATIONS_MAX = 5, 5000
_WARMUP_MAX = 50


@dataclass
class _Case:
    """One placement of one row: `call` runs it once; `prepare` lays out inputs and spoils the
    output; `wrong` counts this rank's wrong elements after a call."""

    call: Callable[[], Any]
    prepare: Callable[[], None]
    wrong: Callable[[], int]


class Bench:
    def __init__(self, plan: BenchPlan, output: IO[str] | None) -> None:
        self._plan = plan
        self._world = farandole.world()
        self._rank, self._size = self._world.rank, self._world.size
        self._output = output
        self._wrong = 0

    def run(self) -> int:
        """All rows; the number of wrong elements."""
        plan = self._plan
        self._say(f"# {plan.collective} among {self._size} ranks on this machine")
        self._say(columns.header(plan.places))
        for size_bytes in plan.sizes:
            self._row(size_bytes)
        return self._wrong

    def _say(self, text: str, end: str = "\n") -> None:
        if self._rank == 0:
            print(text, end=end, flush=True)

    def _row(self, size_bytes: int) -> None:
        plan, item_bytes = self._plan, numpy_dtype(self._plan.dtype).itemsize
        count = columns.elements_per_rank(plan.collective, size_bytes, item_bytes, self._size)
        size_bytes = columns.size_of_row(plan.collective, count, item_bytes, self._size)
        self._say(columns.row_start(size_bytes, count, plan.dtype, plan.op, plan.root), end="")
        for place in plan.places:
            case = self._case(count, place == "in-place")
            used = self._plans()
            samples = self._measure(case.call)
            algorithm, transport = self._chosen(used)
            wrong = self._check(case)
            self._wrong += wrong
            p50 = float(np.median(samples))
            algbw, busbw = columns.bandwidths(plan.collective, size_bytes, p50 / 1e6, self._size)
            self._say(columns.row_part(p50, algbw, busbw, wrong), end="")
            self._record(
                {
                    "collective": plan.collective,
                    "algorithm": algorithm,
                    "transport": transport,
                    "ranks": self._size,
                    "bytes": size_bytes,
                    "count": count,
                    "dtype": plan.dtype,
                    "op": plan.op,
                    "place": place,
                    "owned": plan.owned,
                    "p50_us": round(p50, 3),
                    "p99_us": round(float(np.percentile(samples, 99)), 3),
                    "min_us": round(float(samples.min()), 3),
                    "algbw_GBps": round(algbw, 4),
                    "busbw_GBps": round(busbw, 4),
                    "wrong": wrong,
                    "samples": [round(float(sample), 3) for sample in samples],
                }
            )
        self._say("")

    def _record(self, row: dict[str, Any]) -> None:
        if self._output is not None:
            self._output.write(json.dumps(row) + "\n")
            self._output.flush()

    # Time

    def _measure(self, call: Callable[[], Any]) -> Array:
        """Microseconds of the slowest rank, per iteration."""
        self._world.barrier()
        first = float(self._times(call, 1).max())
        warmup = self._plan.warmup
        if warmup is None:
            warmup = min(_WARMUP_MAX, math.floor(_WARMUP_SECONDS * 1e6 / first))
        estimate = float(np.median(self._times(call, warmup))) if warmup else first
        iterations = self._plan.iterations
        if iterations is None:
            iterations = math.floor(_ROW_SECONDS * 1e6 / estimate)
            iterations = max(_ITERATIONS_MIN, min(_ITERATIONS_MAX, iterations))
        return self._times(call, iterations)

    def _times(self, call: Callable[[], Any], iterations: int) -> Array:
        clock = time.perf_counter_ns
        times = np.empty(iterations, np.float64)
        for index in range(iterations):
            start = clock()
            call()
            times[index] = clock() - start
        self._world.allreduce(times, times, "max")  # so all ranks go on from the same numbers
        return times / 1e3

    # Which plan it was

    def _plans(self) -> dict[str, int]:
        return {name: used["calls"] for name, used in farandole.statistics()["plans"].items()}

    def _chosen(self, before: dict[str, int]) -> tuple[str, str]:
        """Algorithm and transport that ran most since `before`, from "allreduce ring shm"."""
        since = {
            name: calls - before.get(name, 0)
            for name, calls in self._plans().items()
            if name.split()[0] == self._plan.collective
        }
        if not since:
            return "", ""
        _, algorithm, *transport = max(since, key=lambda name: since[name]).split()
        return algorithm, " ".join(transport)

    # Right or wrong

    def _check(self, case: _Case) -> int:
        case.prepare()
        self._world.barrier()
        case.call()
        wrong = np.array([case.wrong()], np.int64)
        self._world.allreduce(wrong, wrong, "sum")
        return int(wrong[0])

    def _array(self, count: int) -> Array:
        if self._plan.owned:
            return farandole.empty(count, self._plan.dtype)
        return np.empty(count, numpy_dtype(self._plan.dtype))

    def _case(self, count: int, in_place: bool) -> _Case:
        plan = self._plan
        if plan.collective == "barrier":
            return _Case(self._world.barrier, lambda: None, lambda: 0)
        make = {
            "allreduce": self._allreduce,
            "broadcast": self._broadcast,
            "reducescatter": self._reducescatter,
            "allgather": self._allgather,
        }[plan.collective]
        return make(count, in_place)

    def _tile(self, rank: int) -> Array:
        return data.input_tile(rank, self._size, self._plan.dtype, self._plan.op)

    def _reduced(self) -> Array:
        return data.reduced_tile(self._size, self._plan.dtype, self._plan.op)

    def _prepare(self, source: Array, target: Array) -> Callable[[], None]:
        def prepare() -> None:
            target.fill(1)  # what no call has written
            data.fill(source, self._tile(self._rank))

        return prepare

    def _allreduce(self, count: int, in_place: bool) -> _Case:
        op, algorithm = self._plan.op, self._plan.algorithm
        source = self._array(count)
        target = source if in_place else self._array(count)
        return _Case(
            lambda: self._world.allreduce(source, target, op, algorithm=algorithm),
            self._prepare(source, target),
            lambda: data.count_wrong(target, self._reduced()),
        )

    def _broadcast(self, count: int, in_place: bool) -> _Case:
        root, algorithm = self._plan.root, self._plan.algorithm
        source = self._array(count)
        target = source if in_place else self._array(count)
        return _Case(
            lambda: self._world.broadcast(source, target, root, algorithm=algorithm),
            self._prepare(source, target),
            lambda: data.count_wrong(target, self._tile(root)),
        )

    def _reducescatter(self, count: int, in_place: bool) -> _Case:
        op, algorithm = self._plan.op, self._plan.algorithm
        source, first = self._array(count * self._size), count * self._rank
        target = source[first : first + count] if in_place else self._array(count)
        return _Case(
            lambda: self._world.reducescatter(source, target, op, algorithm=algorithm),
            self._prepare(source, target),
            lambda: data.count_wrong(target, self._reduced(), first),
        )

    def _allgather(self, count: int, in_place: bool) -> _Case:
        algorithm = self._plan.algorithm
        target, first = self._array(count * self._size), count * self._rank
        source = target[first : first + count] if in_place else self._array(count)

        def wrong() -> int:
            blocks = [target[rank * count : (rank + 1) * count] for rank in range(self._size)]
            return sum(
                data.count_wrong(block, self._tile(rank)) for rank, block in enumerate(blocks)
            )

        return _Case(
            lambda: self._world.allgather(source, target, algorithm=algorithm),
            self._prepare(source, target),
            wrong,
        )


def main() -> int:
    plan = BenchPlan.from_json(sys.argv[1])
    try:
        farandole.init()
        with contextlib.ExitStack() as files:
            output = None
            if plan.json_path and farandole.rank() == 0:
                output = files.enter_context(Path(plan.json_path).open("w", encoding="utf-8"))
            wrong = Bench(plan, output).run()
        farandole.shutdown()
    except farandole.FarandoleError as error:
        print(f"farandole bench: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
