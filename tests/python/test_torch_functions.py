# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: grouped operations, alltoall, sparse tensors, compression and Adasum give what their names
promise, and gradients through collectives are those of the same computation in one process.

Method: real processes. For the gradients every rank also computes, alone and in float64, what all
ranks' inputs and outputs would be, with a loss that weighs every element of every rank's output
differently, and differentiates that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch_checks import RANK_COUNTS, assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError

Tensors = list[torch.Tensor]


def input_of(rank: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def weights_like(output: torch.Tensor, rank: int, index: int) -> torch.Tensor:
    count = torch.arange(output.numel(), dtype=torch.float64).view(output.shape)
    return torch.cos(count + 3 * rank + 7 * index)


def loss_of(outputs: Sequence[torch.Tensor], rank: int) -> torch.Tensor:
    parts = [
        (output.sin() * weights_like(output, rank, index)).sum()
        for index, output in enumerate(outputs)
    ]
    return torch.stack(parts).sum()


def compare(
    shapes_of: Callable[[int], list[tuple[int, ...]]],
    run: Callable[[Tensors], Sequence[torch.Tensor]],
    alone: Callable[[list[Tensors]], list[Sequence[torch.Tensor]]],
    scale: float = 1.0,
) -> None:
    """`run` of this rank's inputs against `alone`, from all ranks' inputs to all ranks' outputs:
    outputs, gradients, which are `scale` times those of one process, and, where that is 1,
    gradients of a function of the gradients."""
    rank, size = hvd.rank(), hvd.size()
    everything = [
        [
            input_of(10 * each + i, *shape).requires_grad_()
            for i, shape in enumerate(shapes_of(each))
        ]
        for each in range(size)
    ]
    mine = [tensor.detach().clone().requires_grad_() for tensor in everything[rank]]
    got, expected = run(mine), alone(everything)
    for one, other in zip(got, expected[rank], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        assert one.requires_grad
    gradients = torch.autograd.grad(loss_of(got, rank), mine, create_graph=True)
    total = torch.stack([loss_of(outputs, each) for each, outputs in enumerate(expected)]).sum()
    flat = [tensor for tensors in everything for tensor in tensors]
    of_all = torch.autograd.grad(total, flat, create_graph=True)
    first = sum(len(tensors) for tensors in everything[:rank])
    own = of_all[first : first + len(mine)]
    for one, other in zip(gradients, own, strict=True):
        torch.testing.assert_close(one, scale * other, rtol=1e-12, atol=1e-12)
    if scale != 1.0:
        return
    torch.stack([gradient.square().sum() for gradient in gradients]).sum().backward()
    torch.stack([gradient.square().sum() for gradient in of_all]).sum().backward()
    for one, other in zip(mine, everything[rank], strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-12)


def mean_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)).mean(0)


def check_gradients_of_allreduce() -> None:
    size = hvd.size()
    compare(
        lambda _: [(3, 4)],
        lambda mine: [hvd.allreduce(mine[0])],
        lambda all_: [[mean_of([each[0] for each in all_])]] * size,
    )
    compare(
        lambda _: [(3, 4)],
        lambda mine: [
            hvd.allreduce(
                mine[0], name="scaled", op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0
            )
        ],
        lambda all_: [[1.5 * size * mean_of([each[0] for each in all_])]] * size,
    )
    compare(
        lambda _: [(3, 4), (2,)],
        lambda mine: hvd.grouped_allreduce(mine, name="both", prescale_factor=2.0),
        lambda all_: [[2 * mean_of([each[index] for each in all_]) for index in (0, 1)]] * size,
    )
    given = torch.ones(2, requires_grad=True)
    with pytest.raises(InvalidArgumentError, match="op MAX, allowed are SUM, AVERAGE and"):
        hvd.allreduce(given, op=hvd.Max).sum().backward()


def check_gradients_of_allgather() -> None:
    size = hvd.size()
    for rows in (lambda rank: rank, lambda _: 2):  # a rank without rows; equal rows
        compare(
            lambda rank, rows=rows: [(rows(rank), 3)],
            lambda mine: [hvd.allgather(mine[0], name="gathered")],
            lambda all_: [[torch.cat([each[0] for each in all_])]] * size,
            scale=1 / size,
        )
    compare(
        lambda rank: [(rank + 1, 3), (2,)],
        lambda mine: hvd.grouped_allgather(mine),
        lambda all_: [[torch.cat([each[index] for each in all_]) for index in (0, 1)]] * size,
        scale=1 / size,
    )


def check_gradients_of_broadcast() -> None:
    for root in range(hvd.size()):
        compare(
            lambda _: [(2, 3)],
            lambda mine, root=root: [hvd.broadcast(mine[0], root)],
            lambda all_, root=root: [
                [all_[root][0] + 0 * sum(each[0].sum() for each in all_)] for _ in all_
            ],
            scale=1 / hvd.size(),
        )


