# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: DistributedOptimizer trains as one process does with every grouping and compression, with
sparse gradients, on process sets, and with ranks whose gradients come in different orders; and it
names parameters when they do not agree.

Method: as test_torch_optimizer.py, from which the model and the comparison are.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_torch_optimizer import Branches, assert_same, batches, loss_of, make_model, train_both
from torch import nn
from torch_checks import RANK_COUNTS, assert_passed, checks_of

import farandole.torch as hvd
from farandole.errors import InvalidArgumentError, MismatchError
from farandole.torch.plans import plan_equal_groups, plan_explicit_groups

STEPS = 8
# Of the loss after STEPS steps, relative. 16-bit gradients are off by 2^-11 and 2^-8.
TOLERANCES = {hvd.Compression.none: 1e-12, hvd.Compression.fp16: 1e-3, hvd.Compression.bf16: 1e-2}


def make_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def final_loss(optimizer: torch.optim.Optimizer, model: Branches, alone: bool = False) -> float:
    """Trains on this rank's shares, or on whole batches; the loss on the last whole batch."""
    for inputs, targets in batches(STEPS):
        whole = (inputs.flatten(0, 1), targets.flatten(0, 1))
        optimizer.zero_grad()
        loss_of(model, *(whole if alone else (inputs[hvd.rank()], targets[hvd.rank()]))).backward()
        optimizer.step()
    return loss_of(model, *whole).item()


def check_every_compression_with_every_grouping() -> None:
    reference = make_model()
    first = loss_of(reference, *(each.flatten(0, 1) for each in next(batches(1)))).item()
    expected = final_loss(make_sgd(reference), reference, alone=True)
    assert expected < 0.7 * first
    for compression, tolerance in TOLERANCES.items():
        groupings: list[Any] = [
            lambda _: {"num_groups": 0},
            lambda _: {"num_groups": 2},
            lambda _: {"groups": 3},
            lambda m: {"groups": [[m.first.weight, m.last.bias], [m.extra.weight]]},
            lambda _: {"groups": []},
            lambda _: {"bucket_bytes": 200, "gradient_predivide_factor": 2.0},
        ]
        for options in groupings:
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                make_sgd(model), model.named_parameters(), compression, **options(model)
            )
            assert final_loss(optimizer, model) == pytest.approx(expected, rel=tolerance)
            if compression is hvd.Compression.none:
                assert_same(model, reference)


def check_groups_are_what_was_asked_for() -> None:
    model = make_model()
    names = {parameter: name for name, parameter in model.named_parameters()}

    def layout(**options: Any) -> list[list[str]]:
        optimizer = hvd.DistributedOptimizer(make_sgd(model), **options)
        return [
            [names[slot.parameter] for slot in bucket.slots]
            for bucket in optimizer._exchange._buckets
        ]

    explicit = layout(groups=[[model.first.weight, model.last.bias], [model.extra.bias]])
    assert sorted(map(sorted, explicit)) == [
        ["extra.bias"],
        ["extra.weight"],
        ["first.bias"],
        ["first.weight", "last.bias"],
        ["last.weight"],
    ]
    assert len(layout(groups=[])) == 6
    assert len(layout(num_groups=6)) == 6
    assert len(layout(num_groups=99)) == 6
    assert [len(group) for group in layout(num_groups=2)] == [4, 2]  # 72 and 35 of 107 numbers
    assert layout(num_groups=1, groups=2) == layout(num_groups=2)  # as in Horovod


def check_wrong_groups() -> None:
    model = make_model()
    stranger = nn.Parameter(torch.ones(3))
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("num_groups is -1", {"num_groups": -1}),
        ("groups is -2", {"groups": -2}),
        ("group 1 of groups has a Parameter that is not", {"groups": [[], [stranger]]}),
        ("group 0 of groups has a str", {"groups": [["first.weight"]]}),
        (r"group 1 .* shape \[7\]\s?again", {"groups": [[model.first.bias]] * 2}),
    ]
    for message, options in wrong:
        with pytest.raises(InvalidArgumentError, match=message):
            hvd.DistributedOptimizer(make_sgd(model), **options)


def check_gradients_in_different_orders() -> None:
    """Each rank runs its own backward pass over many heads in an order of its own."""
    heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(12)).double()
    hvd.broadcast_parameters(heads.state_dict(), 0)
    for options in ({"groups": []}, {"num_groups": 5}, {}):
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(heads.parameters(), lr=0.0), heads.named_parameters(), **options
        )
        for step, (inputs, _) in enumerate(batches(4)):
            optimizer.zero_grad()
            order = list(range(12))
            random.Random(f"{step} {hvd.rank()}").shuffle(order)
            for index in order:
                (heads[index](inputs[hvd.rank()]) ** 2).sum().backward()
            optimizer.synchronize()
            for head in heads:
                loss = (head(inputs) ** 2).sum() / hvd.size()
                expected = torch.autograd.grad(loss, head.weight)[0]
                torch.testing.assert_close(head.weight.grad, expected, rtol=1e-12, atol=1e-14)
            with optimizer.skip_synchronize():
                optimizer.step()


