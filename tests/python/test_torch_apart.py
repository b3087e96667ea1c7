# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: gradients that travel from where autograd put them train as those in buckets do.

Method: the checks of test_torch_optimizer.py and test_torch_gradients.py, but for those about
buckets, with every gradient apart, however small it is and wherever the machine would have it.
"""

from __future__ import annotations

from typing import Any

import pytest
import test_torch_gradients
import test_torch_optimizer
import torch
from test_torch_optimizer import pair, train_both
from torch_checks import assert_passed, checks_of

import farandole.torch as hvd
from farandole.torch.buckets import GradientExchange

ABOUT_BUCKETS = {
    "check_gradients_are_views_of_one_bucket",
    "check_buckets_travel_as_one_tensor",
    "check_disagreement_names_the_parameter",
    "check_gradients_set_to_none",
}
if __name__ == "<run_path>":  # on a rank

    def travels_apart(self: Any, parameter: torch.Tensor) -> bool:
        return self._groups is None

    GradientExchange._travels_apart = travels_apart  # type: ignore[method-assign]

globals().update(
    {
        name: check
        for module in (test_torch_optimizer, test_torch_gradients)
        for name, check in vars(module).items()
        if name.startswith("check_") and name not in ABOUT_BUCKETS
    }
)


def check_gradients_stay_where_they_are() -> None:
    optimizer, model, *_ = pair()
    optimizer.zero_grad()
    model(torch.full((1, 4), hvd.rank() + 1.0, dtype=torch.float64)).sum().backward()
    places = [parameter.grad.data_ptr() for parameter in model.parameters()]
    optimizer.step()
    assert places == [parameter.grad.data_ptr() for parameter in model.parameters()]
    slots = optimizer._exchange._slots.values()
    assert all(slot.apart for slot in slots)
    optimizer.zero_grad()
    assert all(slot.view.numel() == 0 for slot in slots)  # nothing is kept
    assert all(parameter.grad is None for parameter in model.parameters())
    optimizer.zero_grad(set_to_none=False)
    assert all(not bool(parameter.grad.any()) for parameter in model.parameters())


def check_one_tensor_as_two_gradients() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(5)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    optimizer.zero_grad()
    shared = torch.full((5,), float(hvd.rank()))
    for parameter in parameters:
        parameter.grad = shared
    optimizer.step()
    total = hvd.size() * (hvd.size() - 1) / 2
    assert all(torch.equal(each, torch.full((5,), -total)) for each in parameters)


def check_gradients_of_which_a_graph_is_kept() -> None:
    optimizer, model, alone, reference = pair()
    train_both(optimizer, model, alone, reference, steps=2)
    optimizer.zero_grad()
    model(torch.ones(1, 4, dtype=torch.float64)).sum().backward(create_graph=True)
    optimizer.step()
    assert not any(parameter.grad.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("rank_count", [1, pytest.param(2, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
