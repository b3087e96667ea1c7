# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients in buckets of library-owned memory, sent while the backward pass still runs.

A bucket is submitted when the last of its gradients is ready; those of one dtype lie one after the
other and travel as one named tensor, which the library reduces in place. Buckets go out whenever
they are ready: the coordinator finds the order. Where ranks reach each other's ordinary memory, or
occupy their host, a large gradient is a bucket of its own and stays where autograd put it. Where
nothing is idle during the backward pass (early_sends_pay), all go out at its end.

When backward() returns, every `param.grad` has the result, in its bucket: whoever reads or changes
it then, as clipping and GradScaler do, finds the same on all ranks, however many threads and hosts
there are.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

import farandole
from farandole.coordination.handles import first_failure, start_group
from farandole.coordination.process_sets import ProcessSet
from farandole.errors import InvalidArgumentError
from farandole.torch.compression import Compressing, Compressor
from farandole.torch.meter import Meter
from farandole.torch.plans import plan_buckets, plan_equal_groups, plan_explicit_groups
from farandole.torch.reduction import Adasum, Average, ReduceOp, Scaling
from farandole.torch.slots import Bucket, Flat, Seen, Slot, reusable, take_gradients
from farandole.torch.sparse import sparse_sum
from farandole.torch.tasks import Task, check_tensor, readable
from farandole.torch.tensors import allreduce_task

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
# From so much on a gradient travels from where autograd put it: if peers reach it there, and if it
# is staged for them. For each a message is sent, so in the second case it has to spare more.
APART_BYTES_MIN = 1 << 20
APART_STAGED_BYTES_MIN = 4 << 20


@dataclass(frozen=True, eq=False)
class ExchangeOptions:
    """How gradients are to be combined."""

    label: str  # before the names of all tensors
    op: ReduceOp
    scaling: Scaling
    bucket_bytes: int
    groups: int | Sequence[Sequence[torch.Tensor]] | None  # None: buckets of bucket_bytes
    compression: Compressing
    sparse_as_dense: bool
    process_set: ProcessSet


def early_sends_pay() -> bool:
    """Whether gradients that travel during the backward pass find something idle meanwhile: a
    network, a core that no rank computes on, or other threads of this rank that go on computing.
    """
    return not farandole.context().occupies_host or torch.get_num_threads() > 1


def _apart_bytes_min() -> float:
    """Bytes from which on exchanging a gradient where autograd put it takes less than copying it to
    library-owned memory first, which all memory's bandwidth goes into where ranks occupy a host.
    The same on all ranks."""
    context = farandole.context()
    if context.reaches_all_memory:
        return APART_BYTES_MIN
    return APART_STAGED_BYTES_MIN if context.occupies_host else math.inf


