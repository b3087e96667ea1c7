# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: ranks of farandole.torch that call in different orders, or not at all, get right results;
ranks that ask for different things are all told what, and go on; and sets of ranks work side by
side.

Method: real processes. Every rank shuffles its calls with its own seed. Inputs are small integers
that differ between ranks and tensors, so that every sum has one exact value.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_checks import assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError, MismatchError, UnsupportedError


def shuffled(items: list[Any], seed: int) -> list[Any]:
    order = list(items)
    random.Random(f"{seed} on {hvd.rank()}").shuffle(order)
    return order


def total(value: Callable[[int], int], ranks: list[int] | None = None) -> int:
    return sum(value(rank) for rank in (ranks or range(hvd.size())))


def check_different_orders() -> None:
    rank, size = hvd.rank(), hvd.size()
    for seed in range(5):
        handles = {}
        for index in shuffled(list(range(40)), seed):
            name, root = f"tensor {index}", index % size
            given = torch.full((index,), float(rank * 100 + index))
            start = {
                0: lambda t, n: hvd.allreduce_async(t, name=n, op=hvd.Sum),
                1: lambda t, n, r=root: hvd.broadcast_async(t, r, name=n),
                2: lambda t, n: hvd.allgather_async(t, name=n),
                3: lambda t, n: hvd.grouped_allreduce_async([t, t], name=n, op=hvd.Max),
            }[index % 4]
            handles[index] = start(given, name)
        for index in shuffled(list(range(40)), seed + 100):
            got = hvd.synchronize(handles[index])
            values = [float(each * 100 + index) for each in range(size)]
            if index % 4 == 0:
                expected = torch.full((index,), sum(values))
            elif index % 4 == 1:
                expected = torch.full((index,), values[index % size])
            elif index % 4 == 2:
                expected = torch.cat([torch.full((index,), value) for value in values])
            else:
                assert torch.equal(got[0], got[1])
                got, expected = got[0], torch.full((index,), values[-1])
            assert torch.equal(got, expected), (seed, index)


@contextlib.contextmanager
def disagreement(*parts: str) -> Iterator[None]:
    """The block raises on every rank, with these texts; and the next operations work."""
    with pytest.raises(MismatchError) as caught:
        yield
    for part in parts:
        assert part in str(caught.value), (part, str(caught.value))
    assert hvd.allreduce(torch.ones(2), name="disputed", op=hvd.Sum).tolist() == [hvd.size()] * 2
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def check_mismatches_raise_everywhere_and_are_survived() -> None:
    last = hvd.size() - 1
    odd = hvd.rank() == last
    name = "disputed"
    with disagreement("'disputed'", "rank 0 asked for allreduce average float32[3]", "float32[4]"):
        hvd.allreduce(torch.ones(4 if odd else 3), name=name)
    with disagreement("'disputed'", "allreduce average float32[3]", "float64[3]"):
        hvd.allreduce(torch.ones(3, dtype=torch.float64 if odd else torch.float32), name=name)
    with disagreement("'disputed'", "allreduce sum", f"rank {last} for allreduce max"):
        hvd.allreduce(torch.ones(3), name=name, op=hvd.Max if odd else hvd.Sum)
    with disagreement("'disputed'", "allreduce sum", "adasum"):
        hvd.allreduce(torch.ones(3), name=name, op=hvd.Adasum if odd else hvd.Sum)
    with disagreement("'disputed'", "prescaled by 0.5", "prescaled by 0.25"):
        factor = 0.25 if odd else 0.5
        hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum, prescale_factor=factor)
    with disagreement("'disputed'", "from rank 0", f"from rank {last}"):
        hvd.broadcast(torch.ones(3), last if odd else 0, name=name)
    with disagreement("'disputed'", "allgather float32[3]", "broadcast float32[3]"):
        hvd.broadcast(torch.ones(3), 0, name) if odd else hvd.allgather(torch.ones(3), name)
    with disagreement("'disputed.", "group 'disputed' of 2", "group 'disputed' of 3"):
        hvd.grouped_allreduce([torch.ones(1)] * (3 if odd else 2), name=name)
    with disagreement("'disputed'", "of shape [3, 3]", "of shape [4, 3]"):
        eye = torch.eye(4 if odd else 3, 3).to_sparse(1)
        hvd.sparse_allreduce_async(eye, name).wait()


