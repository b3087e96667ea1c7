# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the gradients that are simulated are those of the models that are named.

Method: numbers of parameters and tensors that the models' authors or torchvision and the GPT-2
release state; what must hold for every model's order of gradients.
"""

from __future__ import annotations

import pytest

from farandole.errors import InvalidArgumentError
from farandole.planning.models import MODEL_NAMES, equal_groups, gradients, model

STATED = {  # parameters, tensors, 10^9 multiplications of a forward pass
    "alexnet": (61_100_840, 16, 0.71),
    "vgg16": (138_357_544, 32, 15.5),
    "vgg19": (143_667_240, 38, 19.6),
    "resnet50": (25_557_032, 161, 4.1),
    "efficientnet-b0": (5_288_548, 213, 0.39),
    "gpt2": (124_439_808, 148, None),
    "gpt2-xl": (1_557_611_200, 580, None),
}


@pytest.mark.parametrize("name", STATED)
def test_a_model_has_the_parameters_that_its_source_states(name: str) -> None:
    parameters, tensors, multiplications = STATED[name]
    found = model(name)
    assert (found.parameter_count, found.tensor_count) == (parameters, tensors)
    if multiplications is not None:
        assert found.operations / 6e9 == pytest.approx(multiplications, rel=0.05)


def test_the_dense_network_has_220_million() -> None:
    assert model("fcn-220m").parameter_count == pytest.approx(220e6, rel=0.005)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_gradients_come_in_the_order_of_the_backward_pass(name: str) -> None:
    found = gradients(model(name))
    assert sum(gradient.elements for gradient in found) == model(name).parameter_count
    times = [gradient.ready for gradient in found]
    assert times == sorted(times)
    assert times[0] > 1 / 3, "a gradient cannot be ready in the forward pass"
    assert times[-1] == pytest.approx(1)


@pytest.mark.parametrize("group_count", [1, 2, 5])
def test_groups_are_about_equal(group_count: int) -> None:
    found = gradients(model("resnet50"))
    groups = equal_groups(found, group_count)
    assert groups == sorted(groups)
    assert set(groups) == set(range(group_count))
    whole = model("resnet50").parameter_count
    largest = max(gradient.elements for gradient in found)
    for group in range(group_count):
        size = sum(g.elements for g, index in zip(found, groups, strict=True) if index == group)
        assert abs(size - whole / group_count) <= largest


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"model is 'lenet', allowed are alexnet, vgg16"):
        model("lenet")
