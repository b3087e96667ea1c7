# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the collectives of farandole.torch give on every rank what their names promise, for every
dtype and shape, in place and not, and refuse what they cannot do before anything moves.

Method: real processes. Inputs are small integers that differ between ranks and indices, so that
sums are exact in every dtype and the expected tensor is computed from the ranks alone.
"""

from __future__ import annotations

import gc

import pytest
import torch
from torch_checks import RANK_COUNTS, assert_passed, checks_of

import farandole.torch as hvd
from farandole import _native
from farandole.errors import InvalidArgumentError, MismatchError, UnsupportedError

DTYPES = [getattr(torch, name.replace("e4m3", "e4m3fn")) for name in _native.DTYPES]
MOVED_ONLY = (torch.float8_e4m3fn, torch.float8_e5m2)
NUMBERS = [dtype for dtype in DTYPES if dtype is not torch.bool and dtype not in MOVED_ONLY]
# Nothing, one, fewer than ranks, not divisible by ranks, more than a chunk of any transport.
COUNTS = [0, 1, 3, 1021, 300_007]


def mine(count: int, dtype: torch.dtype, rank: int | None = None) -> torch.Tensor:
    """The rank's input: 1 to 5, different at each rank and index; every other one is true."""
    rank = hvd.rank() if rank is None else rank
    values = (torch.arange(count) * 3 + rank) % 5 + 1
    return (values % 2).to(torch.bool) if dtype is torch.bool else values.to(dtype)


def stacked(count: int, dtype: torch.dtype) -> torch.Tensor:
    """All ranks' inputs, in a dtype in which torch can compute."""
    wide = dtype if dtype.is_complex else torch.float64
    return torch.stack([mine(count, dtype, rank).to(wide) for rank in range(hvd.size())])


