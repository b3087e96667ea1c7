# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose step() first averages the gradients over all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

from farandole.errors import InvalidArgumentError
from farandole.torch.buckets import BUCKET_BYTES, GradientExchange
from farandole.torch.state import check_same
from farandole.torch.tensors import Average, ReduceOp, Scaling, Sum


class _DistributedOptimizer(torch.optim.Optimizer):
    """What is put in front of the class of the wrapped optimizer."""

    _exchange: GradientExchange
    _names: dict[torch.Tensor, str]
    _settings: str
    _skip_synchronize: bool

    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Averages the gradients, unless that has been done, and makes the optimizer's step.

        With a `closure` the gradients are averaged each time it has been evaluated.
        """
        if self._skip_synchronize:
            return super().step(closure)
        if closure is None:
            if not self._exchange.finished:
                self.synchronize()
            self._exchange.finished = False
            return super().step()

        def synchronized_closure() -> float:
            loss = closure()
            self.synchronize()
            return loss

        return super().step(synchronized_closure)

    # Keeps torch from wrapping this step() too: the hooks of step() would run twice.
    step.hooked = True  # type: ignore[attr-defined]

    def synchronize(self) -> None:
        """Ends the exchange of gradients: all are averages when this returns.

        Call it before looking at the gradients or clipping them, then step() in
        skip_synchronize(). Waits without the GIL.
        """
        new = self._new_parameters()
        if new:
            self._exchange.send_rest()  # first, since how far each rank has come differs
            self._adopt(new)
        self._exchange.finish()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, step() leaves the gradients as they are: after synchronize()."""
        self._skip_synchronize = True
        try:
            yield
        finally:
            self._skip_synchronize = False
            self._exchange.finished = False

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeroes the gradients in place, where they stay views of their buckets.

        With `set_to_none` they become None, and each next one is copied into its bucket.
        """
        if self._exchange.in_flight:
            raise InvalidArgumentError(
                "zero_grad() was called after backward() and before step() or synchronize(), "
                "while gradients are being averaged"
            )
        self._exchange.start_over()
        if set_to_none:
            super().zero_grad(set_to_none=True)
            return
        self._exchange.zero()
        for _, parameter in self._named_parameters():
            if parameter.grad is not None and parameter not in self._exchange:
                parameter.grad.zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in the wrapped class; every rank must add the same parameters at the same point."""
        super().add_param_group(param_group)
        self._adopt(self._new_parameters())

    def communication_summary(self) -> dict[str, Any]:
        """Steps, bytes of gradients, seconds, and plans used so far on this rank.

        seconds_active   time with a bucket on its way
        seconds_exposed  time that synchronize() was blocked
        hidden_fraction  1 - exposed / active: the share behind which computation went on
        plans            {"allreduce ring shm": {"calls": …, "bytes": …}}
        """
        return self._exchange.meter.summary()

    def _named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for group_index, group in enumerate(self.param_groups):
            for index, parameter in enumerate(group["params"]):
                default = f"parameter {index} of group {group_index}"
                yield self._names.get(parameter, default), parameter

    def _new_parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Trainable parameters that are in no bucket yet: added, or frozen until now."""
        return [
            (name, parameter)
            for name, parameter in self._named_parameters()
            if parameter.requires_grad and parameter not in self._exchange
        ]

    def _adopt(self, parameters: list[tuple[str, torch.Tensor]]) -> None:
        self._exchange.add(parameters)
        check_same("the optimizer", [self._settings, *self._exchange.layout()])


def _check_names(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]]
) -> dict[torch.Tensor, str]:
    named = list(named_parameters)
    if not all(isinstance(item, tuple) and len(item) == 2 for item in named):
        raise InvalidArgumentError(
            "named_parameters has items that are not (name, parameter) pairs, allowed is the "
            "result of model.named_parameters()"
        )
    repeated = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if repeated:
        raise InvalidArgumentError(
            f"named_parameters has names twice: {', '.join(repeated)}; allowed are unique names"
        )
    names = {parameter: name for name, parameter in named}
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            if parameter not in names:
                raise InvalidArgumentError(
                    f"named_parameters lacks parameter {index} of group {group_index} of the "
                    f"optimizer, of shape {list(parameter.shape)}; allowed is to name all or none"
                )
    return names


def _check_arguments(
    optimizer: torch.optim.Optimizer,
    op: ReduceOp,
    backward_passes_per_step: int,
    gradient_predivide_factor: float,
    bucket_bytes: int,
) -> None:
    if isinstance(optimizer, _DistributedOptimizer):
        raise InvalidArgumentError("optimizer is distributed already")
    if op not in (Average, Sum):
        raise InvalidArgumentError(f"op is {op}, allowed are Average and Sum")
    if backward_passes_per_step < 1:
        raise InvalidArgumentError(
            f"backward_passes_per_step is {backward_passes_per_step}, allowed is 1 or more"
        )
    if gradient_predivide_factor <= 0.0:
        raise InvalidArgumentError(
            f"gradient_predivide_factor is {gradient_predivide_factor}, allowed is more than 0"
        )
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise InvalidArgumentError(
            f"gradient_predivide_factor is {gradient_predivide_factor} with op {op.name}, "
            "allowed is 1.0 unless op is Average"
        )
    if bucket_bytes < 1:
        raise InvalidArgumentError(f"bucket_bytes is {bucket_bytes}, allowed is 1 or more")


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    gradient_predivide_factor: float = 1.0,
    bucket_bytes: int = BUCKET_BYTES,
) -> _DistributedOptimizer:
    """An optimizer of the same class, on the same parameters, that averages gradients over ranks.

    Gradients are averaged in buckets of up to `bucket_bytes` while backward() goes on; step()
    waits for the rest. It shares parameter groups and state with `optimizer`, which is not used
    any more. Between backward() and step() no other collective may be called if a rank may
    have parameters without gradients: buckets with such parameters go out in step().

    named_parameters           names for messages: model.named_parameters(); all or none
    op                         Average, or Sum
    backward_passes_per_step   gradients of so many passes are added up before they are averaged;
                               divide the loss by it for their mean
    gradient_predivide_factor  with Average: divide by this before the sum, the rest after it

    Errors   InvalidArgumentError, UnsupportedError for parameters that are not on the CPU,
             MismatchError on every rank when the ranks' models or arguments differ.
    """
    _check_arguments(
        optimizer, op, backward_passes_per_step, gradient_predivide_factor, bucket_bytes
    )
    names = {} if named_parameters is None else _check_names(optimizer, named_parameters)
    base = type(optimizer)
    distributed_class = cast(
        type[_DistributedOptimizer], type(base.__name__, (_DistributedOptimizer, base), {})
    )
    distributed = distributed_class.__new__(distributed_class)
    # A learning rate scheduler may have replaced `step` on the instance; that one is not ours.
    shared = {name: value for name, value in vars(optimizer).items() if name != "step"}
    distributed.__dict__.update(
        shared,
        _exchange=GradientExchange(
            Scaling.of(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor),
            backward_passes_per_step,
            bucket_bytes,
        ),
        _names=names,
        _settings=(
            f"op is {op.name}, backward_passes_per_step is {backward_passes_per_step}, "
            f"gradient_predivide_factor is {gradient_predivide_factor}, "
            f"bucket_bytes is {bucket_bytes}"
        ),
        _skip_synchronize=False,
    )
    distributed._adopt(distributed._new_parameters())
    return distributed
