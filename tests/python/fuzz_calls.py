# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Random calls of Communicator, good and bad, and what NumPy says must come of the good ones.

A call is drawn from a seed and a number alone, so that every rank draws what all ranks give.
"""

from __future__ import annotations

import array as standard_array
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from farandole import Recv, Send, _native
from farandole.core.arrays import numpy_dtype
from farandole.core.communicator import Communicator

Array = np.ndarray[Any, Any]

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
REDUCING = ("allreduce", "reduce", "reducescatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
DIVIDED = ("reducescatter", "scatter", "alltoall")
COLLECTIVES = (*REDUCING, "broadcast", "allgather", "gather", "scatter", "alltoall")
MESSAGES = ("sendrecv", "batch", "send to itself")
WHOLE_OPS = ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")
ALGORITHMS = ("ring", "direct", "recursive_doubling", "pairwise", "binomial_tree", "rabenseifner")
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "average": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    **{name: getattr(np, name) for name in WHOLE_OPS},
}

FLAWED_OBJECTS = ("strided", "backwards", "big-endian", "object", "masked", "list", "extended")
BAD_ROOTS = (-1, 99, 2**40, 1.5, "0", None)
BAD_OPS = ("smu", "", None, 3, ["sum"])
BAD_NAMES = (3, b"x", 1.5)
BAD_ALGORITHMS = ("teleport", "ring:chunks=-1", 7, "hierarchical:layers=0")
BAD_FACTORS = ("2", None, 1j, [1.0])


def reducible(dtype: str, op: str) -> bool:
    """As in semantics.md: bits and truth of whole numbers, order of what has one."""
    if op in ("sum", "product"):
        return True
    if op == "average":
        return dtype != "bool"
    if op in ("min", "max"):
        return "complex" not in dtype
    return dtype == "bool" or dtype in INTEGERS


@dataclass
class Call:
    """One call of all ranks."""

    method: str
    dtype: str
    shapes: list[tuple[int, ...]]  # of each rank's array
    values: list[Array]
    size: int
    op: str = "sum"
    root: int = 0
    counts: list[int] | None = None
    splits: list[list[int]] | None = None  # [from][to]
    asynchronous: bool = False
    how: str = "plain"  # what kind of object holds the array
    out: str = "none"
    options: dict[str, Any] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)
    may_refuse: bool = False  # an algorithm need not take it

    def __str__(self) -> str:
        return (
            f"{self.method} {self.dtype} {self.shapes} op={self.op!r} root={self.root!r} "
            f"counts={self.counts} splits={self.splits} {self.options} array={self.how} "
            f"out={self.out} flaws={self.flaws}"
        )


def _values(random: Random, dtype: str, shape: tuple[int, ...], op: str) -> Array:
    """Small whole numbers, whose sums and products of four ranks are exact in every dtype."""
    count = int(np.prod(shape))
    top = 2 if op == "product" or dtype == "bool" else 8
    low = 1 if op == "product" else 0
    numbers = [random.randrange(low, max(top, low + 2)) for _ in range(count)]
    return np.array(numbers, np.int64).reshape(shape).astype(numpy_dtype(dtype))


def drawn(seed: int, number: int, size: int) -> Call:
    """The call with this number."""
    random = Random(f"{seed}-{number}")
    method = random.choice((*COLLECTIVES, *COLLECTIVES, *MESSAGES, "barrier"))
    dtype = random.choice(DTYPES)
    ops = [op for op in UFUNCS if reducible(dtype, op)] if method in REDUCING else ["sum"]
    op = random.choice(ops)
    tail = tuple(random.choice((0, 1, 2, 3, 5)) for _ in range(random.choice((0, 0, 1, 2))))
    rows = random.choice((0, 1, 2, 3, 7, 700))
    lengths = [rows] * size
    call = Call(method, dtype, [], [], size, op)
    if method in ("reducescatter", "allgather", "gather", "scatter") and random.random() < 0.4:
        call.counts = lengths = [random.choice((0, 1, 2, 3, 40)) for _ in range(size)]
    if method == "alltoall" and random.random() < 0.5:
        call.splits = [[random.choice((0, 1, 2, 9)) for _ in range(size)] for _ in range(size)]
    call.shapes = [(_rows(call, lengths, rank), *tail) for rank in range(size)]
    if method not in DIVIDED and call.counts is None and random.random() < 0.1:
        call.shapes = [()] * size
    call.values = [_values(random, dtype, shape, op) for shape in call.shapes]
    call.root = random.randrange(size)
    call.asynchronous = random.random() < 0.3
    _choose_objects(random, call)
    if random.random() < 0.2:
        call.options["name"] = random.choice(("gradient", "", None))
    if method in COLLECTIVES and random.random() < 0.2:
        call.options["algorithm"] = random.choice(ALGORITHMS)
        call.may_refuse = True
    if method in REDUCING and random.random() < 0.1:
        call.options["deterministic"] = True
    if random.random() < 0.3:
        _spoil(random, call)
    return call


def _rows(call: Call, lengths: list[int], rank: int) -> int:
    if call.splits is not None:
        return sum(call.splits[rank])
    return sum(lengths) if call.method in DIVIDED else lengths[rank]


def _choose_objects(random: Random, call: Call) -> None:
    """How the array is held, and where the result goes."""
    kinds = ["plain"] * 4 + ["read-only", "subclass", "unaligned"]
    if call.dtype not in ("bfloat16",):
        kinds.append("memoryview")
    if call.dtype in ("float64", "int16") and all(len(shape) == 1 for shape in call.shapes):
        kinds.append("array.array")
    if call.shapes[0] == () and call.dtype != "bfloat16":
        kinds.append("scalar")
    call.how = random.choice(kinds)
    call.out = random.choice(("none", "none", "right", "right", "library"))
    same_shape = call.method in ("allreduce", "broadcast", "reduce")
    if same_shape and call.how == "plain" and random.random() < 0.3:
        call.out = "same"


def _spoil(random: Random, call: Call) -> None:
    """Makes something wrong, on every rank."""
    flaws = ["name"]
    if call.method != "barrier":
        flaws += FLAWED_OBJECTS
    if call.method in ("allreduce", "broadcast", "allgather", "reducescatter", "alltoall"):
        flaws += ["out of shape", "out of dtype", "out read-only", "out strided", "out a list"]
    if call.method in ROOTED:
        flaws.append("root")
    if call.method in REDUCING:
        flaws += ["op", "factor", "unreducible"]
    if call.method in COLLECTIVES:
        flaws.append("algorithm")
    if call.method in ("reducescatter", "allgather", "alltoall") and call.shapes[0] != ():
        flaws += ["counts too few", "counts negative", "counts of text", "counts too large"]
    call.flaws = [random.choice(flaws)]
    flaw = call.flaws[0]
    pools: dict[str, tuple[Any, ...]] = {"root": BAD_ROOTS, "op": BAD_OPS}
    if flaw in pools:
        setattr(call, flaw, random.choice(pools[flaw]))
    elif flaw == "unreducible":
        call.op = "average" if call.dtype == "bool" else "bitwise_xor"
        if reducible(call.dtype, call.op):
            call.flaws = []
    elif flaw in ("name", "algorithm", "factor"):
        bad: dict[str, tuple[Any, ...]] = {
            "name": BAD_NAMES,
            "algorithm": BAD_ALGORITHMS,
            "factor": BAD_FACTORS,
        }
        call.options[flaw] = random.choice(bad[flaw])
    call.out = flaw if flaw.startswith("out") else "none"
    if flaw in FLAWED_OBJECTS:
        call.how = flaw
    _forget_harmless(call)


def _forget_harmless(call: Call) -> None:
    """Drops flaws that make no difference to this array."""
    dtype = numpy_dtype(call.dtype)
    harmless = {
        "strided": any(np.prod(each) < 2 or not each for each in call.shapes),
        "backwards": any(not each or each[0] < 2 or np.prod(each) == 0 for each in call.shapes),
        "big-endian": dtype.itemsize == 1 or call.dtype in ("bfloat16",),
        "out strided": call.counts is not None
        or any(np.prod(each) < 2 * call.size for each in call.shapes),
        "extended": False,
    }
    if call.flaws and harmless.get(call.flaws[0]):
        call.flaws, call.how = [], "plain"
        if call.out == "out strided":
            call.out = "none"


class Target:
    """What a rank's calls go to."""

    def __init__(self, context: _native.Context) -> None:
        self.communicator = Communicator(context.world)

    def close(self) -> None:
        """The context ends it."""


