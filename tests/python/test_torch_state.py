# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: parameters, optimizer state and objects arrive as the root has them, whatever collection
they come in; what cannot be sent raises, with one message on every rank.

Method: real processes. Optimizers of all kinds make their steps on the root alone, on all other
ranks alone, or on none; afterwards every rank compares its state, dtypes included, with the root's.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from statistics import LinearRegression
from typing import Any

import pytest
import torch
from torch import nn
from torch_checks import assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import FarandoleError, InvalidArgumentError, MismatchError


class Keeper(torch.optim.Optimizer):
    """Keeps what optimizers of research keep: tuples with names, lists, text, float32 averages."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr, "note": "own"})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state, mean = self.state[parameter], torch.rand(parameter.shape)
                state["pair"] = LinearRegression(mean, 1 + len(state))  # a namedtuple
                state["history"] = deque([mean.double(), (mean.half(), "text")], maxlen=3)
                state["named"] = OrderedDict(first=mean + 1, nothing=None)


class Wide(torch.optim.Optimizer):
    """As mixed-precision trainers make it: float32 averages of bfloat16 gradients."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            before = state.get("average", torch.zeros(parameter.shape))
            state["average"] = 0.9 * before + parameter.grad.float() + 1e-3
            parameter.data.sub_(0.1 * state["average"].to(parameter.dtype))