def check_buckets_travel_as_one_tensor() -> None:
    """Of which the library makes no copy, and about which the ranks need not talk again."""
    coordinator = hvd.global_process_set.coordinator
    for options in ({"bucket_bytes": 1 << 20}, {"num_groups": 2}):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(make_sgd(model), model.named_parameters(), **options)
        final_loss(optimizer, model)
        before = coordinator.statistics()
        final_loss(optimizer, model)
        after = coordinator.statistics()
        buckets = STEPS * options.get("num_groups", 1)
        assert after["batches"] - before["batches"] == buckets
        assert after["tensors"] - before["tensors"] == buckets
        assert after["fused_bytes"] == before["fused_bytes"]
        assert after["talks"] == before["talks"]


def check_gradients_that_lie_otherwise_in_memory() -> None:
    """Column by column, with gaps, with a sign that torch has not carried out, of another dtype."""
    rank, shape = hvd.rank(), (3, 5)
    values = torch.arange(15.0).reshape(shape) + 100 * rank
    expected = torch.arange(15.0).reshape(shape) + 50 * (hvd.size() - 1)
    gaps = torch.zeros(6, 5)
    negated = torch._neg_view(-values)
    assert negated.is_neg()
    columns, double = values.t().contiguous().t(), values.double()
    for gradient in (columns, gaps[::2].copy_(values), negated, double):
        parameter = nn.Parameter(torch.zeros(shape))
        parameter.grad_dtype = None
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
        parameter.grad = gradient
        optimizer.step()
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=0)
        torch.testing.assert_close(parameter.data, -expected, rtol=0, atol=0)


class Words(nn.Module):
    """The mean of a text's word vectors, and a layer on top."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(50, 4, sparse=sparse)
        self.last = nn.Linear(4, 1)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.last(self.words(text).mean(1))


def texts(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 50, (hvd.size(), 3, 6), generator=generator)


def check_sparse_gradients() -> None:
    rank = hvd.rank()
    cases = itertools.product((False, True), ({}, {"groups": []}, {"num_groups": 1}), (1, 2))
    for sparse_as_dense, options, passes in cases:
        model, reference = Words(sparse=True).double(), Words(sparse=False).double()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.5),
            model.named_parameters(),
            sparse_as_dense=sparse_as_dense,
            backward_passes_per_step=passes,
            **options,
        )
        alone = torch.optim.SGD(reference.parameters(), lr=0.5)
        for step in range(4):
            optimizer.zero_grad()
            alone.zero_grad()
            for each in range(passes):
                text = texts(10 * step + each)
                if rank > 0 or step < 2:  # later rank 0 has none
                    model(text[rank]).square().sum().backward()
                used = text if step < 2 else text[1:]
                (reference(used.flatten(0, 1)).square().sum() / hvd.size()).backward()
            optimizer.step()
            alone.step()
            assert model.words.weight.grad.is_sparse
            if hvd.size() > 1:
                assert model.words.weight.grad.coalesce().indices().shape[1] < 50
        assert_same(model, reference)


def check_sparse_gradients_after_dense_ones() -> None:
    """They become dense, as the first one was."""
    weight = nn.Parameter(torch.zeros(6, 2, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    for sparse in (False, True, False):
        for set_to_none in (False, True):
            optimizer.zero_grad(set_to_none=set_to_none)
            words = torch.tensor([1, 4, 1])
            nn.functional.embedding(words, weight, sparse=sparse).sum().mul(hvd.rank()).backward()
            optimizer.step()
            expected = torch.zeros_like(weight)
            expected[1], expected[4] = hvd.size() - 1, (hvd.size() - 1) / 2
            torch.testing.assert_close(weight.grad, expected, rtol=0, atol=0)


def check_disagreement_names_the_parameter() -> None:
    """One rank's gradients are sparse, the others' dense. All are told, whichever rank asks first
    in however many cycles, and can go on. So are they when that gradient is the bucket's first,
    by whose name the others' bucket goes."""
    if hvd.size() == 1:
        return
    said = (
        r"bucket\.0' of 1, rank 1 .*bucket\.0 with sparse .*"
        r"words\.weight( to last\.bias)?: .*' of 4"
    )
    for attempt in range(40):
        model = Words(sparse=hvd.rank() == 1).double()
        parameters = list(model.parameters())[:: 1 if attempt % 2 else -1]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(parameters, lr=0.05), model.named_parameters()
        )
        loss = model(texts(0)[0]).sum()
        with pytest.raises(MismatchError, match=said):
            loss.backward()
        assert not optimizer._exchange.in_flight
    again, reference = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(make_sgd(again), again.named_parameters())
    train_both(optimizer, again, make_sgd(reference), reference)


