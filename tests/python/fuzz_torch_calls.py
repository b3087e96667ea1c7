# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Random calls of farandole.torch, good and bad, and what NumPy says must come of the good ones.

As in fuzz_calls.py, every rank draws from a seed and a number what all ranks give. Values are small
whole numbers, held as int64, float64 or complex128, in which sums and products of all ranks are
exact; so they are in every dtype, but for averages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch

import farandole.torch as hvd
from farandole import _native
from farandole.torch.tasks import _DTYPES

Array = np.ndarray[Any, Any]

EVERY_DTYPE = sorted({x for x in vars(torch).values() if isinstance(x, torch.dtype)}, key=str)
DTYPES = [dtype for dtype in EVERY_DTYPE if dtype in _DTYPES]
REFUSED = [dtype for dtype in EVERY_DTYPE if dtype not in _DTYPES]
MOVED_ONLY = (torch.float8_e4m3fn, torch.float8_e5m2)
UNSIGNED = (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
REDUCING = ("allreduce", "reducescatter")
DIVIDED = ("reducescatter", "alltoall")
FUNCTIONS = [
    *("allreduce", "allreduce_async", "allreduce_", "allreduce_async_"),
    *("grouped_allreduce", "grouped_allreduce_async"),
    *("grouped_allreduce_", "grouped_allreduce_async_"),
    *("allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"),
    *("broadcast", "broadcast_async", "broadcast_", "broadcast_async_"),
    *("alltoall", "alltoall_async", "alltoall", "alltoall_async"),
    *("reducescatter", "reducescatter_async"),
    *("grouped_reducescatter", "grouped_reducescatter_async"),
]
# Memory that holds the same numbers in other ways; the odd ones cannot be worked on in place.
LAYOUTS = ("plain", "subclass", "inference", "requires grad", "inside")
ODD_LAYOUTS = ("transposed", "sliced", "expanded", "conjugate")
MARGIN = 16

NO_TENSORS = (None, [1.0], "tensor", 3, np.ones(3), (torch.ones(2),))
NO_LISTS = (None, "tensors", 3, torch.ones(2), {"a": torch.ones(2)}, [None], [torch.ones(2), 3])
NO_OPS = ("sum", 0, 3, torch.sum, [hvd.Sum])
NO_FACTORS = ("two", None, 1j, [1.0, 2.0], torch.ones(2))
NO_NAMES = (3, b"x", 1.5, ["name"])
NO_SETS = (None, "global", 0, [0, 1], hvd.ProcessSet([0]))  # the last one is not in use
NO_ROOTS = (-1, 99, 2**70, 1.0, "0", None, [0], torch.ones(2))
NO_SPLITS = ("splits", 3, [], [1.0], ["1"], [-1], [2**62], [None], torch.ones(2), torch.tensor(1))


@dataclass
class Given:
    """One tensor of every rank."""

    dtype: torch.dtype
    values: list[Array]  # by position in the set
    layout: str = "plain"


@dataclass
class TorchCall:
    """One call of all ranks of a set."""

    function: str
    size: int  # of the set
    members: list[int]  # its ranks in the job
    tensors: list[Given] = field(default_factory=list)
    op: hvd.ReduceOp = hvd.Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0  # in the set
    splits: list[list[int]] | None = None  # [from][to]
    splits_tensor: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, Any] = field(default_factory=dict)  # arguments that replace right ones
    flaws: list[str] = field(default_factory=list)
    may_refuse = False

    @property
    def kind(self) -> str:
        return self.function.removeprefix("grouped_").split("_")[0]

    @property
    def grouped(self) -> bool:
        return self.function.startswith("grouped_")

    @property
    def in_place(self) -> bool:
        return self.function.endswith("_")

    def __str__(self) -> str:
        each = [(t.dtype, [v.shape for v in t.values], t.layout) for t in self.tensors]
        return (
            f"{self.function} of ranks {self.members} {each} {self.op} x{self.prescale} "
            f"x{self.postscale} root={self.root} splits={self.splits} {self.options} "
            f"flaws={self.flaws} {_described(self.broken)}"
        )


