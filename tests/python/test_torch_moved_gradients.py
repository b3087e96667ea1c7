# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: whatever a script does to parameters and gradients after it has wrapped its optimizer, the
ranks train as one process does: no gradient is averaged where it no longer lies.

Method: real processes. Every rank trains a model on its shares with a DistributedOptimizer, and
alone a copy on whole batches with the plain one. Both undergo the same operations, drawn with a
seed and done before zero_grad(), before backward() and before step(). After each step the weights
are the copy's, and bit by bit those of the other ranks. One gradient is larger than what malloc
keeps, so that reading it where it was means reading memory that is no longer there.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from test_torch_optimizer import assert_same
from torch import nn
from torch_checks import assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError

SEEDS, STEPS, SHARE = 6, 5, 2
LEARNING_RATE = 0.5


class Moving(nn.Module):
    """Weights of four, two and one dimensions, and one that changes its size."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(3, 8, 3)
        self.wide = nn.Linear(8, 20_000)
        self.last = nn.Linear(20_000, 2)
        self.grows = nn.Parameter(torch.ones(5))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.wide(self.filters(images).mean((2, 3))))
        return self.last(hidden / 100) * self.grows.square().mean()


Operation = Callable[[Moving, torch.optim.Optimizer], object]


def for_each(change: Callable[[nn.Parameter], object]) -> Operation:
    return lambda model, _: [change(each) for each in model.parameters()]


def for_gradients(change: Callable[[nn.Parameter], object]) -> Operation:
    return for_each(lambda parameter: None if parameter.grad is None else change(parameter))


def assign(model: Moving, optimizer: torch.optim.Optimizer) -> None:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    model.load_state_dict(state, assign=True)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()


def grow(model: Moving, _: torch.optim.Optimizer) -> None:
    model.grows.grad = None
    model.grows.data = torch.cat([model.grows.data, torch.ones_like(model.grows)[:1]])


def swap(model: Moving, _: torch.optim.Optimizer) -> None:
    """As Module.to() does with set_swap_module_params_on_conversion()."""
    for parameter in model.parameters():
        other = nn.Parameter(parameter.detach().clone())
        other.grad = None if parameter.grad is None else parameter.grad.clone()
        torch.utils.swap_tensors(parameter, other)


def set_gradient_data(parameter: nn.Parameter) -> None:
    assert parameter.grad is not None
    parameter.grad.data = parameter.grad.data.clone()


def set_data(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data.clone()


def set_gradient(parameter: nn.Parameter) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad.clone()


def turn(parameter: nn.Parameter) -> None:
    assert parameter.grad is not None
    if parameter.dim() == 2:
        strides = (1, len(parameter))
        columns = torch.empty_strided(parameter.shape, strides, dtype=parameter.dtype)
        parameter.grad = columns.copy_(parameter.grad)


OPERATIONS: dict[str, Operation] = {
    "nothing": lambda *_: None,
    "p.grad.data = …": for_gradients(set_gradient_data),
    "p.grad = …": for_gradients(set_gradient),
    "p.data = …": for_each(set_data),
    "p.grad in columns": for_gradients(turn),
    "p.grad.detach_()": for_gradients(lambda parameter: parameter.grad.detach_()),
    "share_memory()": lambda model, _: model.share_memory(),
    "p.grad.share_memory_()": for_gradients(lambda parameter: parameter.grad.share_memory_()),
    "channels_last": lambda model, _: model.to(memory_format=torch.channels_last),
    "contiguous": lambda model, _: model.to(memory_format=torch.contiguous_format),
    "double()": lambda model, _: model.double(),
    "float()": lambda model, _: model.float(),
    "bfloat16().float()": lambda model, _: model.bfloat16().float(),
    "half().double()": lambda model, _: model.half().double(),
    "freeze": lambda model, _: model.wide.requires_grad_(False),
    "thaw": lambda model, _: model.wide.requires_grad_(True),
    "load_state_dict(assign=True)": assign,
    "swap_tensors()": swap,
}
ROUNDING = {"float()", "bfloat16().float()", "half().double()"}
# Whose parameters no optimizer has heard of when backward() follows: step() averages.
UNSEEN = {"load_state_dict(assign=True)", "swap_tensors()"}
BEFORE_ZERO_GRAD: dict[str, Operation] = {
    "p.grad = None": for_each(lambda parameter: setattr(parameter, "grad", None)),
    "resize": grow,
}


def loss_of(model: Moving, images: torch.Tensor) -> torch.Tensor:
    return model(images.flatten(0, -4).to(model.last.weight.dtype)).square().mean()


def update(model: Moving, optimizer: torch.optim.Optimizer, functional: bool) -> None:
    if not functional:
        optimizer.step()
        return
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.data = parameter.data - LEARNING_RATE * parameter.grad


def assert_ranks_agree(model: nn.Module, what: str) -> None:
    weights = [parameter.detach().double().numpy().tobytes() for parameter in model.parameters()]
    digests = hvd.allgather_object(hashlib.sha256(b"".join(weights)).hexdigest())
    assert len(set(digests)) == 1, what


def draw(generator: random.Random, only: str | None) -> list[str]:
    """Operations before zero_grad(), before backward() and before step()."""
    if only is not None:
        return [only] + ["nothing" if only in BEFORE_ZERO_GRAD else only] * 2
    later = sorted(OPERATIONS)
    return [generator.choice(each) for each in (later + sorted(BEFORE_ZERO_GRAD), later, later)]


def train_with_operations(seed: int, steps: int = STEPS, only: str | None = None) -> None:
    early = mock.patch("farandole.torch.buckets.early_sends_pay", return_value=seed % 2 == 0)
    least = [1 << 20, 0, math.inf][seed % 3]
    with early, mock.patch("farandole.torch.buckets._apart_bytes_min", return_value=least):
        _train_with_operations(seed, steps, only)


def _train_with_operations(seed: int, steps: int, only: str | None) -> None:
    generator = random.Random(seed)
    torch.manual_seed(seed)
    model, reference = Moving().double(), Moving().double()
    reference.load_state_dict(model.state_dict())
    pair = (model, reference)
    optimizers = [torch.optim.SGD(each.parameters(), lr=LEARNING_RATE) for each in pair]
    optimizers[0] = hvd.DistributedOptimizer(
        optimizers[0], bucket_bytes=generator.choice([1, 200_000, 25 << 20])
    )
    done = []
    for _ in range(steps):
        images = torch.randn(hvd.size(), SHARE, 3, 5, 5, dtype=torch.float64)
        names = draw(generator, only)
        to_none, functional = generator.random() < 0.5, generator.random() < 0.2
        functional = functional and names[1] not in UNSEEN
        done.append([*names, to_none, functional])
        for each, optimizer, mine in zip(pair, optimizers, (True, False), strict=True):
            (OPERATIONS | BEFORE_ZERO_GRAD)[names[0]](each, optimizer)
            optimizer.zero_grad(set_to_none=to_none)
            OPERATIONS[names[1]](each, optimizer)
            loss_of(each, images[hvd.rank()] if mine else images).backward()
            OPERATIONS[names[2]](each, optimizer)
            update(each, optimizer, functional)
        what = f"seed {seed}, operations {done}"
        assert_ranks_agree(model, what)
        for mine, expected in zip(model.parameters(), reference.parameters(), strict=True):
            tolerance = 1e-11 if mine.dtype == torch.float64 else 1e-4
            if names[2] in ROUNDING:  # and two gradients that are nearly the same, differently
                tolerance = 1e-2
            torch.testing.assert_close(
                mine.data,
                expected.data,
                rtol=tolerance,
                atol=tolerance,
                msg=lambda text, w=what: f"{w}: {text}",
            )
        reference.load_state_dict(model.state_dict())  # whose roundings are as good


def check_operations_drawn_at_random() -> None:
    for seed in range(SEEDS):
        train_with_operations(seed)


def check_every_operation() -> None:
    for seed, name in enumerate(OPERATIONS | BEFORE_ZERO_GRAD):
        train_with_operations(seed, steps=2, only=name)


def check_low_precision_after_wrapping() -> None:
    """Sums of small integers are exact."""
    for convert in (nn.Module.bfloat16, nn.Module.half, nn.Module.double):
        model = nn.Linear(4, 3)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        nn.init.zeros_(model.weight)
        for _ in range(2):
            convert(model)
            optimizer.zero_grad(set_to_none=False)
            inputs = torch.full((1, 4), hvd.rank() + 1.0, dtype=model.weight.dtype)
            model(inputs).sum().backward()
            optimizer.step()
        expected = torch.full_like(model.weight, -2 * (hvd.size() + 1) / 2)
        assert torch.equal(model.weight.data, expected)


def check_gradient_without_memory() -> None:
    weight = nn.Parameter(torch.ones(300_000))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)])
    weight.grad = torch.ones(300_000)
    weight.grad.untyped_storage().resize_(0)
    with pytest.raises(InvalidArgumentError, match="the gradient of 'w' has no memory"):
        optimizer.step()
    weight.grad = torch.ones(300_000)
    optimizer.step()
    assert not weight.data.any()


def check_unlike_conversions_are_told() -> None:
    if hvd.size() == 1:
        return
    from farandole.errors import MismatchError

    model = nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    if hvd.rank() == 1:
        model.double()
    loss = model(torch.ones(1, 3, dtype=model.weight.dtype)).sum()
    with pytest.raises(MismatchError, match=r"rank 0 asked for .*float32.* rank 1 .*float64"):
        loss.backward()
    model.double()
    optimizer.zero_grad()
    model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert torch.equal(model.weight.grad, torch.ones(2, 3, dtype=torch.float64))


def check_layout_of_the_parameter_is_kept() -> None:
    """Fused optimizers refuse gradients that lie otherwise than their parameters."""
    model = nn.Conv2d(3, 4, 2).double()
    reference = nn.Conv2d(3, 4, 2).double()
    reference.load_state_dict(model.state_dict())
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_parameters(reference.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), fused=True))
    alone = torch.optim.Adam(reference.parameters(), fused=True)
    images = torch.randn(hvd.size(), 3, 5, 5, generator=torch.Generator().manual_seed(1)).double()
    for each in (model, reference):
        each.to(memory_format=torch.channels_last)
    for step in range(3):
        for each, steps, mine in (
            (model, optimizer, images[[hvd.rank()]]),
            (reference, alone, images),
        ):
            steps.zero_grad(set_to_none=step == 1)
            each(mine).square().mean().backward()
            assert each.weight.grad.stride() == each.weight.stride()
            steps.step()
    assert_same(model, reference)


@pytest.mark.parametrize("rank_count", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
