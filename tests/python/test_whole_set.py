# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: reduce, gather, scatter, alltoall, counts per rank and float8, as Python gives them.

Method: ranks are threads over real engines; results are compared with NumPy, on values that are
unique to (rank, row).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rank_threads import SIZE, on_ranks

from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError, MismatchError

COUNTS = [2, 0, 5]


def rows(rank: int, count: int) -> np.ndarray[Any, Any]:
    """[count, 2] of values that no other rank has."""
    return np.arange(2 * count, dtype=np.int64).reshape(count, 2) + 1000 * rank


def test_reduce() -> None:
    def body(comm: Communicator) -> None:
        for root in range(SIZE):
            own = rows(comm.rank, 4)
            total = sum(rows(rank, 4) for rank in range(SIZE))
            result = comm.reduce(own, root=root)
            background = comm.reduce_async(own, op="max", root=root).wait()
            np.testing.assert_array_equal(own, rows(comm.rank, 4))
            if comm.rank != root:
                assert result is None
                assert background is None
                continue
            np.testing.assert_array_equal(result, total)
            np.testing.assert_array_equal(background, rows(SIZE - 1, 4))

    on_ranks(body)


def test_gather_and_scatter() -> None:
    def body(comm: Communicator) -> None:
        for root in range(SIZE):
            at_root = comm.rank == root
            everything = comm.gather(rows(comm.rank, 3), root=root)
            assert (everything is not None) == at_root
            if at_root:
                wanted = np.concatenate([rows(rank, 3) for rank in range(SIZE)])
                np.testing.assert_array_equal(everything, wanted)
            out = np.empty((3, 2), np.int64)
            assert comm.scatter(everything, out, root) is out
            np.testing.assert_array_equal(out, rows(comm.rank, 3))
            like = np.zeros((3 * SIZE, 2), np.int64) if everything is None else everything
            part = comm.scatter_async(like, root=root).wait()
            np.testing.assert_array_equal(part, rows(comm.rank, 3))

    on_ranks(body)


def test_alltoall() -> None:
    def body(comm: Communicator) -> None:
        own = rows(comm.rank, 2 * SIZE)
        mine = slice(2 * comm.rank, 2 * comm.rank + 2)
        wanted = np.concatenate([rows(rank, 2 * SIZE)[mine] for rank in range(SIZE)])
        np.testing.assert_array_equal(comm.alltoall(own), wanted)
        np.testing.assert_array_equal(comm.alltoall_async(own).wait(), wanted)
        assert comm.alltoall(own, own) is own
        np.testing.assert_array_equal(own, wanted)

    on_ranks(body)


def test_counts_of_those_that_all_ranks_know() -> None:
    def body(comm: Communicator) -> None:
        own = rows(comm.rank, COUNTS[comm.rank])
        everything = np.concatenate([rows(rank, count) for rank, count in enumerate(COUNTS)])
        np.testing.assert_array_equal(comm.allgather(own, counts=COUNTS), everything)
        part = comm.reducescatter(everything, counts=COUNTS)
        np.testing.assert_array_equal(part, SIZE * own)

    on_ranks(body)


@pytest.mark.parametrize("only_own", [True, False])
def test_counts_of_those_that_the_root_knows(only_own: bool) -> None:
    def body(comm: Communicator) -> None:
        for root in range(SIZE):
            at_root = comm.rank == root
            own = rows(comm.rank, COUNTS[comm.rank])
            counts = COUNTS[comm.rank] if only_own and not at_root else COUNTS
            everything = comm.gather(own, root=root, counts=counts)
            if at_root:
                wanted = np.concatenate([rows(rank, count) for rank, count in enumerate(COUNTS)])
                np.testing.assert_array_equal(everything, wanted)
            out = np.empty_like(own)
            comm.scatter(everything, out, root, counts=counts)
            np.testing.assert_array_equal(out, own)

    on_ranks(body)


def test_counts_of_alltoall() -> None:
    def length(source: int, dest: int) -> int:
        return (source * 2 + dest) % 4

    def sent(rank: int) -> list[int]:
        return [length(rank, dest) for dest in range(SIZE)]

    def body(comm: Communicator) -> None:
        received = [length(source, comm.rank) for source in range(SIZE)]
        own = rows(comm.rank, sum(sent(comm.rank)))
        result = comm.alltoall(own, send_counts=sent(comm.rank), recv_counts=received)
        parts = []
        for source in range(SIZE):
            start = sum(sent(source)[: comm.rank])
            parts.append(rows(source, sum(sent(source)))[start : start + received[source]])
        np.testing.assert_array_equal(result, np.concatenate(parts))

    on_ranks(body)


def test_bad_arguments_are_named() -> None:
    def body(comm: Communicator) -> None:
        own = rows(comm.rank, 6)
        for call, word in [
            (lambda: comm.gather(own, root=SIZE), "'root' is 3"),
            (lambda: comm.scatter(own, root=-1), "'root' is -1"),
            (lambda: comm.reduce(own, op="plus"), "'op' is 'plus'"),
            (lambda: comm.alltoall(own[:4]), r"'array' has shape \(4, 2\)"),
            (lambda: comm.allgather(own, counts=[1, 2]), r"'counts' is \[1, 2\]"),
            (lambda: comm.allgather(own, counts=[7, 7, 7]), "allowed are 7 rows"),
            (lambda: comm.reducescatter(own, counts=[1, 2, -3]), "'counts'"),
            (lambda: comm.reducescatter(own, counts="abc"), "'counts' is 'abc'"),
            (lambda: comm.alltoall(own, send_counts=[2, 2, 2]), "'recv_counts' is None"),
            (lambda: comm.allgather(np.array(1), counts=[1, 1, 1]), r"has shape \(\)"),
            (lambda: comm.gather(own, root=comm.rank, counts=6), "'counts' is 6"),
            (lambda: comm.scatter(None, root=(comm.rank + 1) % SIZE), "'out' are None"),
        ]:
            with pytest.raises(InvalidArgumentError, match=word):
                call()
        odd = rows(comm.rank, 5 if comm.rank == 1 else 6)
        with pytest.raises(MismatchError, match="rank 1"):
            comm.allgather(odd)
        np.testing.assert_array_equal(comm.allreduce(own), sum(rows(r, 6) for r in range(SIZE)))

    on_ranks(body)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_is_moved_and_not_reduced(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))

    def body(comm: Communicator) -> None:
        own = np.full(4, comm.rank + 0.5).astype(dtype)
        gathered = comm.allgather(own)
        assert gathered.dtype == dtype
        assert gathered.astype(np.float32).tolist() == [0.5] * 4 + [1.5] * 4 + [2.5] * 4
        with pytest.raises(InvalidArgumentError, match=r"not defined on float8.*all dtypes but"):
            comm.allreduce(own)

    on_ranks(body)


def test_float8_of_torch() -> None:
    torch = pytest.importorskip("torch")

    def body(comm: Communicator) -> None:
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            tensor = torch.full((4,), comm.rank + 0.5).to(dtype)
            comm.broadcast(tensor, tensor, root=2)
            assert tensor.to(torch.float32).tolist() == [2.5] * 4

    on_ranks(body)


def test_deterministic_and_options() -> None:
    def body(comm: Communicator) -> None:
        own = rows(comm.rank, 3).astype(np.float32)
        total = comm.allreduce(own)
        np.testing.assert_array_equal(comm.allreduce(own, deterministic=True), total)
        part = comm.reducescatter(own, deterministic=True)
        np.testing.assert_array_equal(part, total[comm.rank : comm.rank + 1])

    on_ranks(body)
