# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that call unlike things: runs cases one after the other on communicators of some ranks.

    farandole run -n 5 python mismatches.py BOARD SEED COUNT

BOARD is an empty file through which the ranks tell each other what each case gave them; it goes
past the library, which is what is tested. COUNT cases are drawn with SEED; 0: the whole matrix.
MISMATCHES_HOSTS says on how many hosts the ranks pretend to be. Rank 0 prints a line of JSON per
case.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import farandole
from farandole.core.communicator import Communicator

LONG = 300_000
OUTCOMES = ("right", "wrong", "mismatch", "other")


class Call(NamedTuple):
    """What one rank does, and what it gets if all ranks of the communicator do the same."""

    collective: str
    arguments: Callable[[Communicator], tuple[Any, ...]]
    options: Callable[[Communicator], dict[str, Any]] = lambda _: {}
    right: Callable[[Communicator, Any], bool] = lambda _, __: True


def numbers(count: int, dtype: type = np.float32) -> Callable[[Communicator], tuple[Any, ...]]:
    return lambda comm: (np.full(count, comm.rank + 1, dtype),)


def blocks(count: int) -> Callable[[Communicator], tuple[Any, ...]]:
    return lambda comm: (np.full(count * comm.size, comm.rank + 1, np.float32),)


def rows_of(comm: Communicator, counts: list[int]) -> tuple[Any, ...]:
    return (np.full(counts[comm.rank], comm.rank + 1, np.float32),)


def rising(comm: Communicator) -> list[int]:
    return list(range(comm.size))


def falling(comm: Communicator) -> list[int]:
    return rising(comm)[::-1]


def none(comm: Communicator) -> list[int]:
    return [0] * comm.size


def total(comm: Communicator) -> int:
    return comm.size * (comm.size + 1) // 2


def sums(comm: Communicator, result: Any) -> bool:
    return result is None or bool((result == total(comm)).all())


def from_root(root: Callable[[Communicator], int]) -> Callable[[Communicator, Any], bool]:
    return lambda comm, result: result is None or bool((result == root(comm) + 1).all())


def gathered(comm: Communicator, result: Any) -> bool:
    return result is None or set(np.unique(result)) <= set(range(1, comm.size + 1))


def first(_: Communicator) -> int:
    return 0


def last(comm: Communicator) -> int:
    return comm.size - 1


def own(comm: Communicator) -> int:
    return comm.rank


def rooted(name: str, root: Callable[[Communicator], int], arguments: Any, right: Any) -> Call:
    return Call(name, arguments, lambda comm: {"root": root(comm)}, right)


def by_counts(
    name: str, counts: Callable[[Communicator], list[int]], arguments: Any = None, **more: Any
) -> Call:
    return Call(
        name,
        arguments or (lambda comm: rows_of(comm, counts(comm))),
        lambda comm: {"counts": counts(comm), **more},
    )


def exchanged(to_first: int) -> Call:
    """alltoall of one row for each other rank, `to_first` for rank 0."""

    def sent(comm: Communicator) -> list[int]:
        return [to_first] + [1] * (comm.size - 1)

    def got(comm: Communicator) -> list[int]:
        return [to_first if comm.rank == 0 else 1] * comm.size

    return Call(
        "alltoall",
        lambda comm: (np.full(sum(sent(comm)), comm.rank + 1, np.float32),),
        lambda comm: {"send_counts": sent(comm), "recv_counts": got(comm)},
    )