class Side:
    """What one rank gives to a call, and what must come back."""

    def __init__(self, call: Call, rank: int) -> None:
        self.call = call
        self.rank = rank
        self.takes_part = True
        self.value = call.values[rank]
        self.array = _held(self.value, call.how)
        self.around: Array | None = None
        self.out = self._target()

    def expected(self) -> Array | None:
        """None where this rank gets nothing."""
        call, values, rank = self.call, self.call.values, self.rank
        at_root = rank == call.root
        if call.method in ("allreduce", "reduce", "reducescatter"):
            whole = _reduced(values, call.op)
            if call.method == "reducescatter":
                return _blocks(whole, call.counts, call.size)[rank]
            return whole if call.method == "allreduce" or at_root else None
        if call.method == "broadcast":
            return values[call.root]
        if call.method in ("allgather", "gather"):
            rows = [value.reshape(1) if value.ndim == 0 else value for value in values]
            return np.concatenate(rows) if call.method == "allgather" or at_root else None
        if call.method == "scatter":
            return _blocks(values[call.root], call.counts, call.size)[rank]
        if call.method == "alltoall":
            parts = [
                _blocks(value, call.splits[source] if call.splits else None, call.size)[rank]
                for source, value in enumerate(values)
            ]
            return np.concatenate(parts)
        if call.method in MESSAGES:
            source = rank if call.method == "send to itself" else (rank - 1) % call.size
            return values[source]
        return None

    def _target(self) -> Any:
        kind = self.call.out
        if kind == "same":
            return self.array
        if kind == "none" and self.call.method not in MESSAGES:
            return None
        found = None if self.call.flaws else self.expected()
        return self._target_of(kind, self.value if found is None else found)

    def _target_of(self, kind: str, like: Array) -> Any:
        if kind == "out of shape":
            # As of nothing that any call gives: a scalar of each rank makes a row of so many.
            return np.empty((*like.shape, 7, 7), like.dtype)
        if kind == "out of dtype":
            return np.empty(like.shape, np.int8 if like.dtype != np.int8 else np.uint8)
        if kind == "out read-only":
            fixed = np.zeros(like.shape, like.dtype)
            fixed.flags.writeable = False
            return fixed
        if kind == "out strided":
            return _held(like, "strided")
        if kind == "out a list":
            return like.tolist() if like.ndim else [0]
        # In the middle of more memory, which must not change.
        margin = 64
        self.around = np.full(like.nbytes + 2 * margin, 0xA5, np.uint8)
        return self.around[margin : margin + like.nbytes].view(like.dtype).reshape(like.shape)

    def run(self, target: Target) -> Any:
        """Calls, and waits."""
        call, comm = self.call, target.communicator
        name = call.method + ("_async" if call.asynchronous else "")
        options = dict(call.options)
        if call.method == "barrier":
            result = getattr(comm, name)(**options)
        elif call.method in MESSAGES:
            result = self._exchange(comm, options)
        else:
            result = getattr(comm, name)(self._input(), self.out, **self._arguments(), **options)
        if call.asynchronous:
            result = result.wait()
        return result[0] if call.method in ("batch", "send to itself") else result

    def _input(self) -> Any:
        # Away from the root `out` says enough.
        absent = self.call.method == "scatter" and self.rank != self.call.root
        return None if absent and self.out is not None and not self.call.flaws else self.array

    def _arguments(self) -> dict[str, Any]:
        call = self.call
        arguments: dict[str, Any] = {}
        if call.method in REDUCING:
            arguments["op"] = call.op
        if call.method in ROOTED:
            arguments["root"] = call.root
        bad = _bad_counts(call)
        if call.splits is not None or (bad is not None and call.method == "alltoall"):
            splits = call.splits or [[0] * call.size] * call.size
            arguments["send_counts"] = splits[self.rank] if bad is None else bad
            arguments["recv_counts"] = [row[self.rank] for row in splits]
        elif call.counts is not None or bad is not None:
            arguments["counts"] = call.counts if bad is None else bad
        return arguments

    def _exchange(self, comm: Communicator, options: dict[str, Any]) -> Any:
        size, rank = self.call.size, self.rank
        to, source = (rank + 1) % size, (rank - 1) % size
        if self.call.method == "send to itself":
            to = source = rank
        if self.call.method == "sendrecv":
            method = comm.sendrecv_async if self.call.asynchronous else comm.sendrecv
            return method(self.array, to, self.out, source, **options)
        batch: Callable[..., Any] = comm.batch_async if self.call.asynchronous else comm.batch
        return batch([Recv(self.out, source), Send(self.array, to)], **options)

    def verdict(self, result: Any) -> str:
        """What is wrong with it; nothing if it is right."""
        expected = self.expected()
        if expected is None:
            return "" if result is None else f"got {result!r} instead of nothing"
        if self.out is not None and result is not self.out:
            return "the result is not the array that was given"
        if self.call.how == "scalar" and self.out is None and expected.shape == ():
            if not isinstance(result, np.generic):
                return f"got a {type(result).__name__} for a scalar"
        elif not isinstance(result, np.ndarray):
            return f"got a {type(result).__name__}"
        found = np.asarray(result)
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"got {found.dtype}{found.shape}, expected {expected.dtype}{expected.shape}"
        wide = np.complex128 if "complex" in self.call.dtype else np.float64
        if not np.allclose(found.astype(wide), expected.astype(wide), rtol=0.01, atol=0):
            return f"got {found.tolist()}, expected {expected.tolist()}"
        return ""

    def untouched(self) -> bool:
        """Whether the memory around `out`, and the input, are as they were."""
        if self.around is not None:
            edges = np.concatenate([self.around[:64], self.around[-64:]])
            if not (edges == 0xA5).all():
                return False
        if self.call.out == "same" or self.call.how in FLAWED_OBJECTS:
            return True
        return bool((np.asarray(self.array) == self.value).all())