def splits_of(rank: int) -> list[int]:
    return [(rank + 2 * target) % 3 for target in range(hvd.size())]


def exchanged(all_: list[Tensors], splits: Callable[[int], list[int]]) -> list[Tensors]:
    parts = [tensors[0].split(splits(rank)) for rank, tensors in enumerate(all_)]
    return [[torch.cat([given[target] for given in parts])] for target in range(hvd.size())]


def check_alltoall_and_its_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    compare(
        lambda _: [(2 * size, 3)],
        lambda mine: [hvd.alltoall(mine[0])],
        lambda all_: exchanged(all_, lambda _: [2] * size),
    )
    for convert in (list, torch.tensor):
        compare(
            lambda each: [(sum(splits_of(each)), 2)],
            lambda mine, convert=convert: [
                hvd.alltoall(mine[0], convert(splits_of(rank)), name="uneven")[0]
            ],
            lambda all_: exchanged(all_, splits_of),
        )
    given = torch.arange(sum(splits_of(rank)))
    handle = hvd.alltoall_async(given, splits=torch.tensor(splits_of(rank)))
    received, counts = hvd.synchronize(handle)
    assert counts.dtype is torch.int32
    assert counts.tolist() == [splits_of(each)[rank] for each in range(size)]
    assert len(received) == counts.sum()
    assert hvd.alltoall_async(torch.full((size,), rank)).wait()[0].tolist() == list(range(size))


def check_misuse_of_alltoall() -> None:
    size = hvd.size()
    for splits in ([1] * (size + 1), [2] * size, [-1] + [1] * (size - 1), []):
        with pytest.raises(InvalidArgumentError, match="splits"):
            hvd.alltoall(torch.ones(size), splits)
    with pytest.raises(InvalidArgumentError, match="0 dimensions"):
        hvd.alltoall(torch.ones(()))
    if size > 1:
        with pytest.raises(InvalidArgumentError, match="shape"):
            hvd.alltoall(torch.ones(size + 1))


def check_gradients_of_reducescatter() -> None:
    size = hvd.size()

    def parts_of(tensor: torch.Tensor) -> list[Sequence[torch.Tensor]]:
        return [[part] for part in tensor.tensor_split(size)]

    compare(
        lambda _: [(2 * size + 1, 3)],
        lambda mine: [hvd.reducescatter(mine[0])],
        lambda all_: parts_of(mean_of([each[0] for each in all_])),
        scale=size,
    )
    compare(
        lambda _: [(3, 2)],
        lambda mine: [
            hvd.reducescatter(
                mine[0], name="s", op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25
            )
        ],
        lambda all_: parts_of(0.5 * size * mean_of([each[0] for each in all_])),
        scale=size,
    )
    compare(
        lambda _: [(3, 2), (size,)],
        lambda mine: hvd.grouped_reducescatter(mine, op=hvd.Sum),
        lambda all_: [
            [one[0], other[0]]
            for one, other in zip(
                parts_of(size * mean_of([each[0] for each in all_])),
                parts_of(size * mean_of([each[1] for each in all_])),
                strict=True,
            )
        ],
        scale=size,
    )


def check_grouped_operations() -> None:
    rank, size = hvd.rank(), hvd.size()
    dtypes = [torch.float32, torch.int64, torch.bfloat16, torch.float32]
    given = [torch.full((index + 1, 2), rank + index).to(each) for index, each in enumerate(dtypes)]
    sums = [sum(each + index for each in range(size)) for index in range(4)]
    for got in (
        hvd.grouped_allreduce(given, name="group", op=hvd.Sum),
        hvd.grouped_allreduce_async(given, op=hvd.Sum).wait(),
    ):
        assert [tensor.dtype for tensor in got] == dtypes
        assert [tensor.unique().tolist() for tensor in got] == [[each] for each in sums]
    copies = [tensor.clone() for tensor in given]
    returned = hvd.grouped_allreduce_(copies, op=hvd.Sum)
    assert all(one is other for one, other in zip(returned, copies, strict=True))
    assert [tensor.unique().tolist() for tensor in copies] == [[each] for each in sums]
    gathered = hvd.synchronize(hvd.grouped_allgather_async(given))
    assert [len(tensor) for tensor in gathered] == [size * (index + 1) for index in range(4)]
    scattered = hvd.grouped_reducescatter_async(given, op=hvd.Max).wait()
    assert [len(part) for part in scattered] == [
        len(range(rank, index + 1, size)) for index in range(4)
    ]
    assert hvd.grouped_allreduce([]) == []
    assert hvd.grouped_allgather_async([]).wait() == []


