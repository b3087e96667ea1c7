# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose step() first averages the gradients over all ranks."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

from farandole.coordination import autotune
from farandole.coordination.process_sets import ProcessSet, check_process_set, global_process_set
from farandole.errors import InvalidArgumentError
from farandole.torch.buckets import BUCKET_BYTES, ExchangeOptions, GradientExchange
from farandole.torch.compression import Compressing, Compression, name_of
from farandole.torch.reduction import ActiveAverage, Adasum, Average, ReduceOp, Scaling, Sum
from farandole.torch.state import check_same
from farandole.torch.tensors import allreduce_
from farandole.torch.tuning import TunedExchange

Groups = int | Sequence[Sequence[torch.Tensor]] | None


def _shared(name: str) -> Any:
    """An attribute that is the wrapped optimizer's."""

    def get(optimizer: _DistributedOptimizer) -> Any:
        return getattr(optimizer._plain, name)

    def assign(optimizer: _DistributedOptimizer, value: Any) -> None:
        setattr(optimizer._plain, name, value)

    return property(get, assign)


class _DistributedOptimizer(torch.optim.Optimizer):
    """What is put in front of the class of the wrapped optimizer."""

    _exchange: GradientExchange
    _is_checked: bool  # the ranks have compared their parameters
    _names: dict[torch.Tensor, str]
    _options: ExchangeOptions
    _plain: torch.optim.Optimizer  # what was wrapped
    _settings: str
    _skip_synchronize: bool
    _synchronized: bool  # by the script, since the last step
    _tuned: TunedExchange | None

    # Those of the wrapped optimizer, always: a scheduler made before may hold that, and
    # load_state_dict() of either replaces them.
    param_groups = _shared("param_groups")
    state = _shared("state")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._plain.__setstate__(state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a distributed optimizer cannot be pickled or copied, since it watches the parameters "
            "of this process; save its state_dict(), and load that into one that "
            "DistributedOptimizer() makes for the other model"
        )

    @property
    def backward_passes_per_step(self) -> int:
        return self._exchange.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    @property
    def op(self) -> ReduceOp:
        return self._options.op

    @property
    def process_set(self) -> ProcessSet:
        return self._options.process_set

    @property
    def gradient_predivide_factor(self) -> float:
        return self._options.scaling.postscale

    @property
    def sparse_as_dense(self) -> bool:
        return self._options.sparse_as_dense

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        """Horovod's, which tools look at."""
        return {parameter: name for name, parameter in self._named_parameters()}

    def step(self, closure: Callable[[], Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Makes the optimizer's step, with averaged gradients: if no backward() has averaged them
        since the last step, it does. Further arguments are the wrapped optimizer's.

        With a `closure` the gradients are averaged each time it has been evaluated, and so is its
        loss, if that is a tensor or a number, with the same op: all ranks take the same branches.
        """
        if closure is not None and not self._skip_synchronize:
            closure = self._synchronized_closure(closure)
        elif not self._skip_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after "
                    "optimizer.synchronize(): gradients are averaged once only, and in Horovod "
                    "they would be a second time",
                    stacklevel=2,
                )
            self._exchange.finish()
        given = () if closure is None and not args else (closure, *args)
        result = super().step(*given, **kwargs)
        self._opt_called = self._plain._opt_called = True  # type: ignore[attr-defined]
        self._synchronized = False
        self._exchange.start_over()
        if self._tuned is not None and not self._tuned.step():
            self._tuned = None
        return result

    # Keeps torch from wrapping this step() too: the hooks of step() would run twice. A scheduler
    # would wrap it to learn that it was called, of which step() tells by itself.
    step.hooked = step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _synchronized_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def synchronized() -> Any:
            loss = closure()
            self._exchange.finish()
            return self._combined(loss)

        return synchronized

    @torch.no_grad()
    def _combined(self, loss: Any) -> Any:
        options = self._options
        if isinstance(loss, bool) or not isinstance(loss, (torch.Tensor, float, int)):
            return loss
        if not options.process_set.included():
            return loss
        value = torch.as_tensor(loss, dtype=None if torch.is_tensor(loss) else torch.float64)
        op = options.op if options.op in (Sum, ActiveAverage) else Average
        name = f"{options.label}.loss"
        value = allreduce_(value.clone(), name=name, op=op, process_set=options.process_set)
        return value if torch.is_tensor(loss) else value.item()

    def synchronize(self) -> None:
        """Averages the gradients, unless backward() has done that, as it does by itself when it
        was called backward_passes_per_step times.

        For gradients of fewer passes, and for scripts that also run on Horovod: before looking at
        the gradients or clipping them, then step() in skip_synchronize(). Waits without the GIL.
        """
        self._exchange.finish()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it, step() leaves the gradients as they are: after synchronize()."""
        self._skip_synchronize = True
        try:
            yield
        finally:
            self._skip_synchronize = self._synchronized = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on; to be called between steps, on every rank."""
        _check_passes(passes)
        self._exchange.passes = passes
        self._exchange.start_over()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Makes the gradients None; each next one is copied into its bucket, unless it travels
        from where it is.

        Without `set_to_none` they are zeroed in place, and the next ones added, which takes longer:
        30 ms of a core instead of 10 for the 100 MB of ResNet-50.
        """
        if self._exchange.in_flight:
            raise InvalidArgumentError(
                "zero_grad() was called after backward() has failed, while other ranks may wait "
                "for this rank's gradients; call synchronize() first, on every rank"
            )
        self._synchronized = False
        self._exchange.start_over()
        self._watch_new()
        if set_to_none:
            self._exchange.forget()
            super().zero_grad(set_to_none=True)
            return
        self._exchange.zero()
        for _, parameter in self._named_parameters():
            if parameter.grad is not None and parameter not in self._exchange:
                parameter.grad.zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in the wrapped class; every rank must add the same parameters at the same point."""
        super().add_param_group(param_group)
        self._adopt_new()

    def communication_summary(self) -> dict[str, Any]:
        """Exchanges, bytes of gradients, seconds, and plans used so far on this rank.

        steps            exchanges of all gradients, mostly one in a step
        seconds_active   time with a bucket on its way
        seconds_exposed  time that backward(), step() or synchronize() was blocked
        hidden_fraction  1 - exposed / active: the share behind which computation went on
        plans            {"allreduce ring …": {"calls": …, "bytes": …}}, the few bytes included
                         by which ranks agree on an order
        """
        return self._exchange.meter.summary()

    def _named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for group_index, group in enumerate(self.param_groups):
            for index, parameter in enumerate(group["params"]):
                default = f"parameter {index} of group {group_index}"
                yield self._names.get(parameter, default), parameter

    def _new_parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Trainable parameters that are in no bucket yet: added, or frozen until now."""
        if not self._options.process_set.included():
            return []  # its gradients stay what they are
        exchange = self._exchange

        def is_new(parameter: torch.Tensor) -> bool:
            return parameter.requires_grad and parameter not in exchange

        if not any(is_new(each) for group in self.param_groups for each in group["params"]):
            return []  # as nearly always: names take longer
        return [(name, each) for name, each in self._named_parameters() if is_new(each)]

    def _watch_new(self) -> None:
        """Has all parameters watched that backward() may give a gradient. Not collective."""
        self._exchange.watch_again()
        new = self._new_parameters()
        if new:
            if not self._exchange.in_flight:
                self._exchange.keep(each for group in self.param_groups for each in group["params"])
            self._exchange.add(new)
            self._is_checked = False

    def _adopt_new(self) -> None:
        """The same, and makes sure that all ranks have the same ones."""
        self._watch_new()
        if not self._is_checked:
            self._is_checked = True
            lines = [self._settings, *self._exchange.layout()]
            check_same("the optimizer", lines, self._options.process_set)


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


def _check_passes(passes: int) -> None:
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step is {passes}, allowed is 1 or more")


def _check_arguments(
    optimizer: torch.optim.Optimizer,
    op: ReduceOp,
    gradient_predivide_factor: float,
    bucket_bytes: int,
) -> None:
    if isinstance(optimizer, _DistributedOptimizer):
        raise InvalidArgumentError("optimizer is distributed already")
    if op not in (Average, Sum, Adasum, ActiveAverage):
        raise InvalidArgumentError(
            f"op is {op}, allowed are Average, Sum, Adasum and ActiveAverage"
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


def _check_groups(optimizer: torch.optim.Optimizer, num_groups: int, groups: Groups) -> Groups:
    """What of the two holds; None for buckets of bucket_bytes."""
    if groups is None or isinstance(groups, int):
        count = num_groups if groups is None else groups
        if count < 0:
            argument = "num_groups" if groups is None else "groups"
            raise InvalidArgumentError(f"{argument} is {count}, allowed is 0 or more")
        return count or None
    known = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    seen: set[torch.Tensor] = set()
    for index, group in enumerate(groups):
        for parameter in group:
            if not isinstance(parameter, torch.Tensor) or parameter not in known:
                raise InvalidArgumentError(
                    f"group {index} of groups has a {type(parameter).__name__} that is not a "
                    "parameter of the optimizer, allowed are lists of its parameters"
                )
            if parameter in seen:
                raise InvalidArgumentError(
                    f"group {index} of groups has a parameter of shape {list(parameter.shape)} "
                    "again, allowed is each parameter once"
                )
            seen.add(parameter)
    return [list(group) for group in groups]


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Compressing = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    bucket_bytes: int = BUCKET_BYTES,
) -> _DistributedOptimizer:
    """An optimizer of the same class, on the same parameters, that averages gradients over ranks.

    Gradients are averaged while backward() goes on, in groups, each as soon as it is complete;
    when backward() returns they are all averages, to be read, clipped or scaled. Where that would
    only take time from the computation, since all ranks are on one host, with a thread each and no
    core left, all are averaged at its end. Every rank has to call backward() equally often in a
    step, or not at all. The optimizer shares parameter groups and state with `optimizer`, whose
    own step() is not used any more.

    named_parameters           names for messages: model.named_parameters(); all or none
    compression                what makes gradients smaller on their way
    backward_passes_per_step   gradients of so many passes are added up before they are averaged;
                               divide the loss by it for their mean
    op                         Average, Sum, ActiveAverage, which leaves out ranks that have
                               joined, or Adasum, which combines each gradient by itself
    gradient_predivide_factor  with Average: divide by this before the sum, the rest after it
    num_groups                 if not 0, so many groups of about equal bytes
    groups                     the same, or lists of parameters; those in no list travel alone
    sparse_as_dense            sparse gradients travel as dense ones, and are sparse again after
    process_set                whose ranks work together; on other ranks gradients stay local
    bucket_bytes               size of the groups if neither of the two above says how many; where
                               ranks reach each other's ordinary memory (two on a host), gradients
                               from 1 MiB on are groups of their own, where they only occupy their
                               host from 4 MiB on

    With FARANDOLE_AUTOTUNE it looks for better settings while it trains, unless another optimizer
    of the process set does so. `num_groups` and `groups` keep it from trying numbers of groups.

    Errors   InvalidArgumentError, UnsupportedError for parameters that are not on the CPU,
             MismatchError on every rank when the ranks' models or arguments differ.
    """
    check_process_set(process_set, "DistributedOptimizer")
    compressor = name_of(compression)
    number = process_set.next_optimizer()
    label = "DistributedOptimizer" + (f".{number}" if number else "")
    _check_arguments(optimizer, op, gradient_predivide_factor, bucket_bytes)
    _check_passes(backward_passes_per_step)
    names = {} if named_parameters is None else _check_names(optimizer, named_parameters)
    options = ExchangeOptions(
        label,
        op,
        Scaling.of(op, 1.0 / gradient_predivide_factor, gradient_predivide_factor),
        bucket_bytes,
        _check_groups(optimizer, num_groups, groups),
        compression,
        sparse_as_dense,
        process_set,
    )
    base = type(optimizer)
    distributed_class = cast(
        type[_DistributedOptimizer], type(base.__name__, (_DistributedOptimizer, base), {})
    )
    distributed = distributed_class.__new__(distributed_class)
    # A learning rate scheduler may have replaced `step` on the instance; that one is not ours.
    own = ("step", "param_groups", "state")
    distributed.__dict__.update(
        {name: value for name, value in vars(optimizer).items() if name not in own},
        _exchange=GradientExchange(options, backward_passes_per_step),
        _is_checked=True,
        _names=names,
        _options=options,
        _plain=optimizer,
        _settings=(
            f"op is {op.name}, backward_passes_per_step is {backward_passes_per_step}, "
            f"gradient_predivide_factor is {gradient_predivide_factor}, "
            f"bucket_bytes is {bucket_bytes}, compression is {compressor}, "
            f"sparse_as_dense is {sparse_as_dense}"
        ),
        _skip_synchronize=False,
        _synchronized=False,
        _tuned=None,
    )
    distributed._exchange.adopt = weakref.WeakMethod(distributed._adopt_new)
    distributed._adopt_new()
    if process_set.included() and not process_set.is_tuned and autotune.enabled():
        distributed._tuned = TunedExchange(
            distributed._exchange, process_set, tunes_groups=options.groups is None
        )
    return distributed