CALLS = {
    "allreduce": Call("allreduce", numbers(4), right=sums),
    "allreduce 5": Call("allreduce", numbers(5), right=sums),
    "allreduce float64": Call("allreduce", numbers(4, np.float64), right=sums),
    "allreduce int32": Call("allreduce", numbers(4, np.int32), right=sums),
    "allreduce max": Call("allreduce", numbers(4), lambda _: {"op": "max"}),
    "allreduce average": Call("allreduce", numbers(4), lambda _: {"op": "average"}),
    "allreduce ring": Call("allreduce", numbers(4), lambda _: {"algorithm": "ring"}, sums),
    "allreduce none": Call("allreduce", numbers(0)),
    "allreduce long": Call("allreduce", numbers(LONG), right=sums),
    "reduce to first": rooted("reduce", first, numbers(4), sums),
    "reduce to last": rooted("reduce", last, numbers(4), sums),
    "reduce to own": rooted("reduce", own, numbers(4), sums),
    "reduce none": rooted("reduce", first, numbers(0), sums),
    "reduce long": rooted("reduce", first, numbers(LONG), sums),
    "broadcast from first": rooted("broadcast", first, numbers(4), from_root(first)),
    "broadcast from last": rooted("broadcast", last, numbers(4), from_root(last)),
    "broadcast from own": rooted("broadcast", own, numbers(4), from_root(own)),
    "broadcast 5": rooted("broadcast", first, numbers(5), from_root(first)),
    "broadcast none": rooted("broadcast", first, numbers(0), from_root(first)),
    "broadcast long": rooted("broadcast", first, numbers(LONG), from_root(first)),
    "reducescatter": Call("reducescatter", blocks(4), right=sums),
    "reducescatter counts": by_counts("reducescatter", rising, blocks(0)),
    "allgather": Call("allgather", numbers(4), right=gathered),
    "allgather 5": Call("allgather", numbers(5), right=gathered),
    "allgather none": Call("allgather", numbers(0)),
    "allgather rising": by_counts("allgather", rising),
    "allgather falling": by_counts("allgather", falling),
    "allgather counts none": by_counts("allgather", none),
    "gather to first": rooted("gather", first, numbers(4), gathered),
    "gather to last": rooted("gather", last, numbers(4), gathered),
    "gather rising": by_counts("gather", rising),
    "gather falling": by_counts("gather", falling),
    "scatter from first": rooted("scatter", first, blocks(4), from_root(first)),
    "scatter from last": rooted("scatter", last, blocks(4), from_root(last)),
    "alltoall": Call("alltoall", blocks(4), right=gathered),
    "alltoall ones": exchanged(1),
    "alltoall twos": exchanged(2),
    "barrier": Call("barrier", lambda _: ()),
    "bytes of a split": Call("allgather", numbers(24, np.uint8)),
    "split": Call("split", lambda _: (0, 0)),
}
# reducescatter with counts takes as many rows as there are in all.
CALLS["reducescatter counts"] = CALLS["reducescatter counts"]._replace(
    arguments=lambda comm: (np.full(sum(rising(comm)), comm.rank + 1, np.float32),)
)


def asked(names: tuple[str, ...], rank: int) -> str:
    """Two ranks whose calls have the same meaning ask for the same."""
    name, size = names[rank], len(names)
    if name.endswith(" own"):
        root = {0: "first", size - 1: "last"}.get(rank, str(rank))
        return name.replace("own", root)
    if name.endswith(" last") and size == 1:
        return name.replace("last", "first")
    # Of the counts of a gather only its own matters on a rank that is not the root, here rank 0;
    # in the middle both ways have the same.
    gathers = {"gather rising", "gather falling"}
    if {name, names[0]} <= gathers and 2 * rank == size - 1:
        return names[0]
    return name


class Case(NamedTuple):
    names: tuple[str, ...]  # by rank
    waits: bool  # else three calls are outstanding on each rank, of which the second is unlike
    late: int | None  # this rank calls some time after the others

    @property
    def is_unlike(self) -> bool:
        return len({asked(self.names, rank) for rank in range(len(self.names))}) > 1


