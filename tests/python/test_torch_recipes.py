# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the recipes of PyTorch's documentation run as they stand there with a DistributedOptimizer,
and train as one process does on whole batches, whatever the number of threads; or they raise at
once and say what to write.

Method: real processes. Every rank also follows the recipe alone, with a plain optimizer, on the
whole batches; then weights must agree. The number of threads decides whether gradients leave during
backward() or at its end.
"""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from test_torch_optimizer import assert_same, batches, loss_of, make_model
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_checks import assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError

Recipe = Callable[[nn.Module, torch.optim.Optimizer, Iterator[Any]], object]


def make_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def shares(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return ((inputs[hvd.rank()], targets[hvd.rank()]) for inputs, targets in batches(count))


def whole(count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return ((inputs.flatten(0, 1), targets.flatten(0, 1)) for inputs, targets in batches(count))


def both(recipe: Recipe, make: Any = make_sgd, count: int = 4, **options: Any) -> None:
    """Follows `recipe` on shares and, alone, on whole batches, with one thread and with two."""
    for early in (False, True):
        model, reference = make_model(), make_model()
        with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
            plain = make(model)
            optimizer = hvd.DistributedOptimizer(plain, bucket_bytes=200, **options)
            recipe(model, optimizer, shares(count))
        recipe(reference, make(reference), whole(count))
        assert_same(model, reference)


def check_gradients_are_averages_after_backward() -> None:
    for threads, least in itertools.product((1, 2), (0, 1 << 20)):
        torch.set_num_threads(threads)
        with mock.patch("farandole.torch.buckets._apart_bytes_min", return_value=least):
            model, reference = make_model(), make_model()
            optimizer = hvd.DistributedOptimizer(make_sgd(model), bucket_bytes=200)
        for mine, everything in zip(shares(2), whole(2), strict=True):
            optimizer.zero_grad()
            reference.zero_grad()
            loss_of(model, *mine).backward()
            loss_of(reference, *everything).backward()
            for here, there in zip(model.parameters(), reference.parameters(), strict=True):
                torch.testing.assert_close(here.grad, there.grad, rtol=1e-12, atol=1e-14)
    torch.set_num_threads(1)


def check_clipping() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for step, batch in enumerate(data):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(model, *batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            nn.utils.clip_grad_value_(model.parameters(), 0.03)
            optimizer.step()

    both(recipe)


def check_scaled_gradients() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=2)
        for step, batch in enumerate(data):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, *batch)).backward()
            if step % 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2048.0

    both(recipe)
    both(recipe, lambda model: torch.optim.Adam(model.parameters(), fused=True))


def check_inf_on_one_rank() -> None:
    """All ranks skip that step."""
    for early in (False, True):
        with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(make_sgd(model))
            scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
            for step, batch in enumerate(shares(4)):
                before = copy.deepcopy(model)
                optimizer.zero_grad() if step % 2 else model.zero_grad()
                bad = step in (1, 2) and hvd.rank() == hvd.size() - 1
                loss = loss_of(model, *batch) * (float("inf") if bad else 1.0)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                if step in (1, 2):
                    assert_same(model, before)
            assert scaler.get_scale() == 128.0
            weights = [parameter.tolist() for parameter in model.parameters()]
            assert all(each == weights for each in hvd.allgather_object(weights))


def check_accumulation_as_it_stands() -> None:
    """Without backward_passes_per_step: after each backward() what has come is averaged."""

    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for step, batch in enumerate(data):
            (loss_of(model, *batch) / 2).backward()
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)

    both(recipe)
    both(recipe, backward_passes_per_step=2)


def check_several_losses() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for batch in data:
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward(retain_graph=True)
            (loss * 2).backward()
            model(batch[0], False).square().mean().backward()
            optimizer.step()

    both(recipe)

    def summed(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for batch in data:
            optimizer.zero_grad()
            for output in model(batch[0]).square().sum(0) / 20:
                output.backward(retain_graph=True)
            (model.last(batch[0].repeat(1, 2)[:, :7]).sum() / 20).backward()
            optimizer.step()

    both(summed, op=hvd.Sum)


def check_adversarial_training() -> None:
    """The loop of PyTorch's DCGAN tutorial, with its module.zero_grad()."""

    def train(wrap: Callable[[Any], Any], data: Iterator[Any]) -> list[nn.Module]:
        torch.manual_seed(5)
        critic = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
        generator = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4)).double()
        of_critic, of_generator = wrap(make_sgd(critic)), wrap(make_sgd(generator))
        for real, noise in data:
            critic.zero_grad()
            critic(real).square().mean().backward()
            fake = generator(noise)
            (critic(fake.detach()) - 1).square().mean().backward()
            of_critic.step()
            generator.zero_grad()
            critic(fake).square().mean().backward()
            of_generator.step()
        return [critic, generator]

    for early, op in itertools.product((False, True), (hvd.Average, hvd.Sum)):
        factor = hvd.size() if op is hvd.Sum else 1

        def distribute(optimizer: Any, op: Any = op, factor: int = factor) -> Any:
            optimizer.param_groups[0]["lr"] /= factor
            return hvd.DistributedOptimizer(optimizer, op=op)

        with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
            models = train(distribute, shares(4))
        for model, reference in zip(models, train(lambda each: each, whole(4)), strict=True):
            assert_same(model, reference)


