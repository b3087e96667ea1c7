# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: training with DistributedOptimizer on n ranks is training on one process with the n times
larger batch, however the gradients are bucketed and whichever of them a rank lacks; and it stays
an optimizer of the wrapped class in every respect.

Method: real processes. Each rank also trains a copy of the model on the global batch, alone, in
float64, and the parameters must agree to 1e-12 after several steps. Shares of a batch differ, so
an average that is missing, made twice or made too early shows in the first step.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_checks import RANK_COUNTS, assert_passed, checks_of

import farandole
import farandole.torch as hvd
from farandole.errors import InvalidArgumentError, MismatchError, UnsupportedError
from farandole.torch import buckets
from farandole.torch.plans import plan_buckets

SHARE = 3  # samples of each rank in a batch
BUCKETS = [1, 200, 25 << 20]  # bytes: each parameter alone, some together, all in one
Make = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: list[Make] = [
    lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    lambda parameters: torch.optim.Adam(parameters, lr=0.01),
]


class Branches(nn.Module):
    """A perceptron with one hidden layer and an extra branch that a batch may use or not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 7)
        self.extra = nn.Linear(7, 7)
        self.last = nn.Linear(7, 2)

    def forward(self, batch: torch.Tensor, extra: bool = True) -> torch.Tensor:
        hidden = torch.tanh(self.first(batch))
        return self.last(hidden + self.extra(hidden) if extra else hidden)


def make_model(seed: int = 0) -> Branches:
    torch.manual_seed(seed)
    return Branches().double()


def batches(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Global batches, the same on every rank: inputs [size, SHARE, 4], targets [size, SHARE, 2]."""
    generator = torch.Generator().manual_seed(42)
    for _ in range(count):
        inputs = torch.randn(hvd.size(), SHARE, 4, dtype=torch.float64, generator=generator)
        yield inputs, inputs[..., :2].sin() + inputs[..., 2:]


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def assert_same(model: nn.Module, reference: nn.Module) -> None:
    for (name, mine), expected in zip(
        model.named_parameters(), reference.parameters(), strict=True
    ):
        torch.testing.assert_close(
            mine.data,
            expected.data,
            rtol=1e-12,
            atol=1e-14,
            msg=lambda text, n=name: f"{n}: {text}",
        )


def train_both(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    alone: torch.optim.Optimizer,
    reference: nn.Module,
    steps: int = 5,
) -> None:
    """Trains `model` on this rank's shares and `reference` on whole batches; compares."""
    for step, (inputs, targets) in enumerate(batches(steps)):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
        optimizer.step()
        alone.zero_grad()
        loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1)).backward()
        alone.step()
    assert_same(model, reference)


def pair(
    make: Make = OPTIMIZERS[0], thawing: bool = False, **options: Any
) -> tuple[Any, Branches, Any, Branches]:
    """A distributed optimizer with its model, and one for a single process with its copy.

    With `thawing` the model's first layer is frozen at the start.
    """
    model, reference = make_model(), make_model()
    model.first.requires_grad_(not thawing)
    optimizer = hvd.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), **options
    )
    return optimizer, model, make(reference.parameters()), reference


def check_equals_one_process_with_the_large_batch() -> None:
    for make, bucket_bytes in itertools.product(OPTIMIZERS, BUCKETS):
        train_both(*pair(make, bucket_bytes=bucket_bytes))


def check_predivided_average_and_sum() -> None:
    train_both(*pair(gradient_predivide_factor=4.0, bucket_bytes=200))
    optimizer, model, alone, reference = pair(op=hvd.Sum)
    for group in alone.param_groups:
        group["lr"] *= hvd.size()
        group["weight_decay"] = 0.0
    optimizer.param_groups[0]["weight_decay"] = 0.0
    train_both(optimizer, model, alone, reference)