def whole_matrix(chooser: random.Random) -> Iterator[Case]:
    """All pairs of calls on 2 to 5 ranks; who deviates, and how, is drawn."""
    for size in (2, 3, 4, 5):
        for usual, unlike in permutations(CALLS, 2):
            names = [usual] * size
            names[chooser.randrange(size)] = unlike
            if size > 2 and chooser.random() < 0.25:
                names[chooser.randrange(size)] = chooser.choice(list(CALLS))
            late = chooser.randrange(size) if chooser.random() < 0.2 else None
            waits = "split" in names or chooser.random() < 0.5
            yield Case(tuple(names), waits, late)
        for name in CALLS:
            yield Case((name,) * size, name == "split" or chooser.random() < 0.5, None)


def outcome_of(comm: Communicator, name: str, get: Callable[[], Any]) -> int:
    try:
        result = get()
    except farandole.MismatchError:
        return OUTCOMES.index("mismatch")
    except farandole.FarandoleError as error:
        print(name, type(error).__name__, error, file=sys.stderr)
        return OUTCOMES.index("other")
    return OUTCOMES.index("right" if CALLS[name].right(comm, result) else "wrong")


def attempt(comm: Communicator, case: Case) -> tuple[int, float, float, int]:
    """The outcome, when it was called, when it ended, and the outcome of what followed."""
    name = case.names[comm.rank]
    call = CALLS[name]
    arguments, options = call.arguments(comm), call.options(comm)
    if case.late == comm.rank:
        time.sleep(0.15)
    if case.waits:
        called = time.monotonic()
        got = outcome_of(comm, name, lambda: getattr(comm, call.collective)(*arguments, **options))
        ended = time.monotonic()
        beside = OUTCOMES.index("right")
    else:
        one = np.full(1, comm.rank + 1, np.float32)
        before = comm.allreduce_async(one)
        called = time.monotonic()
        request = getattr(comm, call.collective + "_async")(*arguments, **options)
        after = comm.allreduce_async(one)
        got = outcome_of(comm, name, request.wait)
        ended = time.monotonic()
        beside = max(outcome_of(comm, "allreduce", other.wait) for other in (before, after))
    follows = outcome_of(
        comm, "allreduce", lambda: comm.allreduce(np.full(7, comm.rank + 1, np.float32))
    )
    return got, called, ended, max(follows, beside)


class Board:
    """A row of numbers per rank and case, in a file that all ranks map."""

    def __init__(self, path: Path, size: int, width: int) -> None:
        self._rows = np.memmap(path, np.float64, "r+", shape=(2, size, width + 1))
        self._turn = 0

    def exchange(self, rank: int, mine: tuple[float, ...]) -> Any:
        """All ranks' rows, once all have written theirs."""
        self._turn += 1
        rows = self._rows[self._turn % 2]
        rows[rank, 1:] = mine
        rows[rank, 0] = self._turn
        while (rows[:, 0] != self._turn).any():
            time.sleep(0.0005)
        return rows[:, 1:].copy()


def main() -> None:
    board_path, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if hosts := int(os.environ.get("MISMATCHES_HOSTS", "0")):
        os.environ["FARANDOLE_HOST_ID"] = f"host {int(os.environ['FARANDOLE_RANK']) % hosts}"
    farandole.init()
    world = farandole.world()
    board = Board(board_path, world.size, 4)
    chooser = random.Random(seed)
    cases = list(whole_matrix(chooser))
    if count:
        cases = chooser.sample(cases, count)
    for case in cases:
        size = len(case.names)
        members = chooser.sample(range(world.size), size)
        row: tuple[float, ...] = (0, 0, 0, 0)
        comm = world.split(0 if world.rank in members else None)
        if comm is not None:
            row = attempt(comm, case)
            comm.free()
        rows = board.exchange(world.rank, row)[sorted(members)]
        if world.rank != 0:
            continue
        said = {
            "case": case.names,
            "waits": case.waits,
            "late": case.late,
            "unlike": case.is_unlike,
            "outcomes": [OUTCOMES[int(code)] for code in rows[:, 0]],
            "seconds": float(rows[:, 2].max() - rows[:, 1].max()),
            "follows": [OUTCOMES[int(code)] for code in rows[:, 3]],
        }
        print(json.dumps(said), flush=True)


main()