def check_sparse_allreduce() -> None:
    rank, size = hvd.rank(), hvd.size()
    shape = (2 * size, 3, 2)

    def sparse_of(each: int) -> torch.Tensor:
        """Two rows of its own and one that all have, twice; rank 0 has none."""
        rows = torch.tensor([[2 * each, 1, 2 * each + 1, 1][: 4 * (each > 0)]])
        values = input_of(each, 4, 3, 2)[: rows.shape[1]]
        return torch.sparse_coo_tensor(rows, values, shape)

    dense = torch.stack([sparse_of(each).to_dense() for each in range(size)])
    for op, expected in ((hvd.Sum, dense.sum(0)), (hvd.Average, dense.mean(0))):
        got = hvd.sparse_allreduce_async(sparse_of(rank), name="sparse", op=op)()
        assert got.is_sparse
        assert got.is_coalesced()
        torch.testing.assert_close(got.to_dense(), expected, rtol=1e-12, atol=1e-12)
    average = hvd.synchronize(hvd.sparse_allreduce_async(torch.eye(3).to_sparse()))
    assert torch.equal(average.to_dense(), torch.eye(3))
    with pytest.raises(InvalidArgumentError, match=r"torch\.strided, allowed is torch\.sparse_coo"):
        hvd.sparse_allreduce_async(torch.eye(3))
    with pytest.raises(InvalidArgumentError, match="op is MAX"):
        hvd.sparse_allreduce_async(torch.eye(3).to_sparse(), op=hvd.Max)


def check_compression() -> None:
    rank, size = hvd.rank(), hvd.size()
    everyone = torch.stack([input_of(each, 1000) for each in range(size)])
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        for dtype in (torch.float32, torch.float64):
            given = everyone[rank].to(dtype).requires_grad_()
            got = hvd.allreduce(given, compression=compression)
            assert got.dtype is dtype
            torch.testing.assert_close(
                got, everyone.mean(0).to(dtype), rtol=tolerance, atol=tolerance
            )
            assert not torch.equal(got, everyone.mean(0).to(dtype))
            got.sum().backward()
            assert given.grad is not None
            assert given.grad.dtype is dtype
            torch.testing.assert_close(given.grad, torch.ones_like(given), rtol=1e-2, atol=0)
        whole = torch.full((3,), rank, dtype=torch.int32)
        kept, _ = compression.compress(whole)
        assert kept is whole
        narrow = torch.ones(3, dtype=torch.bfloat16)
        assert compression.compress(narrow)[0] is narrow
        both = hvd.grouped_allreduce([whole, narrow], compression=compression, op=hvd.Sum)
        assert [tensor.tolist() for tensor in both] == [[sum(range(size))] * 3, [size] * 3]
        part = hvd.reducescatter(torch.ones(size), compression=compression, op=hvd.Sum)
        assert part.tolist() == [size]
        assert part.dtype is torch.float32


def adasum_of_two(one: Any, other: Any) -> Any:
    """Maleki 2020: what both have in common counts once, what is orthogonal is added."""
    dot, first, second = one @ other, one @ one, other @ other
    return (1 - dot / (2 * first)) * one + (1 - dot / (2 * second)) * other


def check_adasum() -> None:
    rank, size = hvd.rank(), hvd.size()
    if size & (size - 1) == 0:
        vectors = [input_of(each, 500).numpy() for each in range(size)]
        while len(vectors) > 1:
            vectors = [
                adasum_of_two(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        for dtype, tolerance in (
            (torch.float64, 1e-12),
            (torch.float32, 1e-5),
            (torch.float16, 4e-3),
            (torch.bfloat16, 3e-2),
        ):
            got = hvd.allreduce(input_of(rank, 500).to(dtype), op=hvd.Adasum)
            assert got.dtype is dtype
            np.testing.assert_allclose(
                got.double().numpy(), vectors[0], rtol=tolerance, atol=tolerance
            )
    same = torch.arange(1.0, 6.0).to(torch.bfloat16)
    assert hvd.allreduce_(same, op=hvd.Adasum, postscale_factor=2.0) is same
    torch.testing.assert_close(same.float(), 2 * torch.arange(1.0, 6.0), rtol=1e-2, atol=0)
    apart = torch.zeros(size)
    apart[rank] = rank + 1.0
    got = hvd.allreduce(apart, op=hvd.Adasum)
    torch.testing.assert_close(got, torch.arange(1.0, size + 1))
    with pytest.raises(InvalidArgumentError, match="adasum"):
        hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum)
    with pytest.raises(InvalidArgumentError, match="ADASUM"):
        hvd.reducescatter(torch.ones(3), op=hvd.Adasum)


def check_questions_about_the_build() -> None:
    answers = [
        hvd.mpi_built(),
        hvd.mpi_enabled(),
        hvd.mpi_threads_supported(),
        hvd.gloo_built(),
        hvd.gloo_enabled(),
        hvd.ccl_built(),
        hvd.ddl_built(),
        hvd.cuda_built(),
        hvd.rocm_built(),
    ]
    assert not any(answers)
    assert hvd.nccl_built() == 0
    assert hvd.is_homogeneous()


@pytest.mark.parametrize("rank_count", RANK_COUNTS)
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
