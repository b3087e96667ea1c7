# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: what Horovod 0.28.1 documents of its PyTorch operations holds here, with other words and
values than its own tests have.

Method: real processes. Every rank works out in NumPy what all ranks' inputs give: factors are
rounded to a float's own precision (float32 for 16-bit floats), integers are scaled in float64 and
rounded toward zero.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_checks import assert_passed, checks_of, launch

import farandole
import farandole.torch as hvd
from farandole.errors import InvalidArgumentError, MismatchError

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
NARROW = (torch.float16, torch.bfloat16)
FLOATS = (*NARROW, torch.float32, torch.float64)
OPS = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product)
ROWS = 7


def given(rank: int, dtype: torch.dtype) -> torch.Tensor:
    numbers = torch.arange(ROWS * 2).reshape(ROWS, 2)
    return ((numbers * 3 + rank * 5) % 11 + 1).to(dtype)


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    if factor == 1.0:
        return tensor
    if tensor.dtype in FLOATS:
        wide = tensor.float() if tensor.dtype in NARROW else tensor
        return (wide * torch.tensor(factor, dtype=wide.dtype)).to(tensor.dtype)
    return torch.from_numpy(np.trunc(tensor.numpy() * np.float64(factor))).to(tensor.dtype)


def reduced(op: Any, dtype: torch.dtype, before: float, after: float) -> torch.Tensor:
    """Of all ranks' given()."""
    parts = torch.stack([scaled(given(rank, dtype), before) for rank in range(hvd.size())])
    if op is hvd.Min or op is hvd.Max:
        return scaled(parts.amin(0) if op is hvd.Min else parts.amax(0), after)
    if op is hvd.Product:
        return scaled(parts.prod(0, dtype=dtype), after)
    if op is hvd.Sum:
        return scaled(parts.sum(0, dtype=dtype), after)
    total = parts.double().sum(0).numpy() * (after / hvd.size())
    return torch.from_numpy(total if dtype in FLOATS else np.trunc(total + 1e-9)).to(dtype)


def assert_near(got: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    """Equal, but for floats that may be added up in another order."""
    assert got.dtype is expected.dtype, what
    loose = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 4e-7, torch.float64: 4e-16}
    tolerance = loose.get(got.dtype, 0.0)
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=0, msg=lambda m: f"{what}: {m}")


def own_rows(whole: torch.Tensor) -> torch.Tensor:
    return whole.tensor_split(hvd.size())[hvd.rank()]


def check_factors_of_every_dtype_and_operation() -> None:
    for dtype, op, (before, after) in itertools.product(
        (*INTEGERS, *FLOATS), OPS, ((1.0, 1.0), (0.7, 1.3))
    ):
        mine, name = given(hvd.rank(), dtype), "scaled"
        factors: Any = {"op": op, "prescale_factor": before, "postscale_factor": after}
        expected, what = reduced(op, dtype, before, after), (dtype, op, before, after)
        place = mine.clone()
        both = hvd.grouped_allreduce_async([mine, mine], name="scaled group", **factors)
        assert_near(hvd.allreduce(mine, name=name, **factors), expected, what)
        assert hvd.allreduce_(place, name=name, **factors) is place
        assert_near(place, expected, what)
        for each in both.wait():
            assert_near(each, expected, what)
        part = hvd.reducescatter(mine, name=name, **factors)
        assert_near(part, own_rows(expected), what)
        assert torch.equal(mine, given(hvd.rank(), dtype))


def check_factors_round_as_a_multiplication_does() -> None:
    """With what two ranks add up there is one order only, so that every bit counts."""
    mine = torch.linspace(-3, 7, 1000, dtype=torch.float64)
    for dtype, factor in itertools.product(FLOATS, (0.1915194503788923, 1 / 3, 1e-3)):
        whole = mine.to(dtype)
        alone = whole if hvd.rank() < 2 else torch.zeros_like(whole)
        got = hvd.allreduce(alone, op=hvd.Sum, name="bits", prescale_factor=factor)
        assert torch.equal(got, 2 * scaled(whole, factor)), (dtype, factor)
        got = hvd.allreduce(alone, op=hvd.Sum, name="bits", postscale_factor=factor)
        assert torch.equal(got, scaled(2 * whole, factor)), (dtype, factor)