def train_both_with_gaps(
    optimizer: torch.optim.Optimizer,
    model: Branches,
    alone: torch.optim.Optimizer,
    reference: Branches,
) -> None:
    """As train_both(), but the extra branch is unused on some ranks, and in one step on all."""
    for step, (inputs, targets) in enumerate(batches(6)):
        uses = [(rank + step) % 3 != 0 and step != 4 for rank in range(hvd.size())]
        optimizer.zero_grad(set_to_none=step % 2 == 1)
        mine = model(inputs[hvd.rank()], uses[hvd.rank()])
        nn.functional.mse_loss(mine, targets[hvd.rank()]).backward()
        optimizer.step()
        for parameter in reference.parameters():
            parameter.grad = torch.zeros_like(parameter)
        outputs = [reference(inputs[rank], uses[rank]) for rank in range(hvd.size())]
        nn.functional.mse_loss(torch.stack(outputs), targets).backward()
        alone.step()
    assert_same(model, reference)


def check_parameters_that_some_ranks_do_not_use() -> None:
    """They contribute zeros, and all ranks get the average over all ranks."""
    for bucket_bytes in BUCKETS:
        train_both_with_gaps(*pair(bucket_bytes=bucket_bytes))


def check_layer_that_thaws_when_ranks_have_come_differently_far() -> None:
    optimizer, model, alone, reference = pair(bucket_bytes=1, thawing=True)
    model.first.requires_grad_(True)
    train_both_with_gaps(optimizer, model, alone, reference)


def check_ranks_that_use_layers_in_different_order() -> None:
    """Gradients become ready in different orders; buckets go out in one."""
    torch.manual_seed(0)
    heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(6)).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(heads.parameters(), lr=1.0), bucket_bytes=1
    )
    for inputs, _ in batches(3):
        optimizer.zero_grad()
        order = torch.randperm(6, generator=torch.Generator().manual_seed(hvd.rank())).tolist()
        for index in order:
            (heads[index](inputs[hvd.rank()]) ** 2).sum().backward()
        optimizer.synchronize()
        local = [torch.autograd.grad((head(inputs) ** 2).sum(), head.weight)[0] for head in heads]
        for head, expected in zip(heads, local, strict=True):
            torch.testing.assert_close(head.weight.grad, expected / hvd.size(), rtol=1e-12, atol=0)
        with optimizer.skip_synchronize():
            optimizer.step()


def check_gradients_set_to_none() -> None:
    """By the optimizer, and by the model, of which the optimizer hears nothing."""
    optimizer, model, alone, reference = pair(bucket_bytes=200)
    views = [parameter.grad for parameter in model.parameters()]
    for step, (inputs, targets) in enumerate(batches(4)):
        optimizer.zero_grad() if step % 2 else model.zero_grad()
        assert all(parameter.grad is None for parameter in model.parameters())
        loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
        optimizer.step()
        assert all(p.grad is view for p, view in zip(model.parameters(), views, strict=True))
        alone.zero_grad()
        loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1)).backward()
        alone.step()
    assert_same(model, reference)


def check_gradients_are_views_of_one_bucket() -> None:
    optimizer, model, *_ = pair()
    bucket = model.first.weight.grad.untyped_storage().data_ptr()
    optimizer.zero_grad(set_to_none=False)
    model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
    optimizer.step()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.untyped_storage().data_ptr() == bucket
    optimizer.zero_grad(set_to_none=False)
    assert all(not bool(parameter.grad.any()) for parameter in model.parameters())


def check_buckets_leave_when_that_pays() -> None:
    """During the backward pass or at its end; either way they are back when it returns, and
    training on a single process agrees."""
    for early in (True, False):
        with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
            optimizer, model, alone, reference = pair(bucket_bytes=1)
            seen = []
            hook = model.first.weight.register_hook(
                lambda _, o=optimizer, s=seen: s.append(o._exchange._sent)
            )
            model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
            hook.remove()
            assert [count > 0 for count in seen] == [early]
            assert not optimizer._exchange.in_flight
            optimizer.zero_grad()
            train_both(optimizer, model, alone, reference)


