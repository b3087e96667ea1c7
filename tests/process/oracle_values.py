# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the oracle's ranks put in, and what MPI says comes out.

MPI has no float16 and bfloat16, and no arithmetic, minimum or bits on bool. There it computes in
float64 or int64 on the same values, which are exact there and in the result, and the result is
cast. An average is MPI's sum, divided here; a pre-multiplied sum is MPI's sum of scaled inputs.
What is only moved MPI moves as bytes.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from oracle_matrix import Case

from farandole.core.arrays import numpy_dtype

Array = np.ndarray[Any, Any]

_MPI_OPS = {
    "sum": MPI.SUM,
    "product": MPI.PROD,
    "min": MPI.MIN,
    "max": MPI.MAX,
    "average": MPI.SUM,
    "logical_and": MPI.LAND,
    "logical_or": MPI.LOR,
    "logical_xor": MPI.LXOR,
    "bitwise_and": MPI.BAND,
    "bitwise_or": MPI.BOR,
    "bitwise_xor": MPI.BXOR,
    "premultiplied_sum": MPI.SUM,
}
# So that integers use most of their bits, and sums of nine ranks times 2 still fit; odd, so that
# divisions and products with halves have something to round.
_UNITS = {"int16": 2**7 - 1, "int32": 2**22 - 1, "int64": 2**44 - 1}


def factor(case: Case) -> float:
    """Of the pre-multiplied sum."""
    return (0.5, 1.5, 2.0)[case.seed % 3] if case.reduction == "premultiplied_sum" else 1.0


def counts(case: Case, size: int) -> list[int]:
    """`case.size` elements cut into `size` blocks, some of them empty."""
    cuts = np.random.default_rng(case.seed).integers(0, case.size + 1, size - 1)
    edges = [0, *sorted(cuts.tolist()), case.size]
    return [end - start for start, end in pairwise(edges)]


def exchanged(case: Case, size: int) -> list[list[int]]:
    """[from][to] elements. Symmetric, as it has to be in place."""
    smaller = case.size // size
    table = [[smaller + (s * d + s + d + case.seed) % 3 for d in range(size)] for s in range(size)]
    return [[0 if case.size == 0 else count for count in row] for row in table]


def blocks(case: Case, rank: int, size: int) -> tuple[list[int], list[int]]:
    """Elements per rank of what this rank puts in and of what it gets out, where these are
    divided into blocks; else one number."""
    collective = case.operation.collective
    if collective == "alltoall" and case.operation.by_rank:
        table = exchanged(case, size)
        return table[rank], [row[rank] for row in table]
    each = counts(case, size) if case.operation.by_rank else [case.size] * size
    if collective in ("reducescatter", "scatter"):
        return each, [each[rank]]
    if collective in ("allgather", "gather"):
        return [each[rank]], each
    if collective == "alltoall":
        return each, each
    return [case.size], [case.size]


def offset(lengths: list[int], rank: int) -> int:
    return list(accumulate(lengths, initial=0))[rank]


def moved(case: Case, count: int, rank: int, message: int = 0) -> Array:
    """Bytes that differ between ranks and from their neighbours, whatever they mean."""
    dtype = numpy_dtype(case.dtype)
    if case.dtype == "bool":
        return np.asarray((np.arange(count) * 3 + rank + message) % 5 < 2)
    start = 37 * rank + 11 * message + case.seed
    return ((np.arange(count * dtype.itemsize) + start) * 151 % 241).astype(np.uint8).view(dtype)


def reduced(case: Case, count: int, rank: int) -> Array:
    """Random, and such that every order of operands gives the same exact result."""
    dtype = numpy_dtype(case.dtype)
    random = np.random.default_rng((case.seed, rank))
    if case.dtype == "bool" or case.reduction.startswith("logical"):
        # True as often as leaves some results true and some false.
        conjunction = case.reduction in ("product", "min", "logical_and", "bitwise_and")
        return _truths(random, count, 0.92 if conjunction else 0.15, dtype)
    if case.reduction == "product":
        powers = [1 + 1j, 2, -1j] if dtype.kind == "c" else [1, 2, 3 if dtype.kind == "u" else -1]
        return np.asarray(powers)[random.integers(0, 3, count)].astype(dtype)
    if dtype.kind in "iu" and case.reduction not in ("sum", "average", "premultiplied_sum"):
        return random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    low = 0 if dtype.kind == "u" else -7
    small = random.integers(low, low + 15, count).astype(np.float64)
    if dtype.kind == "c":
        return (small + 1j * random.integers(low, low + 15, count)).astype(dtype)
    if dtype.kind in "iu":
        return (small * _UNITS.get(case.dtype.removeprefix("u"), 1)).astype(dtype)
    return (small * (2.0**-20 if dtype.itemsize > 2 else 0.25)).astype(dtype)