def check_factors_are_compared_between_ranks() -> None:
    odd = float(hvd.rank() == hvd.size() - 1)
    for argument, word in (("prescale_factor", "prescaled"), ("postscale_factor", "postscaled")):
        for op in (hvd.Average, hvd.Max):
            with pytest.raises(MismatchError, match=f"{word} by 3"):
                hvd.allreduce(torch.ones(3), name="factor", op=op, **{argument: 2 + odd})
    with pytest.raises(TypeError, match="prescale_factor is 'two', allowed is a number"):
        hvd.allreduce(torch.ones(3), prescale_factor="two")  # type: ignore[arg-type]
    assert hvd.allreduce(torch.ones(3), prescale_factor=torch.tensor(2.0)).tolist() == [2.0] * 3


def extremes(rank: int, info: Any) -> list[int]:
    return [info.max, info.max - rank, info.min, info.min + rank, 200 % info.max, info.max // 2]


def truncated(total: int, divisor: int) -> int:
    return abs(total) // divisor * (1 if total >= 0 else -1)


def check_averages_of_integers_do_not_overflow() -> None:
    """Of extreme values of every dtype, against Python's integers, through both front ends."""
    rank, size, world = hvd.rank(), hvd.size(), farandole.world()
    for dtype in (*INTEGERS, *UNSIGNED):
        info = torch.iinfo(dtype)
        columns = zip(*(extremes(each, info) for each in range(size)), strict=True)
        expected = [truncated(sum(column), size) for column in columns]
        mine = torch.tensor(extremes(rank, info), dtype=dtype)
        assert hvd.allreduce(mine, name="mean").tolist() == expected, dtype
        two = hvd.grouped_allreduce([mine, mine[:2]], name="means")
        assert [each.tolist() for each in two] == [expected, expected[:2]]
        part = hvd.reducescatter(mine, name="part")
        assert (
            part.tolist() == np.array_split(np.array(expected, dtype=object), size)[rank].tolist()
        )
        array = mine.numpy()
        for algorithm in (None, "ring", "recursive_doubling"):
            got = farandole.allreduce(array, op="average", algorithm=algorithm)
            assert got.tolist() == expected, (dtype, algorithm)
        place = array.copy()
        farandole.allreduce_async(place, out=place, op="average").wait()
        assert place.tolist() == expected
        got = world.reduce(array, op="average", root=size - 1)
        assert got is None if rank < size - 1 else got.tolist() == expected
        counts = [len(array) - size + 1] + [1] * (size - 1)
        first = sum(counts[:rank])
        got = world.reducescatter(array, op="average", counts=counts)
        assert got.tolist() == expected[first : first + counts[rank]]
        assert array.tolist() == extremes(rank, info)


def check_booleans_and_numbers_that_are_none() -> None:
    rank, size = hvd.rank(), hvd.size()
    flags = torch.tensor([rank == 0, True, False])
    for op, expected in (
        (hvd.Sum, [True, True, False]),
        (hvd.Max, [True, True, False]),
        (hvd.Min, [size == 1, True, False]),
        (hvd.Product, [size == 1, True, False]),
    ):
        assert hvd.allreduce(flags, op=op).tolist() == expected, op
    with pytest.raises(InvalidArgumentError, match="average is not defined on bool"):
        hvd.allreduce(flags)
    for dtype in FLOATS:
        values = torch.tensor([float("nan") if rank == 0 else 1.0, float("inf")], dtype=dtype)
        for op in (hvd.Min, hvd.Max, hvd.Sum, hvd.Average, hvd.Product):
            got = hvd.allreduce(values, op=op)
            assert got[0].isnan(), (dtype, op)
            assert got[1].isinf(), (dtype, op)


def check_alltoall_forms() -> None:
    rank, size = hvd.rank(), hvd.size()
    mine = torch.arange(size * 3) + 100 * rank
    expected = [100 * source + 3 * rank + i for source in range(size) for i in range(3)]
    received, rows = hvd.synchronize(hvd.alltoall_async(mine))
    assert received.tolist() == expected
    assert rows.dtype is torch.int32
    assert rows.tolist() == [3] * size
    assert hvd.alltoall(mine).tolist() == expected
    # One row to each, the rest stays.
    for splits in ([1] * size, torch.ones(size, dtype=torch.int64), np.ones(size, dtype=np.int32)):
        received, rows = hvd.alltoall(mine, splits)
        assert received.tolist() == [100 * source + rank for source in range(size)]
        assert rows.tolist() == [1] * size
    leaf = torch.ones(size + 2, 2, requires_grad=True)
    hvd.alltoall(leaf, [1] * size)[0].sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[1.0, 1.0]] * size + [[0.0, 0.0]] * 2
    for splits in ([1.0] * size, torch.ones(size), [[1]] * size, 3, "1" * size):
        for kind in (TypeError, ValueError):
            with pytest.raises(kind, match="splits"):
                hvd.alltoall(mine, splits)
    with pytest.raises(ValueError, match=f"add up to {3 * size} or less"):
        hvd.alltoall(mine, [4] * size)


