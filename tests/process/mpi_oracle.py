# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank under mpiexec: runs the matrix with farandole and compares with MPI's answers.

Rank 0 prints one JSON line: how many combinations were compared and what was wrong. A wrong
result or an error does not stop the ranks before the batch ends, when MPI tells all of them.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, product
from threading import Timer
from typing import Any

import numpy as np
import oracle_matrix as matrix
from mpi4py import MPI
from oracle_matrix import OPERATIONS, Case, Operation, Run
from oracle_values import Answer, Array, blocks, factor, moved, offset, reduced

import farandole
from farandole import Communicator, Recv, Send, _native
from farandole.core.arrays import numpy_dtype

BATCH_CASES = 40
FAILURES_MAX = 5  # that each rank tells
POISON = 0xEE


@dataclass
class Job:
    """This rank's view of the job, and what it found."""

    arguments: argparse.Namespace
    shift: int
    compared: int = 0
    declined: int = 0
    rejected: int = 0
    failures: list[str] = field(default_factory=list)
    doing: str = "start-up"
    groups: dict[str, tuple[Communicator, MPI.Comm]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return MPI.COMM_WORLD.size

    def label(self, case: Case, run: Run) -> str:
        self.doing = (
            f"{case.operation.name}, algorithm {run.spec}, {case.dtype}, "
            f"{case.reduction or 'no reduction'}, size {case.size}, root {case.root}, "
            f"place {run.place}, {run.wait}, deterministic {run.deterministic}, "
            f"order {case.order}, {self.size} ranks, {self.arguments.kind}, seed {case.seed}"
        )
        return self.doing

    def fail(self, label: str, what: str) -> None:
        self.failures.append(f"{label}: rank {MPI.COMM_WORLD.rank} {what}")


def settle(requests: list[MPI.Request]) -> None:
    """Waits without spinning, since there are more ranks than cores, until all ranks are done:
    MPI may need the sender to deliver what it counts as sent."""
    while not MPI.Request.Testall(requests):
        time.sleep(0.0002)
    everybody = MPI.COMM_WORLD.Ibarrier()
    while not everybody.Test():
        time.sleep(0.0002)


def poisoned(count: int, dtype: str) -> Array:
    array = np.empty(count, numpy_dtype(dtype))
    array.view(np.uint8).fill(POISON)
    return array


class Trial:
    """One collective call and its arrays."""

    def __init__(self, job: Job, case: Case, run: Run, mine: Array) -> None:
        self.job, self.case, self.run, self.mine = job, case, run, mine
        self.comm, _ = job.groups[case.order]
        self.label = job.label(case, run)
        self.result: Any = None
        try:
            self.array, self.out = self._buffers()
            method = case.operation.collective + ("_async" if run.wait == "async" else "")
            self.result = getattr(self.comm, method)(self.array, self.out, **self._options())
        except Exception as error:
            declined = "with counts per rank one of" in str(error)
            if declined and matrix.may_decline(case.operation, run.spec):
                job.declined += 1
            else:
                job.compared += 1
                job.fail(self.label, f"raised {error!r}")
            self.run = run._replace(wait="never")

    def finish(self, expected: Array | None) -> None:
        job, run = self.job, self.run
        if run.wait == "never":
            return
        job.doing = self.label
        job.compared += 1
        try:
            result = self.result.wait() if run.wait == "async" else self.result
        except Exception as error:
            job.fail(self.label, f"raised {error!r}")
            return
        if job.compared >= job.arguments.spoil and result is not None and result.size:
            result.view(np.uint8)[0] ^= 1
            job.arguments.spoil = sys.maxsize
        if difference := differs(result, expected, self.case.operation.reduces):
            job.fail(self.label, difference)
        untouched = run.place != "in place" and self.array is not None
        if untouched and self.array.tobytes() != self.mine.tobytes():
            job.fail(self.label, "finds its input changed")

    def _buffers(self) -> tuple[Array | None, Array | None]:
        case, place, rank = self.case, self.run.place, self.comm.rank
        collective, at_root = case.operation.collective, self.comm.rank == case.root
        into, out = blocks(case, rank, self.comm.size)
        array = self.mine.copy()
        if place == "new" or (collective == "gather" and not at_root):
            return array, None
        if collective == "scatter" and not at_root:
            return None, poisoned(sum(out), case.dtype)
        if place == "given":
            return array, poisoned(sum(out), case.dtype)
        if collective in ("reducescatter", "scatter"):
            start = offset(into, rank)
            return array, array[start : start + into[rank]]
        if collective in ("allgather", "gather"):
            result = poisoned(sum(out), case.dtype)
            start = offset(out, rank)
            own = result[start : start + out[rank]]
            own[:] = array
            return own, result
        return array, array

    def _options(self) -> dict[str, Any]:
        case, operation = self.case, self.case.operation
        options: dict[str, Any] = {"algorithm": self.run.spec, "name": self.label}
        if operation.reduces:
            options |= {"op": case.reduction, "factor": factor(case)}
            options["deterministic"] = self.run.deterministic
        if operation.rooted:
            options["root"] = case.root
        if not operation.by_rank:
            return options
        into, out = blocks(case, self.comm.rank, self.comm.size)
        if operation.collective == "alltoall":
            return options | {"send_counts": into, "recv_counts": out}
        counts = into if operation.collective in ("reducescatter", "scatter") else out
        # Away from the root one's own count is enough.
        alone = operation.rooted and self.comm.rank != case.root
        return options | {"counts": counts[self.comm.rank] if alone else counts}


def differs(result: Array | None, expected: Array | None, by_value: bool) -> str:
    """What is wrong with the result; nothing if it is right. Sums of zeros may differ in sign."""
    if result is None or expected is None:
        return "" if result is expected else "got a result where none is due, or none"
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return f"got {result.dtype}{result.shape}, MPI {expected.dtype}{expected.shape}"
    if result.tobytes() == expected.tobytes():
        return ""
    if by_value and result.dtype.kind != "b" and np.array_equal(result, expected):
        return ""
    width = result.dtype.itemsize
    unequal = (result.view(np.uint8) != expected.view(np.uint8)).reshape(-1, width).any(1)
    at = int(np.flatnonzero(unequal)[0])
    return (
        f"got {result[at]} at {at} where MPI has {expected[at]}; "
        f"{int(unequal.sum())} of {len(unequal)} elements differ"
    )


def collectives(job: Job, cases: list[Case]) -> None:
    answers: list[Answer] = []
    inputs: list[Array] = []
    for case in cases:
        _, mpi = job.groups[case.order]
        count = sum(blocks(case, mpi.rank, mpi.size)[0])
        make = reduced if case.operation.reduces else moved
        inputs.append(make(case, count, mpi.rank))
        answers.append(Answer(mpi, case, inputs[-1]))
    settle([answer.request for answer in answers])
    for case, mine, answer in zip(cases, inputs, answers, strict=True):
        expected = answer.result()
        runs = matrix.runs(case, job.size, job.arguments.matrix)
        waiting = [Trial(job, case, run, mine) for run in runs if run.wait == "async"]
        for run in runs:
            if run.wait == "blocking":
                Trial(job, case, run, mine).finish(expected)
        for trial in reversed(waiting):
            trial.finish(expected)


def messages(case: Case, rank: int, size: int) -> tuple[list[tuple[int, Array]], ...]:
    """What this rank sends, by peer, and what it receives; here already as it should come."""
    name = case.operation.name
    if name == "batch":
        # Two to every rank, itself included, of different lengths.
        links = [(s, d, m) for m in range(2) for s in range(size) for d in range(size)]
    elif name == "sendrecv":
        links = [(s, (s + case.root) % size, 0) for s in range(size)]
    else:
        links = [(s, s ^ 1, 0) for s in range(size) if s ^ 1 < size]
    sends, receives = [], []
    for source, dest, number in links:
        count = case.size // (number + 1) + ((source + 2 * dest) % 3 if name == "batch" else 0)
        data = moved(case, count, source, number * size + dest) if rank in (source, dest) else None
        if rank == source and data is not None:
            sends.append((dest, data))
        if rank == dest and data is not None:
            receives.append((source, data))
    return sends, receives


def exchange(job: Job, cases: list[Case]) -> None:
    """Messages between two ranks, against those of MPI."""
    for case in cases:
        comm, mpi = job.groups[case.order]
        sends, receives = messages(case, comm.rank, comm.size)
        answers = [np.empty_like(data).view(np.uint8) for _, data in receives]
        requests = [mpi.Isend(data.view(np.uint8), peer) for peer, data in sends]
        sources = [peer for peer, _ in receives]
        pairs = zip(answers, sources, strict=True)
        settle(requests + [mpi.Irecv(answer, peer) for answer, peer in pairs])
        for run in matrix.runs(case, job.size, job.arguments.matrix):
            label = job.label(case, run)
            got = [poisoned(len(data), case.dtype) for _, data in receives]
            try:
                deliver(comm, case, run, sends, list(zip(sources, got, strict=True)))
            except Exception as error:
                job.fail(label, f"raised {error!r}")
            job.compared += 1
            for result, answer in zip(got, answers, strict=True):
                if difference := differs(result, answer.view(result.dtype), False):
                    job.fail(label, difference)


Messages = list[tuple[int, Array]]


def deliver(comm: Communicator, case: Case, run: Run, sends: Messages, receives: Messages) -> None:
    later = run.wait == "async"
    if case.operation.name == "batch":
        parts = [Recv(out, peer) for peer, out in receives] + [Send(a, peer) for peer, a in sends]
        if later:
            comm.batch_async(parts).wait()
        else:
            comm.batch(parts)
        return
    if not sends:
        return  # the last of an odd number of ranks has no partner
    (dest, array), (source, out) = sends[0], receives[0]
    if case.operation.name == "sendrecv":
        if later:
            comm.sendrecv_async(array, dest, out, source).wait()
        else:
            comm.sendrecv(array, dest, out, source)
    elif later:
        for request in (comm.recv_async(out, source), comm.send_async(array, dest)):
            request.wait()
    elif comm.rank % 2 == 0:
        comm.send(array, dest)
        comm.recv(out, source)
    else:
        comm.recv(out, source)
        comm.send(array, dest)


def barriers(job: Job, cases: list[Case]) -> None:
    """Nobody leaves before the last one came, by the clock that the ranks of a host share."""
    entered, left, labels = [], [], []
    for case in cases:
        comm, _ = job.groups[case.order]
        for run in matrix.runs(case, job.size, job.arguments.matrix):
            labels.append(job.label(case, run))
            if comm.rank == case.root:
                time.sleep(0.005)
            entered.append(time.monotonic_ns())
            if run.wait == "async":
                comm.barrier_async().wait()
            else:
                comm.barrier()
            left.append(time.monotonic_ns())
    last = np.empty(len(entered), np.int64)
    settle([MPI.COMM_WORLD.Iallreduce(np.array(entered), last, MPI.MAX)])
    for label, end, latest in zip(labels, left, last.tolist(), strict=True):
        job.compared += 1
        if end < latest:
            job.fail(label, f"left {latest - end} ns before the last rank came")


def reject(job: Job, operation: Operation) -> None:
    """What is not defined raises on every rank, before anything moves."""
    comm, _ = job.groups["world"]
    for dtype, op in product(_native.DTYPES, _native.REDUCTIONS):
        if matrix.is_valid(dtype, op):
            continue
        job.rejected += 1
        options: dict[str, Any] = {"op": op}
        if operation.by_rank:
            options["counts"] = [1] * comm.size
        array = np.zeros(comm.size, numpy_dtype(dtype))
        try:
            getattr(comm, operation.collective)(array, **options)
        except farandole.InvalidArgumentError as error:
            if op not in str(error) or dtype not in str(error):
                job.fail(f"{operation.name}, {dtype}, {op}", f"raised {error!r}")
        else:
            job.fail(f"{operation.name}, {dtype}, {op}", "raised nothing")


def batched(cases: Iterable[Case]) -> Iterator[list[Case]]:
    iterator = iter(cases)
    while batch := list(islice(iterator, BATCH_CASES)):
        yield batch


def all_well(job: Job) -> bool:
    total = np.empty(1, np.int64)
    settle([MPI.COMM_WORLD.Iallreduce(np.array([len(job.failures)]), total, MPI.SUM)])
    return bool(total[0] == 0)


def compare(job: Job) -> None:
    """Runs everything; returns early on all ranks after a batch in which something was wrong."""
    for operation in OPERATIONS:
        run = collectives if operation.collective else exchange
        if not operation.moves:
            run = barriers
        if operation.reduces:
            reject(job, operation)
        cases = matrix.cases(operation, job.size, job.arguments.matrix, job.shift)
        for batch in batched(cases):
            run(job, batch)
            if not all_well(job):
                return


def watch(job: Job, seconds: float) -> Timer:
    """Says what this rank is doing, and ends it, when it takes too long."""

    def overrun() -> None:
        state = farandole.context().dump() if farandole.is_initialized() else ""
        print(f"deadline passed during {job.doing}\n{state}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os._exit(3)

    timer = Timer(seconds, overrun)
    timer.daemon = True
    timer.start()
    return timer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True, help="the MPI that started us, for messages")
    parser.add_argument("--matrix", choices=matrix.MATRICES, required=True)
    parser.add_argument("--deadline", type=float, required=True, help="seconds")
    parser.add_argument("--spoil", type=int, default=sys.maxsize, help="a result to falsify")
    arguments = parser.parse_args()
    world = MPI.COMM_WORLD
    if world.rank != world.size - 1:
        arguments.spoil = sys.maxsize
    job = Job(arguments, matrix.shift(arguments.kind, world.size))
    watchdog = watch(job, arguments.deadline)
    farandole.init()
    for order in matrix.orders(world.size):
        key = matrix.key(order, world.rank, world.size)
        comm = farandole.world() if order == "world" else farandole.split(0, key)
        assert comm is not None
        job.groups[order] = (comm, world.Split(0, key))
        assert comm.rank == job.groups[order][1].rank
    compare(job)
    failures = world.gather(job.failures[:FAILURES_MAX])
    watchdog.cancel()
    if failures is not None:
        report = {
            "started_by": farandole.context().started_by,
            "compared": job.compared,
            "declined": job.declined,
            "rejected": job.rejected,
            "failures": [text for rank in failures for text in rank],
        }
        os.write(1, json.dumps(report).encode() + b"\n")
    farandole.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