def check_line_search() -> None:
    """Whose branches depend on the loss, which differs between the ranks."""

    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for batch in data:

            def closure(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, *batch)
                loss.backward()
                return loss

            optimizer.step(closure)

    model, reference = make_model(), make_model()
    for each, make in ((model, hvd.DistributedOptimizer), (reference, lambda o: o)):
        lbfgs = torch.optim.LBFGS(
            each.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe"
        )
        recipe(each, make(lbfgs), shares(3) if each is model else whole(3))
    for mine, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.data, expected.data, rtol=1e-5, atol=1e-7)
    weights = [parameter.tolist() for parameter in model.parameters()]
    assert all(each == weights for each in hvd.allgather_object(weights))


def check_losses_of_closures() -> None:
    optimizer = hvd.DistributedOptimizer(make_sgd(make_model()))
    mean = sum(range(hvd.size())) / hvd.size()
    assert optimizer.step(lambda: hvd.rank()) == mean
    assert optimizer.step(lambda: torch.tensor(float(hvd.rank()))).item() == mean
    assert optimizer.step(lambda: None) is None


def check_schedulers() -> None:
    """Made before the optimizer was wrapped or after, also past load_state_dict()."""
    for before in (True, False):
        model = make_model()
        optimizer = plain = make_sgd(model)
        if not before:
            optimizer = hvd.DistributedOptimizer(plain)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        if before:
            optimizer = hvd.DistributedOptimizer(plain)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, *next(shares(1))).backward()
                optimizer.step()
                scheduler.step()
                assert optimizer.param_groups[0]["lr"] == 0.05 * 0.5 ** (step + 1)
                optimizer.load_state_dict(optimizer.state_dict())
                assert plain.param_groups is optimizer.param_groups
    early = hvd.DistributedOptimizer(make_sgd(model))
    scheduler = torch.optim.lr_scheduler.StepLR(early, 1, 0.5)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def check_saving_and_resuming() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for batch in data:
            optimizer.zero_grad()
            loss_of(model, *batch).backward()
            optimizer.step()
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            for parameter in model.parameters():
                parameter.data.zero_()
            loaded = torch.load(io.BytesIO(file.getvalue()))
            model.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])

    both(recipe, lambda model: torch.optim.AdamW(model.parameters(), lr=0.01))


def check_pickling_and_copying_are_refused() -> None:
    optimizer = hvd.DistributedOptimizer(make_sgd(make_model()))
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"save its state_dict\(\)"):
            attempt(optimizer)


def check_optimizers_of_every_kind() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for step, batch in enumerate(data):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(model, *batch).backward()
            for parameter in model.parameters():
                parameter.grad.detach_()
            optimizer.step()

    kinds: list[tuple[Any, dict[str, Any]]] = [
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"capturable": False, "amsgrad": True, "foreach": False}),
        (torch.optim.SGD, {"lr": 0.05, "fused": True}),
        (torch.optim.Adagrad, {}),
    ]
    for kind, options in kinds:
        both(recipe, lambda m, k=kind, o=options: k(m.parameters(), **o), count=2)


def check_arguments_of_step() -> None:
    class Stepping(torch.optim.SGD):
        def step(self, closure: Any = None, factor: float = 1.0, *, more: str = "") -> Any:
            self.seen = (factor, more)
            return super().step(closure)

    class Bare(torch.optim.SGD):
        def step(self) -> None:  # type: ignore[override]
            super().step()

    model = make_model()
    optimizer = hvd.DistributedOptimizer(Stepping(model.parameters(), lr=0.1))
    optimizer.step(None, 3.0, more="x")
    assert optimizer.seen == (3.0, "x")
    optimizer.step(lambda: 1.0, factor=2.0)
    assert optimizer.seen == (2.0, "")
    hvd.DistributedOptimizer(Bare(model.parameters(), lr=0.1)).step()