def check_join_goes_on_with_every_operation() -> None:
    """The last ranks have more data. Averages still divide by all ranks; those that have joined add
    zeros, the neutral element, or no rows."""
    rank, size = hvd.rank(), hvd.size()
    for step in range(rank + 1):
        left = list(range(step, size))
        mine = torch.tensor([rank + 1.0, 2.0])
        whole = torch.tensor([200 + rank], dtype=torch.uint8)
        total = torch.tensor([sum(left) + len(left), 2.0 * len(left)])
        assert hvd.allreduce(mine, name="s", op=hvd.Sum).tolist() == total.tolist()
        torch.testing.assert_close(hvd.allreduce(mine, name="a"), total / size)
        torch.testing.assert_close(
            hvd.allreduce(mine, name="p", prescale_factor=3.0, postscale_factor=0.5),
            total * 1.5 / size,
        )
        active = hvd.allreduce(mine, name="aa", op=hvd.ActiveAverage)
        torch.testing.assert_close(active, total / len(left))
        numbers = sum(200 + each for each in left)
        assert hvd.allreduce(whole, name="w").item() == numbers // size
        assert hvd.allreduce(whole, name="wa", op=hvd.ActiveAverage).item() == numbers // len(left)
        assert hvd.allreduce(mine, name="min", op=hvd.Min).tolist() == [step + 1.0, 2.0]
        assert hvd.allreduce(mine, name="max", op=hvd.Max).tolist() == [size, 2.0]
        product = hvd.allreduce(mine, name="x", op=hvd.Product)
        assert product.tolist() == [np.prod([each + 1.0 for each in left]), 2.0 ** len(left)]
        grouped = hvd.grouped_allreduce([mine, mine], name="g", op=hvd.Sum)
        assert [each.tolist() for each in grouped] == [total.tolist()] * 2
        assert hvd.allgather(torch.tensor([rank]), name="r").tolist() == left
        assert hvd.broadcast(mine, size - 1, name="b").tolist() == [size, 2.0]
        received, rows = hvd.alltoall(torch.full((size,), rank), [1] * size, name="t")
        assert received.tolist() == left
        assert rows.tolist() == [int(each in left) for each in range(size)]
        part = hvd.reducescatter(torch.ones(size), name="rs")
        assert part.item() == pytest.approx(len(left) / size)
        if step > 0:
            with pytest.raises(hvd.HorovodInternalError, match="its root has joined"):
                hvd.broadcast(mine, 0, name="gone")
            with pytest.raises(hvd.HorovodInternalError, match="needs data of every rank"):
                hvd.allreduce(mine, name="adasum", op=hvd.Adasum)
    # The device is where a GPU would get its zeros from.
    assert hvd.join(hvd.local_rank()) == size - 1
    assert hvd.allgather_object(rank) == list(range(size))
    with pytest.raises(TypeError, match="device is 'cpu'"):
        hvd.join("cpu")  # type: ignore[arg-type]