def _described(given: Any) -> str:
    """As repr(), which fails for tensors of some dtypes."""
    if isinstance(given, dict):
        return ", ".join(f"{name}={_described(value)}" for name, value in given.items())
    if isinstance(given, list):
        return f"[{', '.join(map(_described, given))}]"
    if isinstance(given, torch.Tensor):
        return f"{given.layout} {given.device} {given.dtype}{list(given.shape)}"
    return repr(given)


def reducible(dtype: torch.dtype, op: hvd.ReduceOp) -> bool:
    if dtype in MOVED_ONLY:
        return False
    if op in (hvd.Min, hvd.Max):
        return not dtype.is_complex
    if op is hvd.Adasum:
        return dtype.is_floating_point
    return dtype is not torch.bool or op not in (hvd.Average, hvd.ActiveAverage)


def drawn(seed: int, number: int, job_size: int) -> TorchCall:
    """The call with this number."""
    random = Random(f"torch-{seed}-{number}")
    part = job_size > 2 and random.random() < 0.2
    members = list(range(1 if part else 0, job_size))
    call = TorchCall(random.choice(FUNCTIONS), len(members), members)
    if call.kind in REDUCING:
        _choose_reduction(random, call)
    call.root = random.randrange(call.size)
    if call.kind == "alltoall" and random.random() < 0.6:
        counts = (0, 1, 2, 9)
        call.splits = [[random.choice(counts) for _ in members] for _ in members]
        call.splits_tensor = random.random() < 0.4
    count = random.choice((0, 1, 1, 2, 3)) if call.grouped else 1
    call.tensors = [_tensor(random, call) for _ in range(count)]
    if random.random() < 0.3:
        call.options["name"] = random.choice(("gradient", "", None))
    if random.random() < 0.25:
        _spoil(random, call)
    return call


def _choose_reduction(random: Random, call: TorchCall) -> None:
    ops = [op for op in hvd.ReduceOp if op is not hvd.Adasum or call.kind == "allreduce"]
    call.op = random.choice(ops)
    if call.op is hvd.Product:
        call.postscale = random.choice((1.0, 2.0, 3, 0.5))
    elif random.random() < 0.5:
        call.prescale = random.choice((1.0, 2.0, True, 0.5))
        call.postscale = random.choice((1.0, 2.0, 3, 0.25))
    if random.random() < 0.1 and call.op in (hvd.Sum, hvd.Average) and call.kind == "allreduce":
        call.options["average"] = call.op is hvd.Average


def _tensor(random: Random, call: TorchCall) -> Given:
    fitting = [d for d in DTYPES if call.kind not in REDUCING or reducible(d, call.op)]
    dtype = random.choice(fitting)
    tail = tuple(random.choice((0, 1, 2, 3, 5)) for _ in range(random.choice((0, 0, 1, 2))))
    rows = random.choice((0, 1, 2, 3, 7, 400))
    by_rank = [rows] * call.size
    if call.kind == "allgather" and random.random() < 0.5:
        by_rank = [random.choice((0, 1, 2, 40)) for _ in by_rank]
    if call.kind == "alltoall":
        by_rank = [rows * call.size] * call.size
        if call.splits is not None:
            left_over = random.choice((0, 0, 2))
            by_rank = [sum(row) + left_over for row in call.splits]
    shapes = [(own, *tail) for own in by_rank]
    if call.kind in ("allreduce", "broadcast") and random.random() < 0.15:
        shapes = [()] * call.size
    given = Given(dtype, [_values(random, dtype, shape, call.op) for shape in shapes])
    if call.op is hvd.Adasum and call.kind in REDUCING:
        given.values = [given.values[0]] * call.size  # of equal vectors the result is theirs
    given.layout = random.choice(LAYOUTS if call.in_place else (*LAYOUTS, *ODD_LAYOUTS))
    return _possible(given)