def model_of(dtype: torch.dtype, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).to(dtype)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "wide": Wide,
    "keeper": Keeper,
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def plain(value: Any) -> Any:
    """Comparable, with types and dtypes."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, plain(part)) for key, part in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, [plain(part) for part in value]
    return value


def trained(name: str, dtype: torch.dtype, steps: int, seed: int) -> torch.optim.Optimizer:
    model = model_of(dtype, seed)
    optimizer = OPTIMIZERS[name](model.parameters())

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3, dtype=dtype)).square().sum()
        loss.backward()
        return loss

    for _ in range(steps):
        if name == "lbfgs":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return optimizer


def check_state_of_every_optimizer() -> None:
    rank, last = hvd.rank(), hvd.size() - 1
    for name, dtype, root in itertools.product(
        OPTIMIZERS, (torch.float32, torch.bfloat16), {0, last}
    ):
        if name == "lbfgs" and dtype is torch.bfloat16:
            continue
        for at_root, elsewhere in ((2, 0), (0, 2), (1, 3)):
            optimizer = trained(name, dtype, at_root if rank == root else elsewhere, rank)
            optimizer.param_groups[0]["extra"] = {"rank": rank, "scale": torch.tensor(rank + 0.5)}
            hvd.broadcast_optimizer_state(optimizer, root)
            mine = plain(optimizer.state_dict())
            assert mine == hvd.broadcast_object(mine, root), (name, dtype, root, at_root)
            extra = optimizer.param_groups[0]["extra"]
            assert (extra["rank"], extra["scale"].item()) == (root, root + 0.5)
            trained_on = len(optimizer.state)
            assert (trained_on > 0) == (at_root > 0 and name != "sgd") or name == "adagrad"


def check_state_goes_on_training() -> None:
    """The state belongs to the parameters of the rank that received it."""
    optimizer = trained("wide", torch.bfloat16, 3 if hvd.rank() == 0 else 0, 1)
    distributed = hvd.DistributedOptimizer(optimizer)
    hvd.broadcast_optimizer_state(distributed, 0)
    for group in distributed.param_groups:
        for parameter in group["params"]:
            assert distributed.state[parameter]["average"].dtype is torch.float32
            parameter.data.fill_(0.5)
            parameter.grad = torch.ones_like(parameter)
    distributed.step()
    mine = plain(distributed.state_dict()["state"])
    assert mine == hvd.broadcast_object(mine, 0)


def error_of(call: Callable[[], object], *texts: str) -> None:
    """Raises on every rank, with one message; and the next operation works."""
    with pytest.raises(FarandoleError) as caught:
        call()
    message = f"{type(caught.value).__name__}: {caught.value}"
    assert set(hvd.allgather_object(message)) == {message}
    for text in texts:
        assert text in message, message


def check_what_fails_on_the_root_fails_everywhere() -> None:
    is_root = hvd.rank() == 0
    for value, texts in (
        ((lambda: 1), ("optimizer of rank 0 cannot be pickled", "lambda")),
        (torch.empty(3, device="meta"), ("UnsupportedError", "device meta")),
        (torch.eye(3).to_sparse(), ("UnsupportedError", "layout torch.sparse_coo")),
    ):
        optimizer = trained("adam", torch.float32, 1, 0)
        if is_root:
            next(iter(optimizer.state.values()))["odd"] = value
        error_of(partial(hvd.broadcast_optimizer_state, optimizer, 0), *texts)
    error_of(lambda: hvd.broadcast_object((lambda: 1) if is_root else 5), "obj of rank 0")
    last = hvd.size() - 1
    odd = (lambda: 1) if hvd.rank() == last else 5
    error_of(lambda: hvd.allgather_object(odd), f"obj of rank {last} cannot be pickled")


def check_optimizers_that_differ() -> None:
    model = model_of(torch.float32, 0)
    parameters = list(model.parameters())
    if hvd.size() > 1:
        fewer = torch.optim.SGD(parameters[: 4 - (hvd.rank() > 0)], lr=0.1)
        with pytest.raises(MismatchError, match="group 0 has 3 parameters"):
            hvd.broadcast_optimizer_state(fewer, 0)
        groups = [{"params": parameters[:1]}, {"params": parameters[1:]}][: 2 - (hvd.rank() > 0)]
        with pytest.raises(MismatchError, match="group 1 has 3 parameters"):
            hvd.broadcast_optimizer_state(torch.optim.SGD(groups, lr=0.1), 0)
    bad: Any
    for bad in (model, {}, parameters, torch.optim.SGD(parameters, lr=0.1).state_dict(), None):
        with pytest.raises(TypeError, match="allowed is a torch optimizer"):
            hvd.broadcast_optimizer_state(bad, 0)


def check_parameters_of_every_collection() -> None:
    size = hvd.size()
    for root in {0, size - 1}:
        expected = plain(model_of(torch.float32, root).state_dict())
        forms: list[Callable[[nn.Module], Any]] = [
            lambda model: model,
            lambda model: model.state_dict(),
            lambda model: model.named_parameters(),
            lambda model: list(model.named_parameters()),
            lambda model: dict(model.named_parameters()),
            lambda model: model.state_dict().items(),
            lambda model: model.parameters(),
            lambda model: tuple(model.parameters()),
            lambda model: model.state_dict().values(),
            lambda model: (each for each in model.parameters()),
            lambda model: {**model.state_dict(), "epoch": hvd.rank(), "_extra_state": None},
        ]
        for form in forms:
            model = model_of(torch.float32, hvd.rank())
            hvd.broadcast_parameters(form(model), root)
            assert plain(model.state_dict()) == expected
        single = torch.full((2, 2), float(hvd.rank()))
        hvd.broadcast_parameters(single, root)
        assert single.tolist() == [[root, root]] * 2
        batches = nn.BatchNorm1d(3)
        batches.running_mean = torch.full((3,), float(hvd.rank()))
        hvd.broadcast_parameters(batches, root)
        assert batches.running_mean.tolist() == [root] * 3
    hvd.broadcast_parameters([], 0)
    hvd.broadcast_parameters(nn.ReLU(), 0)


def check_parameters_of_what_is_none() -> None:
    model = model_of(torch.float32, 0)
    used_up = model.named_parameters()
    list(used_up)
    optimizer = torch.optim.Adam(model.parameters())
    bad: Any
    for bad in (
        [model.state_dict()],
        [model],
        model.state_dict().keys(),
        optimizer,
        optimizer.state_dict(),
        {"model": model.state_dict()},
        {"layers": [torch.ones(1)]},
        [("name", 5)],
        [("name", torch.ones(1), "more")],
        [torch.ones(1), None],
        "weights.pt",
        7,
        None,
    ):
        for kind in (TypeError, ValueError, hvd.HorovodInternalError):
            with pytest.raises(kind, match="allowed are a module, a state_dict"):
                hvd.broadcast_parameters(bad, 0)
    for bad in (used_up, iter(()), {"epoch": 3}):
        with pytest.raises(InvalidArgumentError, match="without tensors"):
            hvd.broadcast_parameters(bad, 0)
    with pytest.raises(InvalidArgumentError, match="'a' twice"):
        hvd.broadcast_parameters([("a", torch.ones(1)), ("a", torch.zeros(1))], 0)
    if hvd.size() > 1:
        with pytest.raises(MismatchError):
            hvd.broadcast_parameters(model.parameters() if hvd.rank() == 0 else [], 0)
    for bad in (model, [model], model.state_dict(), "ab"):
        with pytest.raises((TypeError, ValueError)):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters()), named_parameters=bad)
    with pytest.raises(ValueError, match="named_parameters lacks parameter 0"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters()), named_parameters=used_up)


@pytest.mark.parametrize("rank_count", [1, 3])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)