def _truths(random: np.random.Generator, count: int, share: float, dtype: Any) -> Array:
    truths = random.random(count) < share
    if dtype.kind == "b":
        return np.asarray(truths)
    # Any value but 0 is true.
    return (truths * random.integers(1, 100, count)).astype(dtype)


class Answer:
    """One question to MPI: started when made, the result array once `request` is complete."""

    def __init__(self, mpi: MPI.Comm, case: Case, mine: Array) -> None:
        self.case = case
        self._ranks = mpi.size
        self._at_root = mpi.rank == case.root or not case.operation.rooted
        self._dtype = numpy_dtype(case.dtype)
        into, out = blocks(case, mpi.rank, mpi.size)
        if case.operation.reduces:
            self._given = _scaled(mine, factor(case)).astype(_wide(self._dtype))
            self._got = np.empty(sum(out), self._given.dtype)
            self.request = self._reduce(mpi, into)
        else:
            self._given = mine.view(np.uint8)
            self._got = np.empty(sum(out) * self._dtype.itemsize, np.uint8)
            self.request = self._move(
                mpi, *([n * self._dtype.itemsize for n in b] for b in (into, out))
            )

    def result(self) -> Array | None:
        """None where this rank gets nothing."""
        if self.case.operation.collective in ("reduce", "gather") and not self._at_root:
            return None
        if not self.case.operation.reduces:
            return self._got.view(self._dtype)
        if self.case.reduction == "average":
            return _divided(self._got, self._ranks, self._dtype)
        return self._got != 0 if self._dtype.kind == "b" else self._got.astype(self._dtype)

    def _reduce(self, mpi: MPI.Comm, into: list[int]) -> MPI.Request:
        op, given, got = _MPI_OPS[self.case.reduction], self._given, self._got
        collective = self.case.operation.collective
        if collective == "allreduce":
            return mpi.Iallreduce(given, got, op)
        if collective == "reduce":
            return mpi.Ireduce(given, got if self._at_root else None, op, self.case.root)
        return mpi.Ireduce_scatter(given, got, into, op)

    def _move(self, mpi: MPI.Comm, into: list[int], out: list[int]) -> MPI.Request:
        given, got, root = self._given, self._got, self.case.root
        collective = self.case.operation.collective
        if collective == "broadcast":
            if self._at_root:
                got[:] = given
            return mpi.Ibcast(got, root)
        if collective == "allgather":
            return mpi.Iallgatherv(given, (got, out))
        if collective == "gather":
            return mpi.Igatherv(given, (got, out) if self._at_root else None, root)
        if collective == "scatter":
            return mpi.Iscatterv((given, into) if self._at_root else None, got, root)
        return mpi.Ialltoallv((given, into), (got, out))


def _wide(dtype: Any) -> Any:
    if dtype.kind == "b":
        return np.dtype(np.int64)
    native = dtype.kind in "iuc" or dtype in (np.float32, np.float64)
    return dtype if native else np.dtype(np.float64)


def _scaled(values: Array, by: float) -> Array:
    if by == 1.0:
        return values
    if values.dtype.kind == "b":
        return values & (int(by) != 0)
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64) * by
    return wide.astype(values.dtype)  # integers toward zero, as documented


def _divided(total: Array, by: int, dtype: Any) -> Array:
    """The average: integers toward zero, complex numbers by component, 16-bit floats through
    float32."""
    if dtype.kind in "iu":
        return np.asarray(np.sign(total) * (np.abs(total) // by), dtype)
    if dtype.kind == "c":
        parts = total.view(np.float32 if dtype == np.complex64 else np.float64)
        return np.asarray(parts / parts.dtype.type(by)).view(dtype)
    precise = np.float64 if dtype == np.float64 else np.float32
    return (total.astype(precise) / precise(by)).astype(dtype)