def check_mismatch_of_a_cached_tensor() -> None:
    """The same name has worked before, so that the cache knows it."""
    for _ in range(3):
        hvd.allreduce(torch.ones(5), name="disputed")
    with disagreement("'disputed'", "float32[5]", "float32[6]"):
        hvd.allreduce(torch.ones(6 if hvd.rank() == 0 else 5), name="disputed")


def check_names_in_flight_are_unique() -> None:
    given = torch.ones(3)
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(given, name="twice", op=hvd.Sum)
        with pytest.raises(InvalidArgumentError, match="'twice', which is in flight already"):
            hvd.allreduce_async(given, name="twice", op=hvd.Sum)
    hvd.barrier()
    if hvd.rank() > 0:
        handle = hvd.allreduce_async(given, name="twice", op=hvd.Sum)
    assert handle.wait().tolist() == [hvd.size()] * 3


def check_process_sets() -> None:
    """Two sets without a common rank and the global one at the same time."""
    rank, size = hvd.rank(), hvd.size()
    even = hvd.add_process_set(hvd.ProcessSet(range(0, size, 2)))
    odd = hvd.add_process_set(range(1, size, 2))
    mine, other = (odd, even) if rank % 2 else (even, odd)
    assert mine.ranks is not None
    assert (mine.included(), other.included()) == (True, False)
    assert (mine.rank(), mine.size()) == (rank // 2, len(mine.ranks))
    assert (other.rank(), other.size()) == (-1, size - len(mine.ranks))
    assert hvd.process_set_by_id(mine.process_set_id) is mine
    assert hvd.get_process_set_ids_and_ranks()[even.process_set_id] == even.ranks
    for step in range(20):
        handles = []
        for which in shuffled([mine, hvd.global_process_set], step):
            given = torch.full((3,), float(rank + step))
            handles.append(
                (which, hvd.allreduce_async(given, name="x", op=hvd.Sum, process_set=which))
            )
        for which, handle in handles:
            expected = total(lambda each, step=step: each + step, which.ranks)
            assert handle.wait().tolist() == [expected] * 3
    gathered = hvd.allgather(torch.tensor([rank]), process_set=mine)
    assert gathered.tolist() == mine.ranks
    for root in mine.ranks:  # ranks of the job
        assert hvd.broadcast(torch.tensor(rank), root, process_set=mine).item() == root
        assert hvd.broadcast_object(rank, root, process_set=mine) == root
    parts = hvd.alltoall(torch.arange(len(mine.ranks)), process_set=mine)
    assert parts.tolist() == [mine.rank()] * len(mine.ranks)
    assert hvd.allgather_object(rank, process_set=mine) == mine.ranks
    hvd.barrier(process_set=mine)
    with pytest.raises(InvalidArgumentError, match=rf"used by rank {rank}, allowed are its"):
        hvd.allreduce(torch.ones(1), process_set=other)
    with pytest.raises(InvalidArgumentError, match=rf"root_rank is {1 - rank % 2}, allowed is one"):
        hvd.broadcast(torch.ones(1), 1 - rank % 2, process_set=mine)
    assert hvd.remove_process_set(even)
    assert hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(hvd.global_process_set)
    assert (odd.process_set_id, odd.size(), odd.rank()) == (None, None, None)
    with pytest.raises(InvalidArgumentError, match="not in use"):
        hvd.allreduce(torch.ones(1), process_set=mine)
    again = hvd.add_process_set(even)
    assert again is even
    assert hvd.remove_process_set(again)


def check_process_sets_that_cannot_be() -> None:
    everyone = list(range(hvd.size()))
    for ranks in (everyone, [], [0, 0], [hvd.size()], [-1]):
        with pytest.raises(InvalidArgumentError, match="a process set has ranks"):
            hvd.add_process_set(ranks)
    first = hvd.add_process_set([0])
    with pytest.raises(InvalidArgumentError, match=r"allowed is one set with the same ranks"):
        hvd.add_process_set(hvd.ProcessSet([0]))
    with pytest.raises(InvalidArgumentError, match="in use already"):
        hvd.add_process_set(first)
    with pytest.raises(InvalidArgumentError, match="process_set_id is 99"):
        hvd.process_set_by_id(99)
    assert hvd.remove_process_set(first)


def check_init_with_process_sets() -> None:
    one, rest = hvd.ProcessSet([0]), hvd.ProcessSet(range(1, hvd.size()))
    assert one.size() is None
    hvd.init(process_sets=[one, rest])
    hvd.init(process_sets=[one, rest])  # a second time does nothing
    mine = rest if hvd.rank() else one
    assert mine.ranks is not None
    assert hvd.allreduce(torch.ones(()), op=hvd.Sum, process_set=mine) == len(mine.ranks)
    assert hvd.remove_process_set(one)
    assert hvd.remove_process_set(rest)
    with pytest.raises(UnsupportedError, match="comm is"):
        hvd.init(comm=[0])  # type: ignore[arg-type]


def check_join_with_uneven_data() -> None:
    """Rank r has r + 1 batches; those that are done add nothing, and averages divide by all."""
    rank, size = hvd.rank(), hvd.size()
    for name in ("uneven", None):
        for step in range(rank + 1):
            left = range(step, size)
            given = torch.full((4,), float(rank + 1))
            summed = hvd.allreduce(given, name=name, op=hvd.Sum)
            assert summed.tolist() == [sum(each + 1 for each in left)] * 4
            mean = hvd.allreduce(given, name=name and f"{name} mean", prescale_factor=2.0)
            expected = 2.0 * sum(each + 1 for each in left) / size
            assert mean.tolist() == pytest.approx([expected] * 4)
            lowest = hvd.allreduce(given, name=name and f"{name} least", op=hvd.Min)
            assert lowest.tolist() == [step + 1] * 4
            gathered = hvd.allgather(torch.tensor([rank]), name=name and f"{name} ranks")
            assert gathered.tolist() == list(left)
        assert hvd.join() == size - 1
        # Who has joined has not counted the others' calls without names; they start over.
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


RESNET50 = (
    [64 * 3 * 49, 64, 64]
    + [
        size
        for blocks, width, before in ((3, 64, 64), (4, 128, 256), (6, 256, 512), (3, 512, 1024))
        for block in range(blocks)
        for size in (
            width * (before if block == 0 else 4 * width),
            width,
            width,
            9 * width * width,
            width,
            width,
            4 * width * width,
            4 * width,
            4 * width,
            *((4 * width * before, 4 * width, 4 * width) if block == 0 else ()),
        )
    ]
    + [2048 * 1000, 1000]
)


def check_cache_decides_after_the_first_step() -> None:
    """ResNet-50's gradients, in another order on every rank and in every step."""
    assert len(RESNET50) == 161
    assert sum(RESNET50) == 25_557_032
    tensors = [torch.full((max(size // 100, 1),), hvd.rank() + 1.0) for size in RESNET50]
    coordinator = hvd.global_process_set.coordinator
    talks = []
    for step in range(5):
        handles = [
            hvd.allreduce_async(tensors[index], name=f"layer {index}", op=hvd.Sum)
            for index in shuffled(list(range(161)), step)
        ]
        expected = total(lambda rank: rank + 1)
        assert all(bool((handle.wait() == expected).all()) for handle in handles)
        hvd.allreduce(torch.ones(1), name="end of the step")
        talks.append(coordinator.statistics()["talks"])
    assert talks == [talks[0]] * 5


@pytest.mark.parametrize("rank_count", [3, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