def check_sparse_optimizer() -> None:
    """One that takes nothing but sparse gradients."""
    for sparse_as_dense in (False, True):
        words = nn.Embedding(20, 3, sparse=True)
        hvd.broadcast_parameters(words.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SparseAdam(words.parameters()), sparse_as_dense=sparse_as_dense
        )
        for _ in range(3):
            optimizer.zero_grad()
            words(torch.tensor([hvd.rank(), 7])).sum().backward()
            optimizer.step()
        assert len(set(hvd.allgather_object(words.weight.sum().item()))) == 1


def check_adasum() -> None:
    """Of equal gradients it is the gradient; of orthogonal ones the sum."""
    for dtype in (torch.float32, torch.bfloat16):
        same = nn.Parameter(torch.zeros(8, dtype=dtype))
        apart = nn.Parameter(torch.zeros(hvd.size(), 2, dtype=dtype))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([same, apart], lr=1.0),
            [("same", same), ("apart", apart)],
            op=hvd.Adasum,
        )
        (same.sum() * 2 + apart[hvd.rank()].sum() * (hvd.rank() + 1)).backward()
        optimizer.step()
        torch.testing.assert_close(same.detach().float(), torch.full((8,), -2.0))
        expected = -torch.arange(1.0, hvd.size() + 1)[:, None].expand(-1, 2)
        torch.testing.assert_close(apart.detach().float(), expected)


def check_process_sets() -> None:
    """Half of the ranks train together, the others each alone."""
    if hvd.size() < 3:
        return
    half = hvd.add_process_set([0, 2])
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("weight", weight)], process_set=half
    )
    for _ in range(2):
        optimizer.zero_grad()
        (weight.sum() * (hvd.rank() + 1)).backward()
        optimizer.step()
    expected = {0: -4.0, 2: -4.0}.get(hvd.rank(), -2.0 * (hvd.rank() + 1))
    assert weight.tolist() == [expected] * 3
    assert hvd.remove_process_set(half)


def check_two_optimizers_at_once() -> None:
    """Of models whose parameters have the same names, as in adversarial training."""
    models = [make_model(), make_model()]
    optimizers = [hvd.DistributedOptimizer(make_sgd(m), m.named_parameters()) for m in models]
    for inputs, targets in batches(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for model in models:
            loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert_same(*models)


def check_changed_number_of_passes() -> None:
    model, reference = make_model(), make_model()
    optimizer, alone = hvd.DistributedOptimizer(make_sgd(model)), make_sgd(reference)
    for passes in (2, 1, 3):
        optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        alone.zero_grad()
        for inputs, targets in batches(passes):
            loss_of(model, inputs[hvd.rank()], targets[hvd.rank()]).backward()
            loss_of(reference, inputs.flatten(0, 1), targets.flatten(0, 1)).backward()
        optimizer.step()
        alone.step()
    assert_same(model, reference)


def check_join_with_uneven_batches() -> None:
    """Rank r has r + 2 batches. Who is done counts as a gradient of zeros, unless the average
    leaves it out."""
    for op in (hvd.Average, hvd.ActiveAverage):
        weight = nn.Parameter(torch.zeros(4, dtype=torch.float64))
        sgd = torch.optim.SGD([weight], lr=1.0)
        optimizer = hvd.DistributedOptimizer(sgd, [("w", weight)], op=op)
        for step in range(hvd.rank() + 2):
            optimizer.zero_grad()
            (weight.sum() * (hvd.rank() + 1)).backward()
            optimizer.step()
            left = [rank + 1 for rank in range(hvd.size()) if step < rank + 2]
            mean = sum(left) / (hvd.size() if op is hvd.Average else len(left))
            torch.testing.assert_close(
                weight.grad, torch.full_like(weight, mean), rtol=1e-12, atol=0
            )
        assert hvd.join() == hvd.size() - 1


@pytest.mark.parametrize("rank_count", RANK_COUNTS)
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(check: str, rank_count: int) -> None:
    assert_passed(__file__, rank_count, check)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 12))
def test_plan_of_equal_groups(byte_counts: list[int], group_count: int) -> None:
    """Every parameter once, the last first, in as many groups as can be; none is larger than its
    share by more than two parameters."""
    plan = plan_equal_groups(byte_counts, group_count)
    assert [index for group in plan for index in group] == list(reversed(range(len(byte_counts))))
    assert len(plan) == min(group_count, len(byte_counts))
    share = sum(byte_counts) / group_count
    for group in plan:
        group_bytes = sum(byte_counts[index] for index in group)
        assert group_bytes <= share + 2 * max(byte_counts)


def test_plans() -> None:
    assert plan_equal_groups([10] * 6, 3) == [[5, 4], [3, 2], [1, 0]]
    assert plan_equal_groups([100, 1, 1, 1], 2) == [[3, 2, 1], [0]]
    assert plan_equal_groups([1, 1, 1, 100], 2) == [[3], [2, 1, 0]]
    parameters = [torch.ones(1) for _ in range(5)]
    groups = [[parameters[0], parameters[3]], [parameters[2]], [torch.ones(1)]]
    assert plan_explicit_groups(parameters, groups) == [[4], [2], [1], [3, 0]]
