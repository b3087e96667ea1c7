# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a collective to those of the native module, checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from farandole import _native
from farandole._native import Arguments, CallOptions, Collective, DType, Reduction
from farandole.core.arrays import Buffer, describe, integer, numpy_dtype
from farandole.core.devices import Place
from farandole.errors import InvalidArgumentError

Counts = Sequence[int]
# The names of _native.REDUCTIONS, for type checkers.
ReduceOp = Literal[
    "sum",
    "product",
    "min",
    "max",
    "average",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "premultiplied_sum",
]
_NOTHING = Buffer(None, 0, (), 0, "uint8", False)


DEFAULTS = CallOptions()
# By the names that callers use; a dict is found faster than the members of an Enum.
REDUCTIONS = dict(Reduction.__members__)
_DTYPES = dict(DType.__members__)


@dataclass(slots=True)
class Call:
    """Arguments of Communicator.run in the native module; what must stay alive; the result."""

    arguments: Arguments
    options: CallOptions
    kept: Any
    result: Any
    scalar: bool = False  # the result is an array of shape () and goes to the caller as a scalar
    place: Place | None = None  # the arrays lie in the memory of a GPU


@dataclass(frozen=True, slots=True)
class Group:
    """This rank's place."""

    rank: int
    size: int

    def check_root(self, root: int) -> None:
        last = self.size - 1
        integer("root", root, f"a rank from 0 to {last}", 0, last)


def reduction(op: str) -> Reduction:
    """The member of this name; InvalidArgumentError if there is none."""
    if not isinstance(op, str) or op not in REDUCTIONS:
        raise InvalidArgumentError(
            f"argument 'op' is {op!r}, allowed are " + ", ".join(REDUCTIONS) + "."
        )
    return REDUCTIONS[op]


def said(
    algorithm: str | None = None,
    name: str | None = None,
    factor: float = 1.0,
    deterministic: bool = False,
) -> CallOptions:
    """What a call says beyond its arrays; InvalidArgumentError naming the argument at fault."""
    plain = name is None and algorithm is None and deterministic is False
    if plain and type(factor) is float and factor == 1.0:
        return DEFAULTS
    try:
        return CallOptions(
            algorithm=algorithm or "", name=name or "", factor=factor, deterministic=deterministic
        )
    except TypeError:
        _explain(algorithm, name, factor, deterministic)
        raise


def _explain(algorithm: Any, name: Any, factor: Any, deterministic: Any) -> None:
    """Raises what names the argument at fault, after the native module refused a type."""
    for argument, text in (("algorithm", algorithm), ("name", name)):
        if text is not None and not isinstance(text, str):
            raise InvalidArgumentError(
                f"argument '{argument}' is {text!r}, allowed are a str and None."
            )
    if not isinstance(factor, int | float):
        raise InvalidArgumentError(f"argument 'factor' is {factor!r}, allowed is a float.")
    if not isinstance(deterministic, bool):
        raise InvalidArgumentError(
            f"argument 'deterministic' is {deterministic!r}, allowed is a bool."
        )


def _call(
    collective: Collective,
    source: Buffer,
    target: Buffer,
    count: int,
    options: CallOptions,
    *,
    op: str = "sum",
    root: int = 0,
    counts: tuple[list[int], list[int]] | None = None,
) -> Call:
    """`counts`: elements per rank of `in` and `out`, where chunks have different lengths; [] where
    this rank does not know them."""
    in_counts, out_counts = counts or ([], [])
    arguments = Arguments(
        collective=collective,
        input=source.pointer,
        output=target.pointer,
        count=count,
        dtype=_DTYPES[(target if source is _NOTHING else source).dtype],
        reduction=reduction(op),
        root=root,
        by_rank=counts is not None,
        in_counts=in_counts,
        out_counts=out_counts,
    )
    place = source.place or target.place
    # Only an array made for a scalar is one itself; an `out` that is given never is.
    return Call(arguments, options, (source.kept, target.kept), target.owner, target.scalar, place)


def _target(out: Any, like: Buffer, shape: tuple[int, ...]) -> Buffer:
    """`out`, checked, or a new array."""
    owner = like.owner
    if out is None and like.place is not None:
        return describe(like.place.make(shape), "out", True)
    if out is None:
        dtype = owner.dtype if isinstance(owner, np.ndarray) else numpy_dtype(like.dtype)
        made = np.empty(shape, dtype)
        scalar = like.scalar and shape == ()
        pointer, _ = _native.buffer(made)
        return Buffer(made, pointer, shape, made.size, like.dtype, False, made, scalar)
    if out is owner and shape == like.shape and not like.read_only:
        return like
    target = describe(out, "out", True)
    if target.dtype != like.dtype:
        raise InvalidArgumentError(
            f"argument 'out' has dtype {target.dtype}, allowed is that of 'array', {like.dtype}."
        )
    if target.shape != shape:
        raise InvalidArgumentError(f"argument 'out' has shape {target.shape}, allowed is {shape}.")
    return target