def assert_equal(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal values; `expected` may have another dtype."""
    assert got.shape == expected.shape
    wide = got.dtype if got.dtype.is_complex else torch.float64
    assert torch.equal(got.to(wide), expected.to(wide)), (got, expected)


def check_sum_of_every_dtype() -> None:
    for dtype in NUMBERS:
        for count in COUNTS:
            given = mine(count, dtype)
            got = hvd.allreduce(given, op=hvd.Sum)
            assert got.dtype is dtype
            assert_equal(got, stacked(count, dtype).sum(0))
            assert_equal(given, mine(count, dtype))
            assert hvd.allreduce_(given, op=hvd.Sum) is given
            assert_equal(given, got)


def check_bool_is_reduced_as_logic() -> None:
    everyone = stacked(11, torch.bool)
    for op in (hvd.Sum, hvd.Max):
        assert_equal(hvd.allreduce(mine(11, torch.bool), op=op), everyone.amax(0))
    for op in (hvd.Product, hvd.Min):
        assert_equal(hvd.allreduce(mine(11, torch.bool), op=op), everyone.amin(0))


def check_average_is_the_default() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        mean = stacked(1021, dtype).sum(0).real.double() / hvd.size()  # imaginary parts are 0
        expected = mean.to(dtype)
        assert_equal(hvd.allreduce(mine(1021, dtype)), expected)
        assert_equal(hvd.synchronize(hvd.allreduce_async(mine(1021, dtype))), expected)


def check_average_of_integers_rounds_toward_zero() -> None:
    for sign in (1, -1):
        given = mine(1021, torch.int32) * sign
        expected = torch.div(stacked(1021, torch.int32).sum(0), hvd.size(), rounding_mode="trunc")
        assert_equal(hvd.allreduce(given), sign * expected)


def check_min_max_product() -> None:
    for dtype in (torch.int16, torch.uint8, torch.float32):
        everyone = stacked(77, dtype)
        assert_equal(hvd.allreduce(mine(77, dtype), op=hvd.Min), everyone.amin(0))
        assert_equal(hvd.allreduce(mine(77, dtype), op=hvd.Max), everyone.amax(0))
        small = mine(77, dtype) % 3  # products stay below 256
        expected = (everyone % 3).prod(0)
        assert_equal(hvd.allreduce(small, op=hvd.Product), expected)


def check_scalars_and_shapes_are_kept() -> None:
    total = sum(range(hvd.size()))
    assert_equal(hvd.allreduce(torch.tensor(hvd.rank()), op=hvd.Sum), torch.tensor(total))
    cube = mine(24, torch.float32).view(2, 3, 4)
    assert_equal(hvd.allreduce(cube, op=hvd.Sum), stacked(24, torch.float32).sum(0).view(2, 3, 4))


def check_deprecated_average_argument() -> None:
    everyone = stacked(5, torch.float32)
    with pytest.warns(DeprecationWarning, match="average="):
        assert_equal(hvd.allreduce(mine(5, torch.float32), average=False), everyone.sum(0))
    with pytest.warns(DeprecationWarning, match="average="):
        got = hvd.allreduce(mine(5, torch.float32), True)
    assert_equal(got, everyone.sum(0).div(hvd.size()).float())
    with pytest.raises(InvalidArgumentError, match="one of the two"):
        hvd.allreduce(mine(5, torch.float32), average=True, op=hvd.Sum)
    with pytest.raises(InvalidArgumentError, match="allowed is a ReduceOp"):
        hvd.allreduce(mine(5, torch.float32), op="sum")  # type: ignore[arg-type]


def check_strided_input_is_copied_but_not_written() -> None:
    expected = stacked(12, torch.float32).sum(0).view(3, 4).t()
    strided = mine(12, torch.float32).view(3, 4).t()
    assert_equal(hvd.allreduce(strided, op=hvd.Sum), expected)
    every_second = mine(12, torch.float32)[::2]
    for call in (hvd.allreduce_, hvd.allreduce_async_):
        with pytest.raises(InvalidArgumentError, match=r"allreduce_: tensor .* not contiguous"):
            call(every_second)
    with pytest.raises(InvalidArgumentError, match=r"broadcast_: tensor of shape \[4, 3\]"):
        hvd.broadcast_(strided, 0)
    assert_equal(strided, mine(12, torch.float32).view(3, 4).t())


def check_lazy_conjugate_is_resolved() -> None:
    given = torch.complex(mine(6, torch.float32), mine(6, torch.float32)).conj()
    everyone = stacked(6, torch.float32).sum(0)
    assert_equal(hvd.allreduce(given, op=hvd.Sum), torch.complex(everyone, -everyone))
    with pytest.raises(InvalidArgumentError, match="not contiguous"):
        hvd.allreduce_(given)


def check_what_cannot_be_moved_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="device meta, allowed is cpu"):
        hvd.allreduce(torch.empty(3, device="meta"))
    with pytest.raises(UnsupportedError, match=r"layout torch\.sparse_coo"):
        hvd.broadcast(torch.eye(3).to_sparse(), 0)
    with pytest.raises(UnsupportedError, match=r"torch\.float8_e5m2fnuz, allowed are bool"):
        hvd.allgather(torch.zeros(3, dtype=torch.float8_e5m2fnuz))
    with pytest.raises(InvalidArgumentError, match="tensor is a list"):
        hvd.allreduce([1.0])  # type: ignore[arg-type]


def check_handles_in_any_order() -> None:
    counts = [7, 0, 1021, 50_003, 1]
    handles = [hvd.allreduce_async(mine(count, torch.float64), op=hvd.Sum) for count in counts]
    for index in (3, 0, 4, 2, 1):
        expected = stacked(counts[index], torch.float64).sum(0)
        assert_equal(hvd.synchronize(handles[index]), expected)
        assert hvd.poll(handles[index])
        assert hvd.synchronize(handles[index]) is hvd.synchronize(handles[index])


def check_poll_becomes_true() -> None:
    handle = hvd.allreduce_async_(mine(1021, torch.float32))
    while not hvd.poll(handle):
        pass
    assert_equal(hvd.synchronize(handle), (stacked(1021, torch.float32).mean(0)).float())


def check_dropped_handles_keep_their_memory() -> None:
    """Tensors whose last owner is a dropped handle must not be freed while they are written."""
    kept = torch.empty(0)
    for _ in range(20):
        hvd.allreduce_async(mine(100_003, torch.float32), op=hvd.Sum)
        gc.collect()
        kept = torch.full((100_003,), 7.0)  # would get the memory that is free
    hvd.barrier()
    assert torch.equal(kept, torch.full((100_003,), 7.0))


def check_allgather_of_one_shape() -> None:
    for dtype in DTYPES:
        expected = torch.cat([mine(6, dtype, rank).view(3, 2) for rank in range(hvd.size())])
        got = hvd.allgather(mine(6, dtype).view(3, 2))
        assert got.dtype is dtype
        assert torch.equal(got, expected)


def rows_of(rank: int) -> torch.Tensor:
    """None on rank 0, then one more on each; 3 columns."""
    return mine(rank * 3, torch.int32, rank).view(rank, 3)


def check_allgather_of_different_first_dimensions() -> None:
    expected = torch.cat([rows_of(rank) for rank in range(hvd.size())])
    assert torch.equal(hvd.allgather(rows_of(hvd.rank())), expected)
    handle = hvd.allgather_async(rows_of(hvd.rank()).repeat(1, 2)[:, :3])
    assert torch.equal(hvd.synchronize(handle), expected)
    assert hvd.allgather(torch.empty(0, 5)).shape == (0, 5)


def check_allgather_mismatch_raises_everywhere() -> None:
    if hvd.size() == 1:
        return
    last = hvd.size() - 1
    columns = torch.zeros(2, 4 if hvd.rank() == last else 3)
    with pytest.raises(MismatchError, match=rf"rank {last} for allgather float32\[2, 4\]"):
        hvd.allgather(columns)
    with pytest.raises(MismatchError, match=r"rank 1 for allgather int64\[2\]"):
        hvd.allgather(torch.zeros(2, dtype=torch.int64 if hvd.rank() == 1 else torch.int32))
    with pytest.raises(InvalidArgumentError, match="0 dimensions"):
        hvd.allgather(torch.tensor(1.0))
    check_allgather_of_different_first_dimensions()


def check_broadcast_from_every_root() -> None:
    for root in range(hvd.size()):
        for dtype in DTYPES:
            expected = mine(1021, dtype, root)
            given = mine(1021, dtype)
            assert torch.equal(hvd.broadcast(given, root), expected)
            assert torch.equal(given, mine(1021, dtype))
            assert torch.equal(hvd.synchronize(hvd.broadcast_async(given, root)), expected)
            handle = hvd.broadcast_async_(given, root_rank=root)
            assert hvd.synchronize(handle) is given
            assert torch.equal(given, expected)
    for root in (-1, hvd.size()):
        with pytest.raises(InvalidArgumentError, match=f"root_rank is {root}, allowed is 0 to"):
            hvd.broadcast(torch.zeros(1), root)


def check_broadcast_into_a_parameter() -> None:
    parameter = torch.nn.Parameter(mine(5, torch.float32))
    assert hvd.broadcast_(parameter, hvd.size() - 1) is parameter
    assert torch.equal(parameter.data, mine(5, torch.float32, hvd.size() - 1))
    assert parameter.requires_grad


def check_reducescatter_even_and_uneven() -> None:
    rank, size = hvd.rank(), hvd.size()
    for rows in (0, 1, size, size + 1, 3 * size - 1, 8 * size):
        total = stacked(rows * 2, torch.float32).sum(0).view(rows, 2)
        shares = [rows // size + (each < rows % size) for each in range(size)]
        expected = total.split(shares)[rank]
        given = mine(rows * 2, torch.float32).view(rows, 2)
        assert_equal(hvd.reducescatter(given, op=hvd.Sum), expected)
        average = hvd.synchronize(hvd.reducescatter_async(given))
        assert_equal(average, (expected / size).float())
    with pytest.raises(InvalidArgumentError, match="0 dimensions"):
        hvd.reducescatter(torch.tensor(1.0))


def check_objects() -> None:
    size, rank = hvd.size(), hvd.rank()
    for root in range(size):
        thing = {"tensor": torch.arange(root), "text": "é" * 1000 * root, "from": root}
        got = hvd.broadcast_object(thing if rank == root else None, root, "thing")
        assert got["from"] == root
        assert torch.equal(got["tensor"], thing["tensor"])
        assert got["text"] == thing["text"]
    assert hvd.allgather_object("x" * rank * 100) == ["x" * each * 100 for each in range(size)]
    with pytest.raises(InvalidArgumentError, match="obj of rank 0 cannot be pickled"):
        hvd.broadcast_object(lambda: None)
    assert hvd.broadcast_object(rank, size - 1) == size - 1


def check_place_in_the_job() -> None:
    assert hvd.is_initialized()
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


@pytest.mark.parametrize("rank_count", RANK_COUNTS)
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