def _possible(given: Given) -> Given:
    """With a layout that there is for this dtype."""
    fractional = given.dtype.is_floating_point or given.dtype.is_complex
    if given.layout == "requires grad" and (not fractional or given.dtype in MOVED_ONLY):
        given.layout = "plain"
    if given.layout == "conjugate" and not given.dtype.is_complex:
        given.layout = "transposed"
    if given.layout == "expanded":
        given.values = [
            np.repeat(value[:1], len(value), axis=0) if value.ndim else value
            for value in given.values
        ]
    return given


def _values(random: Random, dtype: torch.dtype, shape: tuple[int, ...], op: hvd.ReduceOp) -> Array:
    """From -3 to 3, and 1 or 2 for a product."""
    low, high = (0 if dtype in UNSIGNED else -3), (1 if dtype is torch.bool else 3)
    if op is hvd.Product and dtype is not torch.bool:
        low, high = 1, 2
    wide = _wide(dtype)
    numbers = np.array([random.randint(low, high) for _ in range(int(np.prod(shape)))], np.int64)
    values = numbers.reshape(shape).astype(wide)
    return (
        np.asarray(values * (1 + 1j)) if wide == np.complex128 and op is not hvd.Product else values
    )


def _wide(dtype: torch.dtype) -> Any:
    if dtype.is_complex:
        return np.complex128
    return np.float64 if dtype.is_floating_point else np.int64


def _spoil(random: Random, call: TorchCall) -> None:
    """Makes something wrong, on every rank."""
    pools: dict[str, tuple[Any, ...]] = {"name": NO_NAMES, "process_set": NO_SETS}
    flaws = ["tensor", "dtype", "device", "sparse", *pools]
    if call.kind in REDUCING:
        pools |= {"op": NO_OPS, "prescale_factor": NO_FACTORS, "postscale_factor": NO_FACTORS}
        flaws += ["op", "prescale_factor", "postscale_factor", "unreducible"]
    if call.kind == "allreduce":
        flaws.append("op twice")
    if call.kind == "reducescatter":
        pools["op"] = (*NO_OPS, hvd.Adasum)
    if call.kind == "broadcast":
        pools["root_rank"] = NO_ROOTS
        flaws.append("root_rank")
    if call.kind == "alltoall":
        pools["splits"] = NO_SPLITS
        flaws += ["splits", "too many rows"]
    if call.kind in (*DIVIDED, "allgather"):
        flaws.append("scalar")
    if call.in_place:
        flaws.append("layout")
    flaw = random.choice(flaws)
    call.flaws = [flaw]
    if flaw == "op twice":
        call.broken |= {"average": True, "op": hvd.Sum}
    elif flaw == "too many rows":
        call.broken["splits"] = [2**20] * call.size
    elif flaw == "splits" and call.size == 1:
        call.broken["splits"] = random.choice(("splits", [], [1.0], [-1], [1, 1]))
    elif flaw in pools:
        call.broken[flaw] = random.choice(pools[flaw])
        if "scale" in flaw:
            call.options.pop("average", None)
    else:
        _spoil_tensor(random, call, flaw)


def _spoil_tensor(random: Random, call: TorchCall, flaw: str) -> None:
    bad: Any = None
    if flaw == "tensor" and call.grouped:
        call.broken["tensors"] = random.choice(NO_LISTS)
        return
    if flaw == "tensor":
        bad = random.choice(NO_TENSORS)
    elif flaw == "dtype":
        bad = torch.empty((call.size, 2), dtype=random.choice(REFUSED))
    elif flaw == "device":
        bad = torch.empty((call.size, 2), device="meta")
    elif flaw == "sparse":
        bad = torch.eye(call.size)
        bad = random.choice((bad.to_sparse(), bad.to_sparse_csr(), bad.to_mkldnn()))
    elif flaw == "scalar":
        bad = torch.tensor(1.0)
    elif flaw == "layout":
        square = torch.ones(4, 4)
        odd = (square.t()[1:], square[:, ::2], torch.ones(1).expand(4), torch.ones(4) * 1j)
        bad = random.choice((*odd[:3], odd[3].conj()))
    elif flaw == "unreducible":
        bad = torch.zeros((call.size, 2)).to(random.choice(MOVED_ONLY))
    # A good tensor beside a bad one in a group: nothing of the group may be left in flight.
    beside = [torch.ones(call.size)] if random.random() < 0.5 else []
    call.broken.update({"tensors": [*beside, bad]} if call.grouped else {"tensor": bad})