class GradientExchange:
    """Watches the gradients of some parameters become ready and combines them over the ranks.

    A round is `passes` calls of backward(), of which the last one ends the exchange: when it
    returns, the gradients are those of all ranks. finish() ends a round that has had fewer. A
    parameter without a gradient, used nowhere in this rank's backward pass, takes part with zeros.
    Where gradients are sparse, every rank has to have one the first time.

    A step may have several rounds, each for all parameters. What an earlier one has left in the
    gradients is the same on all ranks, so that it may take part in an average; with other
    operations it is set aside meanwhile.

    Threads  the hooks run on the thread of the backward pass; the other calls must not overlap
             with it.
    Errors   what an allreduce failed with is raised by backward() or finish(), which then have
             ended the round.
    """

    def __init__(self, options: ExchangeOptions, passes: int) -> None:
        self.meter = Meter()
        self.passes = passes
        self.finished = False  # a round has ended, and neither a step nor a backward() begun since
        self.adopt: Callable[[], Callable[[], None] | None] = lambda: None  # called by finish()
        self._options = options
        self._groups = options.groups
        self._parameters: list[tuple[str, torch.Tensor]] = []
        self._buckets: list[Bucket] = []
        self._numbers = itertools.count()  # of buckets
        self._slots: dict[torch.Tensor, Slot] = {}
        self._bucket_of: dict[Slot, Bucket] = {}
        self._calls = 0  # of backward() that have ended in this round
        self._backward: int | None = None  # autograd's number of the call that has not ended
        self._sent = 0  # buckets on their way in this round
        self._taken: set[int] = set()  # where gradients are that travel apart, in this round
        self._sends_early = True  # buckets leave when they are ready, not all in finish()
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._lost: str | None = None  # a parameter that another exchange has taken over

    def __del__(self) -> None:
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @property
    def in_flight(self) -> bool:
        """Whether a backward() has not come to its end, or a bucket is on its way."""
        return self._sent > 0 or self._backward is not None

    @property
    def tensor_count(self) -> int:
        return len(self._slots)

    @property
    def byte_count(self) -> int:
        """Of all gradients."""
        return sum(bucket.byte_count for bucket in self._buckets)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return parameter in self._slots

    def add(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Appends buckets for more parameters and points their gradients there."""
        names = {slot.name for slot in self._slots.values()}
        added = []
        for name, parameter in parameters:
            check_tensor(parameter, f"parameter '{name}'")
            while name in names:  # of one that the optimizer has no more
                name += " anew"
            added.append((name, parameter))
        self._parameters += added
        self._make_buckets(added)
        self._sends_early = early_sends_pay()

    def keep(self, parameters: Iterable[torch.Tensor]) -> None:
        """Drops all other parameters, which the optimizer has no more. Between rounds."""
        kept = set(parameters)
        self._parameters = [named for named in self._parameters if named[1] in kept]
        for bucket in self._buckets:
            slots = [slot for slot in bucket.slots if slot.parameter in kept]
            for slot in bucket.slots:
                if slot.parameter not in kept:
                    del self._slots[slot.parameter], self._bucket_of[slot]
            if len(slots) < len(bucket.slots):
                bucket.slots, bucket.missing = slots, len(slots)
                self._bind(bucket)
        self._buckets = [bucket for bucket in self._buckets if bucket.slots]

    def regroup(self, group_count: int) -> None:
        """Makes so many groups of about equal bytes; 0: those that the options ask for.

        Between steps, on every rank alike. Gradients keep their values.
        """
        groups = group_count or self._options.groups
        if groups == self._groups:
            return
        self._groups = groups
        self._remove_hooks()
        sparse_dims = {slot.parameter: slot.sparse_dim for slot in self._slots.values()}
        self._buckets, self._slots, self._bucket_of = [], {}, {}
        self._numbers = itertools.count()
        self._make_buckets(self._parameters)
        for parameter, slot in self._slots.items():
            slot.sparse_dim = sparse_dims[parameter]

    def _make_buckets(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> None:
        apart = [named for named in parameters if self._travels_apart(named[1])]
        together = [named for named in parameters if not self._travels_apart(named[1])]
        plan = [[together[i] for i in indices] for indices in self._plan([p for _, p in together])]
        for members in [*([named] for named in reversed(apart)), *plan]:
            slots = [Slot(*named, apart=self._travels_apart(named[1])) for named in members]
            label = f"{self._options.label}.bucket.{next(self._numbers)}"
            if len(slots) == 1 and self._groups is not None and not slots[0].apart:
                label = ""  # in no group, so that the coordinator may fuse it with others
            bucket = Bucket(label, slots, missing=len(slots))
            self._bind(bucket)
            self._buckets.append(bucket)
            take_gradients(slots, set())
            for slot in slots:
                slot.show()
                self._slots[slot.parameter] = slot
                self._bucket_of[slot] = bucket
                self._watch(slot)

    def _travels_apart(self, parameter: torch.Tensor) -> bool:
        return self._groups is None and parameter.nbytes >= _apart_bytes_min()

    def _plan(self, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
        groups = self._groups
        if groups is None:
            bucket_bytes = self._options.bucket_bytes
            first_bucket_bytes = bucket_bytes if self._buckets else FIRST_BUCKET_BYTES
            sizes = [(parameter.nbytes, parameter.dtype) for parameter in parameters]
            return plan_buckets(sizes, bucket_bytes, first_bucket_bytes)
        if isinstance(groups, int):
            return plan_equal_groups([parameter.nbytes for parameter in parameters], groups)
        return plan_explicit_groups(parameters, groups)

    def _bind(self, bucket: Bucket) -> None:
        """Gives its slots memory for gradients like the parameters as they are now."""
        bucket.check()
        bucket.flats = []
        bucket.slots.sort(key=lambda slot: str(slot.parameter.dtype))
        for slot in bucket.slots:
            slot.message = self._message(slot.name)
            if slot.apart:
                slot.bind(slot.parameter.detach().new_empty(0))
                return
        for dtype, same in itertools.groupby(bucket.slots, key=lambda slot: slot.parameter.dtype):
            slots = list(same)
            lengths = [slot.parameter.numel() for slot in slots]
            flat = torch.from_numpy(farandole.empty(sum(lengths) * dtype.itemsize, "uint8"))
            flat = flat.view(dtype)
            if len(slots) > 1:
                # Its first gradient has this name, too, when it travels by itself: so ranks that
                # disagree on what is sparse, of which some send no flat, find out.
                slots[0].message += f" to {slots[-1].name}"
            bucket.flats.append(Flat(slots[0].message, flat))
            for slot, part in zip(slots, flat.split(lengths), strict=True):
                slot.bind(part.view(slot.parameter.shape))

    def _watch(self, slot: Slot) -> None:
        parameter = slot.parameter
        for hook in list((parameter._post_accumulate_grad_hooks or {}).values()):
            owner = getattr(hook, "exchange", lambda: None)()
            if owner is not None and owner is not self:
                owner._lose(parameter)
        ready = _weak_hook(self, slot, GradientExchange._gradient_ready)
        self._hooks.append(parameter.register_post_accumulate_grad_hook(ready))
        slot.identity = parameter._cdata
        if parameter.dim() > 1 or self._sets_aside:  # it may be that of an embedding
            comes = _weak_hook(self, slot, GradientExchange._gradient_comes)
            slot.kind_hook = parameter.register_hook(comes)
            self._hooks.append(slot.kind_hook)

    def _lose(self, parameter: torch.Tensor) -> None:
        """Another exchange watches `parameter` from now on."""
        self._lost = self._slots[parameter].name
        self._remove_hooks()

    def check_own(self) -> None:
        """Raises if another exchange has taken over a parameter."""
        if self._lost is not None:
            raise InvalidArgumentError(
                f"'{self._lost}' belongs to a DistributedOptimizer that was made later than this "
                "one and averages its gradients; allowed is one of them at a time: make this one "
                "again to go on with it"
            )

    def watch_again(self) -> None:
        """Renews the hooks of parameters that torch.utils.swap_tensors() has given other insides.
        Assigning a parameter's table of hooks makes it known to those."""
        for slot in self._slots.values():
            parameter = slot.parameter
            if parameter._cdata != slot.identity:
                parameter._post_accumulate_grad_hooks = parameter._post_accumulate_grad_hooks
                parameter._backward_hooks = parameter._backward_hooks
                slot.identity = parameter._cdata

    def layout(self) -> list[str]:
        """The buckets in words, the same on all ranks that can work together."""
        return [
            f"bucket {index} has '{slot.name}' of dtype {slot.parameter.dtype} and shape "
            f"{list(slot.parameter.shape)}"
            for index, bucket in enumerate(self._buckets)
            for slot in bucket.slots
        ]

    @torch.no_grad()
    def finish(self) -> None:
        """Ends the round: sends what is left, waits for all, leaves the result in the gradients.

        If one has ended already, and nothing came since, only what adopt() adds has a round.
        """
        self.check_own()
        first = len(self._buckets) if self.finished else 0
        self.meter.begin_waiting()
        self._send_rest(first)
        adopt = self.adopt()
        if adopt is not None:  # after the rest was sent: some ranks may have done that long ago
            adopt()
        self._send_rest(first)
        buckets = self._buckets[first:]
        if not buckets:
            return
        failure = first_failure([bucket.handle for bucket in buckets if bucket.handle is not None])
        if failure is not None:
            self.start_over()
            raise failure
        for bucket in buckets:
            self._receive(bucket)
        self.meter.end_step(sum(bucket.byte_count for bucket in buckets))
        self._end_round()
        self.finished = True

    def _send_rest(self, first: int) -> None:
        self._send([bucket for bucket in self._buckets[first:] if bucket.handle is None])

    def _backward_ended(self) -> None:
        """Autograd's call at the end of backward()."""
        node = torch._C._current_autograd_node()
        if node is not None:
            raise InvalidArgumentError(
                f"gradients were computed by a backward() inside of that of {node.name()}, so that "
                "nobody can tell when all are there; with torch.utils.checkpoint, pass "
                "use_reentrant=False"
            )
        self._backward = None
        changed = [
            slot.name
            for slot in self._slots.values()
            if slot.seen is not None and not slot.seen.is_still(slot.parameter.grad)
        ]
        self._calls += 1
        if self._calls >= self.passes:
            self.finish()
        else:
            for slot in self._slots.values():
                slot.seen = None
        if changed:
            raise InvalidArgumentError(
                f"the gradient of '{changed[0]}' was changed during backward() after it was ready "
                "to travel; allowed is to change it after backward(), or in a hook registered "
                "before DistributedOptimizer() was called"
            )

    def zero(self) -> None:
        """Zeroes every gradient in place."""
        for slot in self._slots.values():
            if self._travels_sparse(slot):
                slot.parameter.grad = None
            else:
                slot.zero()

    def forget(self) -> None:
        """Frees gradients that their parameters are about to let go."""
        for slot in self._slots.values():
            slot.forget()

    def start_over(self) -> None:
        """Begins a step."""
        for bucket in self._buckets:
            bucket.rounds = 0
        self._end_round()

    def _end_round(self) -> None:
        """Forgets which gradients were ready."""
        self.finished = False
        self._calls = 0
        self._backward = None
        self._sent = 0
        self._sends_early = early_sends_pay()
        self._taken.clear()
        for bucket in self._buckets:
            bucket.handle = None
            bucket.sparse = []
            bucket.missing = len(bucket.slots)
            for slot in bucket.slots:  # now, together: malloc would return each to the system, and
                slot.seen = None  # get it back page by page, if it were freed before the next

    def _travels_sparse(self, slot: Slot) -> bool:
        return slot.sparse_dim > 0 and not self._options.sparse_as_dense

    @property
    def _sets_aside(self) -> bool:
        """Whether what an exchange has left must not travel again, when a step has several."""
        return self._options.op is not Average

    def _set_aside(self, slot: Slot) -> None:
        bucket = self._bucket_of.get(slot)
        if self._sets_aside and bucket is not None and bucket.rounds > 0:
            slot.set_aside()

    def _gradient_comes(self, slot: Slot, gradient: torch.Tensor) -> None:
        """Before it is added to param.grad, where it would become dense."""
        self._set_aside(slot)
        if gradient.is_sparse and slot.sparse_dim == 0:
            slot.sparse_dim = gradient.sparse_dim()
            if self._travels_sparse(slot):
                slot.parameter.grad = None

    def _gradient_ready(self, slot: Slot, _: torch.Tensor) -> None:
        """After it was added; what is given is what the hook before this one returned."""
        gradient = slot.parameter.grad
        swapped = slot.parameter._cdata != slot.identity  # the hook is another parameter's now
        if swapped or slot not in self._bucket_of or gradient is None:
            return
        if slot.seen is not None:
            raise InvalidArgumentError(
                f"the gradient of '{slot.name}' came twice before backward() had ended: a "
                "backward() inside of it computes some (with torch.utils.checkpoint, pass "
                "use_reentrant=False), or an earlier one has failed (call synchronize() first)"
            )
        self._begin_backward()
        if slot.kind_hook is not None and slot.sparse_dim == 0 and not self._sets_aside:
            slot.kind_hook.remove()
            slot.kind_hook = None
        slot.seen = Seen.of(gradient)
        if self._calls + 1 == self.passes:
            bucket = self._bucket_of[slot]
            bucket.missing -= 1
            if bucket.missing == 0 and self._sends_early:
                self._send([bucket])

    def _begin_backward(self) -> None:
        task = torch._C._current_graph_task_id()
        if task == self._backward:
            return
        self._backward = task
        self.finished = False
        exchange = weakref.ref(self)

        def ended() -> None:
            owner = exchange()
            if owner is not None:
                owner._backward_ended()

        torch.autograd.Variable._execution_engine.queue_callback(ended)

    @torch.no_grad()
    def _send(self, buckets: Sequence[Bucket]) -> None:
        if not buckets:
            return
        if self._sent == 0:
            self.meter.begin_step()
        for bucket in buckets:
            if not bucket.is_bound:
                self._bind(bucket)
        dense = [
            [slot for slot in bucket.slots if not self._travels_sparse(slot)] for bucket in buckets
        ]
        for bucket in buckets:
            for slot in bucket.slots:
                self._set_aside(slot)
        # Of all before the first leaves: one tensor may be the gradient of two parameters.
        take_gradients([slot for slots in dense for slot in slots], self._taken)
        self._sent += len(buckets)
        for bucket, slots in zip(buckets, dense, strict=True):
            self._submit(bucket, slots)

    def _submit(self, bucket: Bucket, dense: Sequence[Slot]) -> None:
        """All as one group, whatever is sparse: where ranks do not agree on that, each has asked
        for everything when it fails, and reads in the error how they differ."""
        options = self._options
        # Adasum combines each gradient by itself.
        whole = len(dense) == len(bucket.slots) and options.op is not Adasum
        tasks: list[Task[Any]] = [
            self._task(each) for each in (bucket.flats if whole and bucket.flats else dense)
        ]
        label = bucket.label
        if label and bucket.rounds > 0:
            label += " again in a step"  # a rank that has another backward() less finds out
        for slot in bucket.slots:
            if self._travels_sparse(slot):
                gradient = slot.sparse_gradient()
                combined = sparse_sum(gradient, slot.message, options.op, options.process_set)
                bucket.sparse.append((slot, combined))
                tasks += combined.tasks
                label += f"{' with ' if label else ''}sparse {combined.label}"
        bucket.handle = start_group(tasks, options.process_set, label)

    def _message(self, name: str) -> str:
        return f"{self._options.label}.grad.{name}"

    def _task(self, place: Slot | Flat) -> Task[torch.Tensor]:
        task = reusable(place)
        if task is not None:
            return task
        options, view = self._options, place.view
        compressed, context = options.compression.compress(view)
        sent = view if compressed is view else readable(compressed, place.message)
        task = allreduce_task(sent, sent, sent, options.op, options.scaling, place.message)
        if sent is view:
            if options.compression is Compressor and task.source is task.target is view:
                place.task = task
            return task
        return replace(
            task,
            finish=lambda submission: view.copy_(
                options.compression.decompress(task.finish(submission), context)
            ),
        )

    def _receive(self, bucket: Bucket) -> None:
        if bucket.sparse and bucket.handle is not None:
            gathered = bucket.handle.wait()[-2 * len(bucket.sparse) :]
            for index, (slot, combined) in enumerate(bucket.sparse):
                slot.parameter.grad = combined.result(gathered[2 * index : 2 * index + 2])
        bucket.rounds += 1
        for slot in bucket.slots:
            if slot.sparse_dim == 0 or not slot.parameter.requires_grad:
                slot.show()
            elif self._options.sparse_as_dense:
                slot.parameter.grad = slot.view.to_sparse(slot.sparse_dim)
            slot.add_base()


def _weak_hook(
    exchange: GradientExchange,
    slot: Slot,
    method: Callable[[GradientExchange, Slot, torch.Tensor], None],
) -> Callable[[torch.Tensor], None]:
    """A hook that does not keep `exchange`, which removes it from its parameter when it goes."""
    reference = weakref.ref(exchange)

    def hook(tensor: torch.Tensor) -> None:
        owner = reference()
        if owner is not None:
            method(owner, slot, tensor)

    hook.exchange = reference  # type: ignore[attr-defined]
    return hook