def check_names_in_flight_are_unique() -> None:
    forms: list[Callable[[], Any]] = [
        lambda: hvd.allreduce_async(torch.ones(3), name="twice"),
        lambda: hvd.allgather_async(torch.ones(3), name="twice"),
        lambda: hvd.broadcast_async(torch.ones(3), 0, name="twice"),
        lambda: hvd.alltoall_async(torch.ones(hvd.size()), name="twice"),
        lambda: hvd.reducescatter_async(torch.ones(3), name="twice"),
        lambda: hvd.grouped_allreduce_async([torch.ones(3)], name="twice"),
    ]
    for form in forms:
        # Rank 0 comes last, so that the first one cannot have ended anywhere else.
        if hvd.rank() == 0:
            hvd.allgather_object("gate", name="gate")
            form().wait()
        else:
            first = form()
            with pytest.raises(ValueError, match="in flight already"):
                form()
            hvd.allgather_object("gate", name="gate")
            first.wait()
    for name in (5, b"bytes"):
        with pytest.raises(TypeError, match="name is"):
            hvd.allreduce(torch.ones(1), name=name)  # type: ignore[arg-type]


@contextmanager
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def check_synchronize_and_the_step_after_it() -> None:
    """A second synchronize() changes nothing, whatever the operation; step() without
    skip_synchronize() warns once and takes the gradients as they are."""
    rank, size = hvd.rank(), hvd.size()
    for op in (hvd.Sum, hvd.Average):
        weight = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=op)
        expected = sum(range(1, size + 1)) / (size if op is hvd.Average else 1)
        for skips in (True, False):
            optimizer.zero_grad()
            (weight.sum() * (rank + 1)).backward()
            for _ in range(3):
                optimizer.synchronize()
                assert weight.grad is not None
                assert weight.grad.tolist() == pytest.approx([expected] * 3)
            weight.grad.mul_(0.5)
            before = weight.detach().clone()
            if skips:
                with no_warnings(), optimizer.skip_synchronize():
                    optimizer.step()
            else:
                with pytest.warns(UserWarning, match="skip_synchronize") as caught:
                    optimizer.step()
                assert len(caught) == 1
                assert caught[0].filename == __file__
            torch.testing.assert_close(before - weight.detach(), torch.full((3,), expected / 2))
        with no_warnings():
            (weight.sum()).backward()
            optimizer.step()