def _bad_counts(call: Call) -> Any:
    flaw = call.flaws[0] if call.flaws else ""
    return {
        "counts too few": [1] * (call.size + 1),
        "counts negative": [-1, *[1] * (call.size - 1)],
        "counts of text": ["1"] * call.size,
        "counts too large": [2**62] * call.size,
    }.get(flaw)


def _reduced(values: list[Array], op: str) -> Array:
    dtype = values[0].dtype
    if op == "average":
        wide = np.complex128 if dtype.kind == "c" else np.float64
        mean = np.sum([value.astype(wide) for value in values], axis=0) / len(values)
        whole = dtype.kind in "iu"
        return np.asarray(np.trunc(mean) if whole else mean).astype(dtype)
    if len(values) == 1 and op != "average":
        return values[0]  # as of MPI: a logical reduction of one rank leaves its numbers
    if op.startswith("logical"):
        return np.asarray(UFUNCS[op].reduce(np.stack(values) != 0, axis=0)).astype(dtype)
    stacked = np.stack(values)
    return np.asarray(UFUNCS[op].reduce(stacked, axis=0, dtype=dtype))


def _blocks(whole: Array, counts: list[int] | None, size: int) -> list[Array]:
    rows = counts or [whole.shape[0] // size] * size
    ends = np.cumsum(rows)
    return [whole[end - count : end] for end, count in zip(ends, rows, strict=True)]


class Named(np.ndarray):  # type: ignore[type-arg]
    """A subclass."""


def _held(value: Array, how: str) -> Any:
    """The same numbers in another kind of object or memory."""
    if how == "read-only":
        fixed = value.copy()
        fixed.flags.writeable = False
        return fixed
    if how == "subclass":
        return value.copy().view(Named)
    if how == "unaligned":
        memory = bytearray(value.nbytes + 1)
        moved = np.frombuffer(memory, np.uint8)[1:].view(value.dtype).reshape(value.shape)
        moved[...] = value
        return moved
    if how == "memoryview":
        return memoryview(value.copy())
    if how == "array.array":
        return standard_array.array("d" if value.dtype == np.float64 else "h", value.tolist())
    if how == "scalar":
        return value[()]
    if how == "strided":
        wide = np.zeros((*value.shape, 2), value.dtype)
        wide[..., 0] = value
        return wide[..., 0]
    if how == "backwards":
        return value[::-1]
    if how == "big-endian":
        return value.astype(value.dtype.newbyteorder())
    if how == "object":
        return value.astype(object)
    if how == "masked":
        return np.ma.array(value)
    if how == "list":
        return value.tolist()
    if how == "extended":
        return np.zeros(value.shape, np.longdouble)
    return value.copy()