def check_frozen_parameters_stay_put() -> None:
    model, reference = make_model(), make_model()
    for each in (model, reference):
        each.first.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[0](model.parameters()))
    alone = OPTIMIZERS[0](reference.parameters())
    train_both(optimizer, model, alone, reference)
    for each in (model, reference):  # one layer becomes trainable, another one frozen
        each.first.requires_grad_(True)
        each.last.requires_grad_(False)
    frozen = model.last.weight.clone()
    train_both(optimizer, model, alone, reference)
    assert torch.equal(model.last.weight, frozen)


def check_accumulation_over_several_passes() -> None:
    for passes, bucket_bytes in itertools.product((2, 3), BUCKETS):
        optimizer, model, alone, reference = pair(
            backward_passes_per_step=passes, bucket_bytes=bucket_bytes
        )
        data = list(batches(4 * passes - 1))  # the last step has one pass too few
        for first in range(0, len(data), passes):
            optimizer.zero_grad()
            alone.zero_grad()
            for inputs, targets in data[first : first + passes]:
                loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
                loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1)).backward()
            optimizer.step()
            alone.step()
        assert_same(model, reference)


def check_clipping_between_synchronize_and_step() -> None:
    optimizer, model, alone, reference = pair(bucket_bytes=200)
    for inputs, targets in batches(3):
        optimizer.zero_grad()
        loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
        alone.zero_grad()
        loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1)).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        alone.step()
    assert_same(model, reference)


def check_step_after_synchronize_averages_once() -> None:
    optimizer, model, *_ = pair(op=hvd.Sum)
    model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
    optimizer.synchronize()
    summed = model.last.bias.grad.clone()
    assert torch.equal(summed, torch.full((2,), float(hvd.size()), dtype=torch.float64))
    optimizer.step()
    assert torch.equal(model.last.bias.grad, summed)


def check_closures() -> None:
    """LBFGS evaluates its closure many times a step: each must see averages."""
    model, reference = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters(), lr=0.5))
    alone = torch.optim.LBFGS(reference.parameters(), lr=0.5)
    for inputs, targets in batches(2):

        def share(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, inputs[hvd.rank()], targets[hvd.rank()])
            loss.backward()
            return loss

        def whole(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            alone.zero_grad()
            loss = loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1))
            loss.backward()
            return loss

        assert isinstance(optimizer.step(share), torch.Tensor)
        alone.step(whole)
    for mine, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.data, expected.data, rtol=1e-6, atol=1e-8)


def check_it_is_an_optimizer_of_the_wrapped_class() -> None:
    optimizer, model, alone, reference = pair(bucket_bytes=200)
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "SGD"
    schedulers = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in (optimizer, alone)]
    for _ in range(2):
        train_both(optimizer, model, alone, reference, steps=1)
        for scheduler in schedulers:
            scheduler.step()
    state = copy.deepcopy(optimizer.state_dict())
    assert state.keys() == alone.state_dict().keys()
    optimizer.load_state_dict(state)
    train_both(optimizer, model, alone, reference, steps=1)


def check_step_hooks_run_once() -> None:
    optimizer, *_ = pair()
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert calls == ["before", "after"] * 2


def check_scheduler_made_before_wrapping() -> None:
    model, reference = make_model(), make_model()
    plain, alone = OPTIMIZERS[0](model.parameters()), OPTIMIZERS[0](reference.parameters())
    schedulers = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in (plain, alone)]
    optimizer = hvd.DistributedOptimizer(plain)
    for _ in range(3):
        train_both(optimizer, model, alone, reference, steps=1)
        for scheduler in schedulers:
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] == alone.param_groups[0]["lr"]


def check_added_parameter_group() -> None:
    model, reference = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[0](model.last.parameters()))
    alone = OPTIMIZERS[0](reference.last.parameters())
    for each, network in ((optimizer, model), (alone, reference)):
        rest = [*network.first.parameters(), *network.extra.parameters()]
        each.add_param_group({"params": rest, "lr": 0.01})
    train_both(optimizer, model, alone, reference)