class Side:
    """What one rank gives to a call, and what must come back."""

    def __init__(self, call: TorchCall, rank: int) -> None:
        self.call = call
        self.takes_part = rank in call.members
        self.rank = call.members.index(rank) if self.takes_part else -1
        self.inputs: list[torch.Tensor] = []
        self.around: list[torch.Tensor] = []
        for given in call.tensors if self.takes_part else ():
            tensor, memory = _held(given, self.rank)
            self.inputs.append(tensor)
            self.around += [] if memory is None else [memory]

    def run(self, target: Target) -> Any:
        """Calls, and waits."""
        call = self.call
        result = getattr(hvd, call.function)(**self._arguments(target))
        return hvd.synchronize(result) if "_async" in call.function else result

    def _arguments(self, target: Target) -> dict[str, Any]:
        call = self.call
        arguments: dict[str, Any] = {"process_set": target.of(call.members), **call.options}
        arguments |= {"tensors": self.inputs} if call.grouped else {"tensor": self.inputs[0]}
        if call.kind in REDUCING:
            arguments |= {"prescale_factor": call.prescale, "postscale_factor": call.postscale}
            if "average" not in call.options:
                arguments["op"] = call.op
        if call.kind == "broadcast":
            arguments["root_rank"] = call.members[call.root]
        if call.splits is not None:
            own = call.splits[self.rank]
            arguments["splits"] = torch.tensor(own) if call.splits_tensor else own
        if "op" in call.broken:
            arguments.pop("average", None)
        return arguments | call.broken

    def verdict(self, result: Any) -> str:
        """What is wrong with it; nothing if it is right."""
        call = self.call
        if call.kind == "alltoall" and (call.splits is not None or "_async" in call.function):
            result, came = result
            splits = call.splits or [[len(value) // call.size] * call.size
                                     for value in call.tensors[0].values]  # fmt: skip
            expected = [row[self.rank] for row in splits]
            if came.tolist() != expected:
                return f"got splits {came}, expected {expected}"
        results = result if call.grouped else [result]
        if len(results) != len(self.inputs):
            return f"got {len(results)} results"
        found = (self._difference(*each) for each in zip(results, call.tensors, self.inputs,
                                                         strict=True))  # fmt: skip
        return "; ".join(filter(None, found))

    def _difference(self, result: torch.Tensor, given: Given, source: torch.Tensor) -> str:
        call = self.call
        if call.in_place:
            if result is not source:
                return "the result is not the tensor that was given"
        else:
            if result.numel() and result.data_ptr() == source.data_ptr():
                return "the result shares the memory of what was given"
            differentiable = given.layout == "requires grad" and "_async" not in call.function
            if differentiable and not result.requires_grad:
                return "no gradient flows to what was given"
        expected = expected_of(call, given, self.rank)
        if result.dtype is not given.dtype or tuple(result.shape) != expected.shape:
            return f"got {result.dtype}{list(result.shape)}, expected {expected.shape}"
        close = 0.0
        if given.dtype.is_floating_point or given.dtype.is_complex:
            close = 8 * torch.finfo(given.dtype).eps
        if not np.allclose(_numbers(result), expected, rtol=close, atol=0):
            return f"got {result}, expected {expected.tolist()}"
        return ""

    def untouched(self) -> bool:
        """Whether memory around inputs, and inputs that are not results, are as they were."""
        edges = [torch.cat([each[:MARGIN], each[-MARGIN:]]) for each in self.around]
        if not all((_numbers(edge) == 1).all() for edge in edges):
            return False
        if self.call.in_place and not self.call.flaws:
            return True
        return all(
            (_numbers(tensor) == given.values[self.rank]).all()
            for tensor, given in zip(self.inputs, self.call.tensors, strict=True)
        )


def _numbers(tensor: torch.Tensor) -> Array:
    """Its values in a dtype that NumPy computes with."""
    wide = {np.int64: torch.int64, np.float64: torch.float64, np.complex128: torch.complex128}
    return tensor.detach().to(wide[_wide(tensor.dtype)]).resolve_conj().numpy()


def _held(given: Given, rank: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The rank's tensor, and if it lies in the middle of other memory, that."""
    value = torch.from_numpy(given.values[rank].copy()).to(given.dtype)
    layout, dtype = given.layout, given.dtype
    if layout == "inference":
        with torch.inference_mode():
            return value.clone(), None
    if layout == "requires grad":
        return value.requires_grad_(), None
    if layout == "subclass":
        return torch.nn.Parameter(value, requires_grad=False), None
    if layout == "inside":
        memory = torch.ones(value.numel() + 2 * MARGIN).to(dtype)
        part = memory[MARGIN : MARGIN + value.numel()].view(value.shape)
        part.copy_(value)
        return part, memory
    if layout == "transposed":
        return value.mT.contiguous().mT if value.dim() > 1 else value, None
    if layout == "sliced":
        wide = torch.zeros((*value.shape, 2)).to(dtype)
        wide[..., 1] = value
        return wide[..., 1], None
    if layout == "expanded" and value.dim() and value.shape[0]:
        return value[:1].expand(value.shape), None
    if layout == "conjugate":
        return value.conj().resolve_conj().conj(), None
    return value, None


def expected_of(call: TorchCall, given: Given, rank: int) -> Array:
    values = given.values
    if call.kind == "broadcast":
        return values[call.root]
    if call.kind == "allgather":
        return np.concatenate(values)
    if call.kind == "alltoall":
        parts = []
        for source, value in enumerate(values):
            rows = call.splits[source] if call.splits else [len(value) // call.size] * call.size
            start = sum(rows[:rank])
            parts.append(value[start : start + rows[rank]])
        return np.concatenate(parts)
    whole = _reduced(call, given)
    return np.array_split(whole, call.size)[rank] if call.kind == "reducescatter" else whole


def _reduced(call: TorchCall, given: Given) -> Array:
    op, post = call.op, float(call.postscale)
    parts = np.stack([_scaled(value, call.prescale, given.dtype) for value in given.values])
    if op is hvd.Adasum:
        return _scaled(parts[0], post, given.dtype)
    if op in (hvd.Average, hvd.ActiveAverage):
        post /= call.size
    by_op: dict[hvd.ReduceOp, np.ufunc] = {
        hvd.Min: np.minimum,
        hvd.Max: np.maximum,
        hvd.Product: np.multiply,
    }
    whole = np.asarray(by_op.get(op, np.add).reduce(parts, axis=0))
    return _scaled(_held_as(whole, given.dtype), post, given.dtype)


def _scaled(values: Array, factor: float, dtype: torch.dtype) -> Array:
    """Of whole numbers rounded toward zero."""
    product = np.asarray(values * float(factor))
    if _wide(dtype) != np.int64:
        return product
    return _held_as(np.asarray(np.trunc(product + np.sign(product) * 1e-9)).astype(np.int64), dtype)


def _held_as(values: Array, dtype: torch.dtype) -> Array:
    """True is all but zero."""
    return np.asarray(values != 0).astype(np.int64) if dtype is torch.bool else values


class Target:
    """Of one rank: the set of all ranks, and one without rank 0. Collective.

    Ranks are threads here, which process-wide sets cannot tell from each other."""

    def __init__(self, context: _native.Context) -> None:
        size = context.world.size
        self._sets: dict[tuple[int, ...], hvd.ProcessSet] = {}
        for first in (0, 1)[: 2 if size > 2 else 1]:
            ranks = list(range(first, size))
            group = context.world.group(ranks)
            if group is not None:
                opened = hvd.ProcessSet(ranks)
                opened._open(_native.Coordinator.create(context, group), first + 1)
                self._sets[tuple(ranks)] = opened

    def of(self, members: list[int]) -> hvd.ProcessSet:
        return self._sets[tuple(members)]

    def close(self) -> None:
        """When all ranks are through."""
        for each in self._sets.values():
            hvd.barrier(each)
        for each in self._sets.values():
            each._close()