def check_checkpointing() -> None:
    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        for inputs, targets in data:
            optimizer.zero_grad()
            hidden = torch.tanh(checkpoint(model.first, inputs, use_reentrant=False))
            hidden = hidden + checkpoint(model.extra, hidden, use_reentrant=False)
            nn.functional.mse_loss(model.last(hidden), targets).backward()
            optimizer.step()

    both(recipe)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model), bucket_bytes=1)
    for shared in (False, True):
        for early in (False, True):
            with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
                optimizer.zero_grad()
                hidden = model.first(torch.ones(1, 4, dtype=torch.float64))
                for _ in range(1 + shared):
                    hidden = checkpoint(model.extra, hidden, use_reentrant=True)
                with pytest.raises(InvalidArgumentError, match="pass use_reentrant=False"):
                    model.last(hidden).sum().backward()
                with pytest.raises(InvalidArgumentError, match=r"call synchronize\(\) first"):
                    optimizer.zero_grad()
                optimizer.synchronize()
    recipe(model, optimizer, shares(1))


def check_averaged_weights() -> None:
    """torch.optim.swa_utils: an exponential moving average, and stochastic weight averaging."""

    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        averages = [
            torch.optim.swa_utils.AveragedModel(
                model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
            ),
            torch.optim.swa_utils.AveragedModel(model),
        ]
        scheduler = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.02)
        for batch in data:
            optimizer.zero_grad()
            loss_of(model, *batch).backward()
            optimizer.step()
            scheduler.step()
            for each in averages:
                each.update_parameters(model)
        with torch.no_grad():
            for parameters in zip(*(each.parameters() for each in (model, *averages)), strict=True):
                parameters[0].copy_(sum(parameters))

    both(recipe)


def check_compiled_model() -> None:
    """By the default compiler where there is one, whose graph is what matters here."""

    def recipe(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[Any]) -> None:
        compiled = torch.compile(model, backend="aot_eager")
        for batch in data:
            optimizer.zero_grad()
            loss_of(compiled, *batch).backward()
            nn.utils.clip_grad_norm_(compiled.parameters(), 0.1)
            optimizer.step()

    both(recipe)


def check_gradients_changed_too_early() -> None:
    """By a hook that comes after ours, when the gradient may be on its way: refused, whether it is
    or not. One that comes before ours changes what is averaged."""
    changes: list[Callable[[nn.Parameter], object]] = [
        lambda p: p.grad.mul_(2),
        lambda p: setattr(p, "grad", p.grad * 2),
        lambda p: setattr(p.grad, "data", p.grad * 2),
        lambda p: setattr(p, "grad", None),
    ]
    for early, change in itertools.product((False, True), changes):
        with mock.patch("farandole.torch.buckets.early_sends_pay", return_value=early):
            model = make_model()
            before = model.last.bias.register_post_accumulate_grad_hook(
                lambda p: [p.grad.mul_(3), None][1]
            )
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
            )
            data = torch.ones(1, 4, dtype=torch.float64)
            after = model.last.bias.register_post_accumulate_grad_hook(
                lambda p, c=change: [c(p), None][1]
            )
            loss = model(data).sum()
            with pytest.raises(InvalidArgumentError, match=r"'last\.bias' was changed during"):
                loss.backward()
            after.remove()
            optimizer.zero_grad()
            model(data).sum().backward()
            assert model.last.bias.grad.tolist() == [3.0, 3.0]
            before.remove()


def check_the_older_of_two_optimizers_is_refused() -> None:
    model, reference = make_model(), make_model()
    older = hvd.DistributedOptimizer(make_sgd(model), model.named_parameters())
    newer = hvd.DistributedOptimizer(make_sgd(model), model.named_parameters())
    alone = make_sgd(reference)
    for each, optimizer, data in ((model, newer, shares(2)), (reference, alone, whole(2))):
        for batch in data:
            optimizer.zero_grad()
            loss_of(each, *batch).backward()
            optimizer.step()
    assert_same(model, reference)
    with pytest.raises(InvalidArgumentError, match="belongs to a DistributedOptimizer that was"):
        older.step()


def check_ranks_with_unlike_numbers_of_backwards_are_told() -> None:
    from farandole.errors import MismatchError

    if hvd.size() == 1:
        return
    weight = nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)])
    weight.sum().backward()
    if hvd.rank() == 0:
        optimizer.step()
    with pytest.raises(MismatchError, match="again in a step"):
        weight.sum().backward()
    hvd.barrier()


def check_warning_of_step_after_synchronize() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(model), backward_passes_per_step=2)
    assert optimizer.backward_passes_per_step == 2
    assert optimizer.op is hvd.Average
    assert optimizer.process_set is hvd.global_process_set
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"without optimizer\.skip_synchronize\(\)"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.step()


@pytest.mark.parametrize("rank_count", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