def check_parameters_of_several_dtypes() -> None:
    """Halves and floats in turn; sums of small integers are exact in both."""
    dtypes = [torch.float32, torch.bfloat16, torch.float32, torch.float16, torch.bfloat16]
    parameters = [nn.Parameter(torch.ones(5, 3, dtype=dtype)) for dtype in dtypes]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    for factor, parameter in enumerate(parameters, 1):
        (parameter * (hvd.rank() + 1) * factor).sum().backward()
    optimizer.step()
    total = sum(range(1, hvd.size() + 1))
    for factor, parameter in enumerate(parameters, 1):
        assert torch.equal(parameter.data, torch.full_like(parameter, 1 - total * factor))


def check_empty_and_missing_parameters() -> None:
    parameters = [nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.tensor(2.0))]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), bucket_bytes=1)
    (parameters[0].sum() + parameters[1] * hvd.size()).backward()
    optimizer.step()
    assert parameters[1].item() == 2.0 - hvd.size()
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    nothing = hvd.DistributedOptimizer(torch.optim.SGD([frozen], lr=1.0))
    nothing.zero_grad()
    nothing.step()
    assert nothing.communication_summary()["bytes"] == 0


def check_arguments() -> None:
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    names = list(model.named_parameters())
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("op is ReduceOp.MIN, allowed are", {"op": hvd.Min}),
        ("backward_passes_per_step is 0", {"backward_passes_per_step": 0}),
        ("gradient_predivide_factor is -1", {"gradient_predivide_factor": -1.0}),
        ("2.0 with op SUM", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
        ("bucket_bytes is 0", {"bucket_bytes": 0}),
        ("names twice: first.bias", {"named_parameters": [*names, names[1]]}),
        ("lacks parameter 0 of group 0", {"named_parameters": names[1:]}),
        ("not .name, parameter. pairs", {"named_parameters": model.parameters()}),
    ]
    for message, options in wrong:
        with pytest.raises(InvalidArgumentError, match=message):
            hvd.DistributedOptimizer(plain, **options)
    with pytest.raises(InvalidArgumentError, match="distributed already"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(plain))
    elsewhere = torch.optim.SGD([nn.Parameter(torch.empty(2, device="meta"))], lr=0.1)
    with pytest.raises(UnsupportedError, match=r"parameter 0 of group 0.*device meta"):
        hvd.DistributedOptimizer(elsewhere)


def check_different_models_raise_on_every_rank() -> None:
    if hvd.size() == 1:
        return
    last = hvd.rank() == hvd.size() - 1
    layer = nn.Linear(3, 5 if last else 4)
    with pytest.raises(MismatchError, match=rf"rank {hvd.size() - 1} differs .*\[5\].*\[4\]"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=1), layer.named_parameters()
        )
    more = nn.Linear(3, 4, bias=last)
    with pytest.raises(MismatchError, match="differs from that of rank 0"):
        hvd.DistributedOptimizer(torch.optim.SGD(more.parameters(), lr=1.0))
    same = nn.Linear(3, 4)
    with pytest.raises(MismatchError, match="backward_passes_per_step is 2"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(same.parameters(), lr=1.0), backward_passes_per_step=2 if last else 1
        )
    with pytest.raises(MismatchError, match=r"'broadcast_parameters\.bias'.*float32\[4\].*\[5\]"):
        hvd.broadcast_parameters(layer.state_dict(), 0)
    with pytest.raises(MismatchError, match="group 'broadcast_parameters'"):
        hvd.broadcast_parameters(more.state_dict(), 0)
    train_both(*pair())


def check_broadcast_parameters() -> None:
    for root in range(hvd.size()):
        model, expected = make_model(seed=hvd.rank()), make_model(seed=root)
        hvd.broadcast_parameters(model.state_dict(), root)
        assert_same(model, expected)
        model = make_model(seed=hvd.rank())
        model.first.weight.data = model.first.weight.data.t().contiguous().t()  # not contiguous
        hvd.broadcast_parameters(model.named_parameters(), root_rank=root)
        assert_same(model, expected)
        hvd.broadcast_parameters(list(make_model(seed=hvd.rank()).parameters()), root)


