# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank of `farandole bench`; rank 0 prints."""

from __future__ import annotations

import json
import os
from typing import IO, Any

import numpy as np

import farandole
from farandole.core.arrays import numpy_dtype
from farandole.measure import bench_plan as columns
from farandole.measure.bench_cases import Case, Cases
from farandole.measure.bench_plan import BenchPlan
from farandole.measure.timing import Budget, measure


def _places() -> str:
    """Where this rank, as one of all, may run, if that is not wherever there is a core."""
    cores, online = len(os.sched_getaffinity(0)), os.cpu_count()
    bound = "" if cores == online else f", each bound to {cores} of {online} cores"
    return bound + (", sharing cores" if farandole.context().shares_cores else "")


class Bench:
    """`output`: the file for JSON lines, of rank 0; `only_json`: they are all that is printed."""

    def __init__(
        self, plan: BenchPlan, output: IO[str] | None = None, only_json: bool = False
    ) -> None:
        self._plan = plan
        self._world = farandole.world()
        self._rank, self._size = self._world.rank, self._world.size
        self._cases = Cases(self._world, plan)
        self._output = output
        self._only_json = only_json
        self._wrong = 0

    def run(self) -> int:
        """All rows; the number of wrong elements."""
        plan = self._plan
        how = ", deterministic" if plan.deterministic else ""
        hosts = farandole.cross_size()
        where = "this machine" if hosts == 1 else f"{hosts} hosts"
        self._say(f"# {plan.collective} among {self._size} ranks on {where}{how}{_places()}")
        self._say(columns.header(plan.places))
        for size_bytes in plan.sizes:
            self._row(size_bytes)
        return self._wrong

    def _say(self, text: str, end: str = "\n") -> None:
        if self._rank == 0 and not self._only_json:
            print(text, end=end, flush=True)

    def _row(self, size_bytes: int) -> None:
        plan, item_bytes = self._plan, numpy_dtype(self._plan.dtype).itemsize
        count = columns.elements_per_rank(plan.collective, size_bytes, item_bytes, self._size)
        size_bytes = columns.size_of_row(plan.collective, count, item_bytes, self._size)
        self._say(columns.row_start(size_bytes, count, plan.dtype, plan.op, plan.root), end="")
        for place in plan.places:
            if place == "in-place" and plan.collective in columns.NEVER_IN_PLACE:
                self._say(columns.absent_row_part(), end="")
            else:
                self._place(place, count, size_bytes)
        self._say("")

    def _place(self, place: str, count: int, size_bytes: int) -> None:
        plan = self._plan
        case = self._cases.make(count, place == "in-place")
        before = farandole.statistics()
        budget = Budget(iterations=plan.iterations, warmup=plan.warmup)
        samples = measure(self._world, case.call, budget)
        algorithm, transport = self._chosen(before)
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

    def _record(self, row: dict[str, Any]) -> None:
        line = json.dumps(row) + "\n"
        if self._only_json and self._rank == 0:
            print(line, end="", flush=True)
        if self._output is not None:
            self._output.write(line)
            self._output.flush()

    # Which plan it was

    def _chosen(self, before: dict[str, Any]) -> tuple[str, str]:
        """Algorithm and transport that ran most since `before`, from the labels of plans. Messages
        have no algorithm, and take the transports that sent anything."""
        now = farandole.statistics()
        if self._plan.collective == "sendrecv":
            sent = _since(before["transports"], now["transports"], "sent_bytes")
            return "", " ".join(sorted(name for name, bytes_sent in sent.items() if bytes_sent))
        calls = {
            name: since
            for name, since in _since(before["plans"], now["plans"], "calls").items()
            if name.split()[0] == self._plan.collective
        }
        if not calls:
            return "", ""
        _, algorithm, *transport = max(calls, key=lambda name: calls[name]).split()
        return algorithm, " ".join(transport)

    # Right or wrong

    def _check(self, case: Case) -> int:
        self._cases.prepare(case)
        self._world.barrier()
        case.call()
        wrong = np.array([self._cases.count_wrong(case)], np.int64)
        self._world.allreduce(wrong, wrong, "sum")
        return int(wrong[0])


def _since(
    before: dict[str, dict[str, int]], now: dict[str, dict[str, int]], key: str
) -> dict[str, int]:
    return {name: row[key] - before.get(name, {key: 0})[key] for name, row in now.items()}