def check_attributes_of_the_optimizer() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0),
        named_parameters=[("weight", weight)],
        backward_passes_per_step=2,
        gradient_predivide_factor=4.0,
    )
    assert optimizer.backward_passes_per_step == 2
    assert optimizer.op is hvd.Average
    assert optimizer.process_set is hvd.global_process_set
    assert optimizer.gradient_predivide_factor == 4.0
    assert optimizer.sparse_as_dense is False
    optimizer.backward_passes_per_step = 3
    for _ in range(3):
        (weight.sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
    mean = 3 * (hvd.size() + 1) / 2
    assert weight.tolist() == pytest.approx([-mean] * 3)
    with pytest.raises(ValueError, match="backward_passes_per_step is 0"):
        optimizer.backward_passes_per_step = 0


class Halving:
    """A compressor that is an object with a state, as tools write them."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        return (tensor * self.factor).half(), tensor.dtype

    def decompress(self, tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        return tensor.to(ctx) / self.factor  # type: ignore[call-overload, no-any-return]


def check_compressors_may_be_objects() -> None:
    mine = torch.arange(8.0) + hvd.rank()
    mean = torch.arange(8.0) + (hvd.size() - 1) / 2
    for compression in (Halving(0.5), hvd.Compression.fp16, hvd.Compression.fp16()):
        torch.testing.assert_close(hvd.allreduce(mine, compression=compression), mean)
        for each in hvd.grouped_allreduce([mine, mine], compression=compression):
            torch.testing.assert_close(each, mean)
        weight = torch.nn.Parameter(torch.zeros(8))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), compression=compression
        )
        (weight * mine).sum().backward()
        optimizer.step()
        torch.testing.assert_close(-weight.detach(), mean)
    weight = torch.nn.Parameter(torch.zeros(8))
    for compression in ("fp16", object(), hvd.Compression):
        with pytest.raises(TypeError, match="allowed is a Compressor"):
            hvd.allreduce(mine, compression=compression)
        with pytest.raises(TypeError, match="allowed is a Compressor"):
            hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=compression)


def check_process_sets() -> None:
    rank, size = hvd.rank(), hvd.size()
    last = hvd.add_process_set(range(1, size)) if size > 2 else hvd.add_process_set([size - 1])
    members = last.ranks or []
    if rank in members:
        whole = torch.tensor([200 + rank], dtype=torch.uint8)
        got = hvd.allreduce(whole, process_set=last, postscale_factor=1.0)
        assert got.item() == sum(200 + each for each in members) // len(members)
        assert hvd.broadcast(whole, size - 1, process_set=last).item() == 199 + size
        assert hvd.allgather(whole, process_set=last).tolist() == [200 + each for each in members]
        assert hvd.allgather_object(rank, process_set=last) == members
        with pytest.raises(ValueError, match="root_rank is 0"):
            hvd.broadcast(whole, 0, process_set=last) if 0 not in members else hvd.broadcast(
                whole, size, process_set=last
            )
    else:
        with pytest.raises(ValueError, match="allowed are its members"):
            hvd.allreduce(torch.ones(1), process_set=last)
    hvd.barrier()
    assert hvd.remove_process_set(last)
    tensor: Any = torch.ones(2)
    bad: Any
    for bad in ([0], 0, None, "global"):
        for call in (
            lambda bad: hvd.allreduce(tensor, name="named", process_set=bad),
            lambda bad: hvd.broadcast_(tensor, 0, process_set=bad),
            lambda bad: hvd.broadcast_parameters([tensor], 0, process_set=bad),
            lambda bad: hvd.allgather_object(1, process_set=bad),
            lambda bad: hvd.join(process_set=bad),
            lambda bad: hvd.SyncBatchNorm(3, process_set=bad),
        ):
            with pytest.raises(TypeError, match="allowed is a ProcessSet"):
                call(bad)


def check_groups_are_lists_of_tensors() -> None:
    rank, size = hvd.rank(), hvd.size()
    tensors = [torch.full((2,), rank + 1.0), torch.full((3,), 2.0)]
    mean = [[(size + 1) / 2] * 2, [2.0] * 3]
    listed: Any
    for listed in (tensors, tuple(tensors), iter(tensors), (each for each in tensors)):
        assert [each.tolist() for each in hvd.grouped_allreduce(listed)] == mean
    listed = (each for each in tensors)
    gathered = hvd.grouped_allgather(listed)
    assert [len(each) for each in gathered] == [2 * size, 3 * size]
    listed = iter(tensors)
    parts = hvd.grouped_reducescatter_async(listed, op=hvd.Sum).wait()
    assert len(parts) == 2
    calls: tuple[Any, ...] = (
        hvd.grouped_allreduce,
        hvd.grouped_allreduce_async_,
        hvd.grouped_allgather,
        hvd.grouped_reducescatter_async,
    )
    for call, bad in itertools.product(calls, (tensors[0], {"a": tensors[0]}, 5, "ab")):
        with pytest.raises(TypeError, match="allowed is a list of tensors"):
            call(bad)
    assert hvd.grouped_allreduce([]) == []
    if size > 1:
        with pytest.raises(MismatchError, match="group 'some'"):
            hvd.grouped_allreduce(tensors if rank == 0 else [], name="some")
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


@pytest.mark.parametrize("rank_count", [pytest.param(2, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)


LARGE = """
import numpy as np
import torch
import farandole
import farandole.torch as hvd

hvd.init()
bytes_ = np.full(6 << 20, 100, np.int8)
assert np.all(farandole.allreduce(bytes_, op="average") == 100)
assert bool((hvd.allreduce(torch.from_numpy(bytes_)) == 100).all())
floats = np.ones(10 << 20, np.float32)
halves = farandole.allreduce(floats, op="premultiplied_sum", factor=0.5)
assert np.all(halves == hvd.size() / 2)
part = hvd.reducescatter(torch.from_numpy(floats), prescale_factor=3.0)
assert bool((part == 3).all())
print("all is well", flush=True)
"""


# Goal: what is widened or scaled in a copy does not have to fit into the library's memory.
# Method: copies of more than what the transports leave of it.
def test_copies_larger_than_library_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_MEMORY", str(64 << 20))
    program = tmp_path / "program.py"
    program.write_text(LARGE)
    job = launch(2, program)
    assert job.stdout.count("all is well") == 2, job.stderr


# Horovod says so with a ValueError, which scripts catch to find out whether it was initialized.
@pytest.mark.parametrize("ask", [hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size, hvd.barrier])
def test_before_init_is_a_value_error(ask: Callable[[], int]) -> None:
    with pytest.raises(ValueError, match="not initialized"):
        ask()