def _rows(collective: str, argument: str, counts: Counts, group: Group) -> list[int]:
    """Checked counts of rows, one per rank."""
    try:
        rows = [operator.index(count) for count in counts]
    except TypeError:
        raise InvalidArgumentError(
            f"{collective}: argument '{argument}' is {counts!r}, allowed is one integer per rank."
        ) from None
    if len(rows) != group.size or any(count < 0 for count in rows):
        raise InvalidArgumentError(
            f"{collective}: argument '{argument}' is {rows}, allowed are {group.size} counts of "
            "rows, one per rank, each at least 0."
        )
    return rows


def _matrix(collective: str, buffer: Buffer, argument: str = "array") -> int:
    """Elements in one row; the array needs rows."""
    if not buffer.shape:
        raise InvalidArgumentError(
            f"{collective}: argument '{argument}' has shape (), allowed is an array with rows."
        )
    return math.prod(buffer.shape[1:])


def _check_rows(collective: str, buffer: Buffer, wanted: int, argument: str = "array") -> None:
    if buffer.shape[0] != wanted:
        raise InvalidArgumentError(
            f"{collective}: argument '{argument}' has shape {buffer.shape}, allowed are {wanted} "
            "rows, as the counts say."
        )


def _divided(collective: str, source: Buffer, group: Group) -> tuple[int, ...]:
    """Shape of one of `size` equal blocks of rows."""
    if not source.shape or source.shape[0] % group.size != 0:
        raise InvalidArgumentError(
            f"{collective}: argument 'array' has shape {source.shape}, allowed is a first "
            f"dimension that the {group.size} ranks divide."
        )
    return (source.shape[0] // group.size, *source.shape[1:])


def _gathered(source: Buffer, group: Group) -> tuple[int, ...]:
    return (group.size * (source.shape[0] if source.shape else 1), *source.shape[1:])


def allreduce(array: Any, out: Any, op: str, options: CallOptions) -> Call:
    source = describe(array, "array")
    target = _target(out, source, source.shape)
    return _call(Collective.allreduce, source, target, source.count, options, op=op)


def reduce(group: Group, array: Any, out: Any, op: str, root: int, options: CallOptions) -> Call:
    group.check_root(root)
    source = describe(array, "array")
    if group.rank == root or out is not None:
        target = _target(out, source, source.shape)
    else:
        target = _NOTHING
    call = _call(Collective.reduce, source, target, source.count, options, op=op, root=root)
    if group.rank != root:
        call.result = None
    return call


def broadcast(group: Group, array: Any, out: Any, root: int, options: CallOptions) -> Call:
    group.check_root(root)
    source = describe(array, "array")
    target = _target(out, source, source.shape)
    return _call(Collective.broadcast, source, target, source.count, options, root=root)


def reducescatter(
    group: Group, array: Any, out: Any, op: str, counts: Counts | None, options: CallOptions
) -> Call:
    source = describe(array, "array")
    if counts is None:
        target = _target(out, source, _divided("reducescatter", source, group))
        return _call(Collective.reducescatter, source, target, target.count, options, op=op)
    rows = _rows("reducescatter", "counts", counts, group)
    width = _matrix("reducescatter", source)
    _check_rows("reducescatter", source, sum(rows))
    target = _target(out, source, (rows[group.rank], *source.shape[1:]))
    elements = [count * width for count in rows]
    return _call(Collective.reducescatter, source, target, 0, options, op=op, counts=(elements, []))


def allgather(
    group: Group, array: Any, out: Any, counts: Counts | None, options: CallOptions
) -> Call:
    source = describe(array, "array")
    if counts is None:
        target = _target(out, source, _gathered(source, group))
        return _call(Collective.allgather, source, target, source.count, options)
    rows = _rows("allgather", "counts", counts, group)
    width = _matrix("allgather", source)
    _check_rows("allgather", source, rows[group.rank])
    target = _target(out, source, (sum(rows), *source.shape[1:]))
    elements = [count * width for count in rows]
    return _call(Collective.allgather, source, target, 0, options, counts=([], elements))


def gather(
    group: Group, array: Any, out: Any, root: int, counts: Counts | int | None, options: CallOptions
) -> Call:
    group.check_root(root)
    source = describe(array, "array")
    at_root = group.rank == root
    if counts is None:
        target = _target(out, source, _gathered(source, group)) if at_root else _NOTHING
        return _call(Collective.gather, source, target, source.count, options, root=root)
    width = _matrix("gather", source)
    own = _own_rows("gather", counts, group, at_root)
    _check_rows("gather", source, own)
    if not at_root:
        both: tuple[list[int], list[int]] = ([], [])
        return _call(
            Collective.gather, source, _NOTHING, own * width, options, root=root, counts=both
        )
    assert not isinstance(counts, int)
    rows = _rows("gather", "counts", counts, group)
    target = _target(out, source, (sum(rows), *source.shape[1:]))
    elements = [count * width for count in rows]
    return _call(Collective.gather, source, target, 0, options, root=root, counts=([], elements))


def _own_rows(collective: str, counts: Counts | int, group: Group, at_root: bool) -> int:
    """Rows of this rank. Only the root needs to know the others'."""
    if isinstance(counts, int) and not at_root:
        if counts < 0:
            raise InvalidArgumentError(
                f"{collective}: argument 'counts' is {counts}, allowed is at least 0."
            )
        return counts
    if isinstance(counts, int):
        raise InvalidArgumentError(
            f"{collective}: argument 'counts' is {counts}, allowed at the root is one count of "
            "rows per rank."
        )
    return _rows(collective, "counts", counts, group)[group.rank]


def scatter(
    group: Group, array: Any, out: Any, root: int, counts: Counts | int | None, options: CallOptions
) -> Call:
    group.check_root(root)
    at_root = group.rank == root
    if not at_root and array is None:
        return _scatter_to(group, out, root, counts, options)
    source = describe(array, "array")
    sent = source if at_root else _NOTHING
    if counts is None:
        target = _target(out, source, _divided("scatter", source, group))
        return _call(Collective.scatter, sent, target, target.count, options, root=root)
    width = _matrix("scatter", source)
    own = _own_rows("scatter", counts, group, at_root)
    target = _target(out, source, (own, *source.shape[1:]))
    if not at_root:
        both: tuple[list[int], list[int]] = ([], [])
        return _call(Collective.scatter, sent, target, own * width, options, root=root, counts=both)
    assert not isinstance(counts, int)
    rows = _rows("scatter", "counts", counts, group)
    _check_rows("scatter", source, sum(rows))
    elements = [count * width for count in rows]
    return _call(Collective.scatter, sent, target, 0, options, root=root, counts=(elements, []))


def _scatter_to(
    group: Group, out: Any, root: int, counts: Counts | int | None, options: CallOptions
) -> Call:
    """scatter() at a rank that gives no array: `out` says what comes."""
    if out is None:
        raise InvalidArgumentError(
            "scatter: arguments 'array' and 'out' are None, allowed away from the root is one of "
            "them."
        )
    target = describe(out, "out", True)
    if counts is None:
        return _call(Collective.scatter, _NOTHING, target, target.count, options, root=root)
    _matrix("scatter", target, "out")
    _check_rows("scatter", target, _own_rows("scatter", counts, group, False), "out")
    both: tuple[list[int], list[int]] = ([], [])
    return _call(
        Collective.scatter, _NOTHING, target, target.count, options, root=root, counts=both
    )


def alltoall(
    group: Group,
    array: Any,
    out: Any,
    send_counts: Counts | None,
    recv_counts: Counts | None,
    options: CallOptions,
) -> Call:
    source = describe(array, "array")
    if send_counts is None and recv_counts is None:
        block = _divided("alltoall", source, group)
        target = _target(out, source, source.shape)
        return _call(Collective.alltoall, source, target, math.prod(block), options)
    if send_counts is None or recv_counts is None:
        missing = "send_counts" if send_counts is None else "recv_counts"
        raise InvalidArgumentError(
            f"alltoall: argument '{missing}' is None, allowed are both counts or none."
        )
    sent = _rows("alltoall", "send_counts", send_counts, group)
    received = _rows("alltoall", "recv_counts", recv_counts, group)
    if sent[group.rank] != received[group.rank]:
        raise InvalidArgumentError(
            f"alltoall: argument 'recv_counts' has {received[group.rank]} rows from this rank "
            f"itself, allowed is what 'send_counts' sends it, {sent[group.rank]}."
        )
    width = _matrix("alltoall", source)
    _check_rows("alltoall", source, sum(sent))
    target = _target(out, source, (sum(received), *source.shape[1:]))
    counts = ([count * width for count in sent], [count * width for count in received])
    return _call(Collective.alltoall, source, target, 0, options, counts=counts)


def barrier(name: str | None) -> Call:
    return _call(Collective.barrier, _NOTHING, _NOTHING, 0, said(name=name))
