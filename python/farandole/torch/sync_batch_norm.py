# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Batch normalization over the batches of all ranks together. Source: Ioffe, Szegedy 2015."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from farandole.coordination.process_sets import ProcessSet, check_process_set, global_process_set
from farandole.errors import InvalidArgumentError
from farandole.torch.functions import allgather, allreduce
from farandole.torch.reduction import Sum


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """nn.BatchNorm1d, 2d and 3d with the statistics of all ranks' batches.

    Takes [rows, num_features] or [rows, num_features, ...]. Ranks may have different numbers of
    rows, also none. Outside of training it works on this rank alone.
    Every rank has to run forward and backward of the same layers in the same order.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        check_process_set(process_set, "SyncBatchNorm")
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self._process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise InvalidArgumentError(
                f"SyncBatchNorm: input has shape {list(input.shape)}, allowed is "
                f"[rows, {self.num_features}, ...]"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        normalized: torch.Tensor
        if not self.training:
            averages = (self.running_mean, self.running_var)
            own = self.running_mean is None
            return nn.functional.batch_norm(
                input, *averages, self.weight, self.bias, own, eps=self.eps
            )
        apply: Any = _Normalize.apply  # untyped
        normalized, mean, variance, count = apply(
            input, self.weight, self.bias, self.eps, self._process_set
        )
        if self.running_mean is not None:
            self._follow(mean, variance, int(count))
        return normalized

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Moves the running statistics towards those of this batch, of `count` elements."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self.num_batches_tracked.add_(1)
        if count == 0:
            return
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / max(count - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


class _Normalize(torch.autograd.Function):
    """Input [rows, channels, ...] to the same, the mean and variance [channels], the count."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        process_set: ProcessSet,
    ) -> Any:
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        mean, variance, count = _joint_statistics(_by_channel(wide), process_set)
        inverse = torch.rsqrt(variance + eps)
        normalized = (wide - _spread(mean, wide)) * _spread(inverse, wide)
        ctx.save_for_backward(normalized, inverse, weight)
        ctx.count, ctx.process_set = count, process_set
        output = normalized
        if weight is not None and bias is not None:
            output = normalized * _spread(weight, wide) + _spread(bias, wide)
        result = output.to(input.dtype)
        if result is normalized:
            result = normalized.clone()
        elements = torch.tensor(count)
        ctx.mark_non_differentiable(mean, variance, elements)
        return result, mean, variance, elements

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, *_: torch.Tensor) -> Any:
        normalized, inverse, weight = ctx.saved_tensors
        wide = gradient.to(normalized.dtype)
        of_bias = _by_channel(wide).sum(1)
        of_weight = _by_channel(wide * normalized).sum(1)
        sums = torch.stack([of_bias, of_weight])
        name = f"sync_batch_norm.gradients.{len(inverse)}"
        sums = allreduce(sums, name=name, op=Sum, process_set=ctx.process_set)
        sums /= max(ctx.count, 1)
        of_input = wide - _spread(sums[0], wide) - normalized * _spread(sums[1], wide)
        scale = inverse if weight is None else inverse * weight
        of_input = (of_input * _spread(scale, wide)).to(gradient.dtype)
        if weight is None:
            return of_input, None, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


def _joint_statistics(
    values: torch.Tensor, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Mean, variance and number of elements over all ranks of [channels, elements].

    Ranks exchange means and sums of squares around them, which loses no digits when the mean is
    large (Chan, Golub, LeVeque 1983). The name has the number of channels, so that layers of one
    width share it and the coordinator knows it from then on.
    """
    channels, count = values.shape
    mean = values.mean(1) if count > 0 else values.new_zeros(channels)
    squares = (values - mean[:, None]).square().sum(1)
    own = torch.cat([mean, squares, mean.new_tensor([count])])
    name = f"sync_batch_norm.statistics.{channels}"
    everyone = allgather(own[None], name, process_set)
    means, sums, counts = everyone[:, :channels], everyone[:, channels:-1], everyone[:, -1:]
    total = counts.sum()
    divisor = total.clamp(min=1)
    joint_mean = (counts * means).sum(0) / divisor
    joint_squares = (sums + counts * (means - joint_mean).square()).sum(0)
    return joint_mean, joint_squares / divisor, int(total)


def _by_channel(tensor: torch.Tensor) -> torch.Tensor:
    """[rows, channels, ...] as [channels, elements]."""
    return tensor.transpose(0, 1).reshape(tensor.shape[1], tensor[:, 0].numel())


def _spread(by_channel: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """[channels] as [1, channels, 1, ...]."""
    return by_channel.view(1, -1, *[1] * (like.dim() - 2))