def check_broadcast_optimizer_state() -> None:
    """From a rank that has made steps to ranks that have made none, or other ones."""
    for make, root in itertools.product(OPTIMIZERS, {0, hvd.size() - 1}):
        model, expected = make_model(), make_model()
        optimizer, reference = make(model.parameters()), make(expected.parameters())
        optimizer.param_groups[0]["lr"] = 0.1 + hvd.rank()
        reference.param_groups[0]["lr"] = 0.1 + root
        step_alone(reference, expected)
        step_alone(reference, expected)
        if hvd.rank() == root:
            step_alone(optimizer, model)
            step_alone(optimizer, model)
        hvd.broadcast_parameters(model.state_dict(), root)
        hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(optimizer), root)
        hvd.broadcast_optimizer_state(optimizer, root)
        step_alone(optimizer, model)
        step_alone(reference, expected)
        assert_same(model, expected)


def step_alone(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimizer.step()


def check_communication_summary() -> None:
    optimizer, model, alone, reference = pair(bucket_bytes=200)
    assert optimizer.communication_summary()["steps"] == 0
    train_both(optimizer, model, alone, reference, steps=4)
    summary = optimizer.communication_summary()
    assert summary["steps"] == 4
    assert summary["bytes"] == 4 * sum(parameter.nbytes for parameter in model.parameters())
    assert 0.0 <= summary["hidden_fraction"] <= 1.0
    assert summary["seconds_exposed"] > 0.0
    assert all(name.startswith("allreduce ") for name in summary["plans"])
    # The coordinator's own allreduces are among them.
    assert sum(plan["bytes"] for plan in summary["plans"].values()) >= summary["bytes"]


def check_hooks_leave_with_the_optimizer() -> None:
    """A model that gets a second optimizer must not feed the first."""
    model = make_model()
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
        model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
        optimizer.step()
        del optimizer
    model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


@pytest.mark.parametrize("rank_count", RANK_COUNTS)
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)


SIZES = st.tuples(st.integers(0, 50), st.sampled_from([torch.float32, torch.float16]))


@given(st.lists(SIZES, max_size=30), st.integers(1, 100), st.integers(1, 100))
def test_plan_of_buckets(
    sizes: list[tuple[int, torch.dtype]], bucket_bytes: int, first_bucket_bytes: int
) -> None:
    """Every parameter once, the last first; one dtype and the given size per bucket."""
    plan = plan_buckets(sizes, bucket_bytes, first_bucket_bytes)
    assert sorted(index for bucket in plan for index in bucket) == list(range(len(sizes)))
    for bucket in plan:
        assert bucket == sorted(bucket, reverse=True)
        assert len({sizes[index][1] for index in bucket}) == 1
        assert len(bucket) == 1 or sum(sizes[index][0] for index in bucket) <= bucket_bytes
    ends = [bucket[-1] for bucket in plan]
    assert ends == sorted(ends, reverse=True)


def test_plan_fills_the_first_bucket_sooner() -> None:
    sizes = [(10, torch.float32)] * 10
    assert plan_buckets(sizes, 40, 20) == [[9, 8], [7, 6, 5, 4], [3, 2, 1, 0]]
    assert plan_buckets([(99, torch.float32), (5, torch.float32)], 40, 20) == [[1], [0]]
    assert plan_buckets([], 40, 20) == []


def test_early_sends_pay_where_something_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    def pay(occupied: bool, threads: int) -> bool:
        context = SimpleNamespace(occupies_host=occupied)
        monkeypatch.setattr(farandole, "context", lambda: context)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return buckets.early_sends_pay()

    assert not pay(True, 1)
    assert pay(True, 2), "other threads go on"
    assert pay(False, 1), "another host, or idle cores"


def test_large_gradients_stay_in_place_where_copies_cost_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def least(reaches: bool, occupies: bool) -> float:
        context = SimpleNamespace(reaches_all_memory=reaches, occupies_host=occupies)
        monkeypatch.setattr(farandole, "context", lambda: context)
        return buckets._apart_bytes_min()

    for occupies in (False, True):
        assert least(reaches=True, occupies=occupies) == 1 << 20
    assert least(reaches=False, occupies=True) == 4 << 20, "each is a message, and staged"
    assert least(reaches=False, occupies=False) == math.inf, "a network, or idle cores"
