# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: SyncBatchNorm on n ranks is BatchNorm on one process with all ranks' batches together, in
outputs, gradients and running statistics, whatever each rank's share.

Method: real processes. Every rank also runs torch's BatchNorm on the joint batch, in float64, and
compares its own share to 1e-10. Channels have means far from zero, where sums of squares would
lose the digits that are asked for.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_checks import RANK_COUNTS, assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError

CHANNELS = 5


def batches(shape: tuple[int, ...], step: int, rows: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    spread = torch.arange(CHANNELS, dtype=torch.float64).view(1, -1, *[1] * len(shape))
    return [
        torch.randn(count, CHANNELS, *shape, dtype=torch.float64, generator=generator)
        * (1 + spread)
        + 100 * spread
        for count in rows
    ]


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return (output.sin() * output).sum()


def assert_close(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def compare(shape: tuple[int, ...], rows: list[int], **options: Any) -> None:
    rank = hvd.rank()
    layer = hvd.SyncBatchNorm(CHANNELS, **options).double()
    plain = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d][len(shape)]
    reference = plain(CHANNELS, **options).double()
    if layer.affine:
        for each in (layer, reference):
            each.weight.data = torch.linspace(-1, 2, CHANNELS, dtype=torch.float64)
            each.bias.data = torch.linspace(3, 1, CHANNELS, dtype=torch.float64)
    for step in range(3):
        shares = batches(shape, step, rows)
        mine = shares[rank].clone().requires_grad_()
        joint = torch.cat(shares).requires_grad_()
        output, expected = layer(mine), reference(joint)
        assert output.dtype is torch.float64
        assert_close(output, expected.split(rows)[rank])
        layer.zero_grad()
        reference.zero_grad()
        loss_of(output).backward()
        loss_of(expected).backward()
        assert mine.grad is not None
        assert joint.grad is not None
        assert_close(mine.grad, joint.grad.split(rows)[rank])
        for parameter, other in zip(layer.parameters(), reference.parameters(), strict=True):
            assert_close(hvd.allreduce(parameter.grad, op=hvd.Sum), other.grad)
        assert layer.state_dict().keys() == reference.state_dict().keys()
        for name, value in reference.state_dict().items():
            assert_close(layer.state_dict()[name], value)
    layer.eval()
    reference.eval()
    with torch.no_grad():
        if rank == 0 and layer.track_running_stats:  # local: the others do nothing
            assert_close(layer(shares[-1]), reference(shares[-1]))


def check_equal_shares() -> None:
    for shape in ((), (7,), (3, 2), (2, 3, 2)):
        compare(shape, [4] * hvd.size())


def check_different_shares_and_none() -> None:
    size = hvd.size()
    compare((3, 2), [rank + 1 for rank in range(size)])
    compare((2,), [3 * (rank != 1) + 1 * (rank == 0) for rank in range(size)])


def check_options() -> None:
    rows = [3] * hvd.size()
    compare((4,), rows, momentum=None)
    compare((4,), rows, affine=False)
    compare((4,), rows, eps=0.1, momentum=0.5)
    compare((4,), rows, track_running_stats=False)


def check_narrow_inputs_are_computed_in_float32() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS)
    shares = batches((50,), 0, [8] * hvd.size())
    expected = nn.BatchNorm1d(CHANNELS).double()(torch.cat(shares).bfloat16().double())
    output = layer(shares[hvd.rank()].bfloat16())
    assert output.dtype is torch.bfloat16
    mine = expected.split(8)[hvd.rank()]
    torch.testing.assert_close(output.double(), mine, rtol=2e-2, atol=2e-2)


def check_process_set() -> None:
    if hvd.size() < 2:
        return
    half = hvd.add_process_set([0, 1])
    if half.included():
        layer = hvd.SyncBatchNorm(CHANNELS, process_set=half).double()
        shares = batches((2,), 0, [3, 3])
        expected = nn.BatchNorm1d(CHANNELS).double()(torch.cat(shares)).split(3)
        assert_close(layer(shares[hvd.rank()]), expected[hvd.rank()])
    assert hvd.remove_process_set(half)


def check_wrong_shapes() -> None:
    for shape in ((3,), (3, CHANNELS + 1)):
        with pytest.raises(InvalidArgumentError, match=r"allowed is \[rows, 5, \.\.\.\]"):
            hvd.SyncBatchNorm(CHANNELS)(torch.ones(shape))


@pytest.mark.parametrize("rank_count", RANK_COUNTS)
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
