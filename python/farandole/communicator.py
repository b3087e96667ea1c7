# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole import _native
from farandole._arrays import (
    COLLECTIVE_INDEX,
    DTYPE_INDEX,
    REDUCTION_INDEX,
    Buffer,
    describe,
    numpy_dtype,
)
from farandole.errors import InvalidArgumentError


class Request:
    """An operation in flight; keeps its arrays alive."""

    __slots__ = ("_native", "_result", "_source")

    def __init__(self, native: _native.Request, source: Any, result: Any) -> None:
        self._native = native
        self._source = source
        self._result = result

    def wait(self) -> Any:
        """Blocks, without the GIL, until the operation ended; returns its result array."""
        self._native.wait()
        return self._result

    def test(self) -> bool:
        """True once it ended. Does not block."""
        return self._native.test()


class Communicator:
    """An ordered group of ranks.

    Every rank calls the same operations in the same order. Arrays are NumPy arrays, or anything
    contiguous on the CPU with DLPack or the buffer protocol; `out=None` makes a new NumPy array,
    `out=array` works in place. The methods ending in _async return a Request at once and own the
    arrays until its wait() returned. All waits release the GIL.

    Raises InvalidArgumentError before anything moves, MismatchError on all ranks if they disagree,
    RankFailed if one is gone, TimedOutError after FARANDOLE_OPERATION_TIMEOUT.
    """

    def __init__(self, native: _native.Communicator) -> None:
        self.native = native
        self.rank = native.rank
        self.size = native.size

    def allreduce(
        self,
        array: Any,
        out: Any = None,
        op: str = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
    ) -> Any:
        """Element-wise reduction over all ranks; every rank gets it. `op` is one of sum, product,
        min, max, average, logical_and, logical_or, logical_xor, bitwise_and, bitwise_or,
        bitwise_xor, premultiplied_sum (every input times `factor`, then sum)."""
        call = self._allreduce(array, out, op, algorithm, name, factor)
        self.native.run(*call[0])
        return call[2]

    def allreduce_async(
        self,
        array: Any,
        out: Any = None,
        op: str = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
    ) -> Request:
        """allreduce() in the background."""
        return self._start(self._allreduce(array, out, op, algorithm, name, factor))

    def reducescatter(
        self,
        array: Any,
        out: Any = None,
        op: str = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
    ) -> Any:
        """Reduction of which rank r gets the r-th of `size` equal blocks of rows: [n, ...] to
        [n / size, ...]."""
        call = self._reducescatter(array, out, op, algorithm, name, factor)
        self.native.run(*call[0])
        return call[2]

    def reducescatter_async(
        self,
        array: Any,
        out: Any = None,
        op: str = "sum",
        *,
        algorithm: str | None = None,
        name: str | None = None,
        factor: float = 1.0,
    ) -> Request:
        """reducescatter() in the background."""
        return self._start(self._reducescatter(array, out, op, algorithm, name, factor))

    def allgather(
        self,
        array: Any,
        out: Any = None,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """The ranks' arrays one after the other along the first axis: [n, ...] of every rank to
        [size * n, ...]; a scalar array to [size]. All shapes must be equal."""
        call = self._allgather(array, out, algorithm, name)
        self.native.run(*call[0])
        return call[2]

    def allgather_async(
        self,
        array: Any,
        out: Any = None,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """allgather() in the background."""
        return self._start(self._allgather(array, out, algorithm, name))

    def broadcast(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Any:
        """The root's array on every rank. Other ranks' `array` gives shape and dtype only."""
        call = self._broadcast(array, out, root, algorithm, name)
        self.native.run(*call[0])
        return call[2]

    def broadcast_async(
        self,
        array: Any,
        out: Any = None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        name: str | None = None,
    ) -> Request:
        """broadcast() in the background."""
        return self._start(self._broadcast(array, out, root, algorithm, name))

    def barrier(self, *, name: str | None = None) -> None:
        """Returns once every rank has called it."""
        self.native.run(COLLECTIVE_INDEX["barrier"], 0, 0, 0, 0, name=name or "")

    # A call is (arguments of the native module, input to keep alive, result to return).

    def _start(self, call: tuple[tuple[Any, ...], Any, Any]) -> Request:
        return Request(self.native.start(*call[0]), call[1], call[2])

    def _allreduce(
        self,
        array: Any,
        out: Any,
        op: str,
        algorithm: str | None,
        name: str | None,
        factor: float,
    ) -> tuple[tuple[Any, ...], Any, Any]:
        source = describe(array, "array")
        target = _target(out, array, source, source.shape)
        arguments = _arguments("allreduce", source, target, source.count, op, 0, algorithm, name)
        return (*arguments, factor), array, target.owner

    def _reducescatter(
        self,
        array: Any,
        out: Any,
        op: str,
        algorithm: str | None,
        name: str | None,
        factor: float,
    ) -> tuple[tuple[Any, ...], Any, Any]:
        source = describe(array, "array")
        if not source.shape or source.shape[0] % self.size != 0:
            raise InvalidArgumentError(
                f"reducescatter: argument 'array' has shape {source.shape}, allowed is a first "
                f"dimension that the {self.size} ranks divide."
            )
        shape = (source.shape[0] // self.size, *source.shape[1:])
        target = _target(out, array, source, shape)
        arguments = _arguments(
            "reducescatter", source, target, target.count, op, 0, algorithm, name
        )
        return (*arguments, factor), array, target.owner

    def _allgather(
        self, array: Any, out: Any, algorithm: str | None, name: str | None
    ) -> tuple[tuple[Any, ...], Any, Any]:
        source = describe(array, "array")
        shape = (self.size * (source.shape[0] if source.shape else 1), *source.shape[1:])
        target = _target(out, array, source, shape)
        arguments = _arguments("allgather", source, target, source.count, "sum", 0, algorithm, name)
        return arguments, array, target.owner

    def _broadcast(
        self, array: Any, out: Any, root: int, algorithm: str | None, name: str | None
    ) -> tuple[tuple[Any, ...], Any, Any]:
        source = describe(array, "array")
        target = _target(out, array, source, source.shape)
        arguments = _arguments(
            "broadcast", source, target, source.count, "sum", root, algorithm, name
        )
        return arguments, array, target.owner


def _target(out: Any, array: Any, source: Buffer, shape: tuple[int, ...]) -> Buffer:
    if out is None:
        return describe(np.empty(shape, numpy_dtype(source.dtype)), "out", True)
    target = describe(out, "out", True)
    if target.dtype != source.dtype:
        raise InvalidArgumentError(
            f"argument 'out' has dtype {target.dtype}, allowed is that of 'array', {source.dtype}."
        )
    if target.shape != shape:
        raise InvalidArgumentError(f"argument 'out' has shape {target.shape}, allowed is {shape}.")
    return target


def _arguments(
    collective: str,
    source: Buffer,
    target: Buffer,
    count: int,
    op: str,
    root: int,
    algorithm: str | None,
    name: str | None,
) -> tuple[Any, ...]:
    if op not in REDUCTION_INDEX:
        raise InvalidArgumentError(
            f"argument 'op' is {op!r}, allowed are " + ", ".join(_native.REDUCTIONS) + "."
        )
    return (
        COLLECTIVE_INDEX[collective],
        source.pointer,
        target.pointer,
        count,
        DTYPE_INDEX[source.dtype],
        REDUCTION_INDEX[op],
        root,
        algorithm or "",
        name or "",
    )
