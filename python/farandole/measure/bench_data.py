# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Data whose result is known exactly: integers, different for every rank and index, that the
dtype holds exactly even after the reduction. Position i holds the value of i mod PERIOD."""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.core.arrays import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

PERIOD = 65537  # a prime, so that no chunk boundary is a multiple of it
_EXACT_INTEGERS = {
    "float8_e4m3": 2**4,
    "float8_e5m2": 2**3,
    "float16": 2**11,
    "bfloat16": 2**8,
    "float32": 2**24,
    "complex64": 2**24,
    "float64": 2**53,
    "complex128": 2**53,
}
_UFUNCS = {
    "sum": np.add,
    "average": np.add,
    "premultiplied_sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
_DOUBLING_RANKS_MAX = 15  # 2**15 fits float16; integers wrap round everywhere alike
_VALUES_MAX = 2**40  # so that the arithmetic here stays within int64


def input_tile(rank: int, rank_count: int, dtype: str, op: str) -> Array:
    """One period of the rank's input."""
    return _integers(rank, rank_count, dtype, op).astype(numpy_dtype(dtype))


def reduced_tile(rank_count: int, dtype: str, op: str) -> Array:
    """One period of the reduction over all ranks."""
    inputs = [_integers(rank, rank_count, dtype, op) for rank in range(rank_count)]
    result = _UFUNCS[op].reduce(np.stack(inputs), axis=0)
    if op == "average":
        result = result // rank_count  # exact: all inputs are multiples
    return np.asarray(result).astype(numpy_dtype(dtype))


def fill(array: Array, tile: Array) -> None:
    for first in range(0, len(array), PERIOD):
        block = array[first : first + PERIOD]
        block[:] = tile[: len(block)]


def count_wrong(array: Array, tile: Array, offset: int = 0) -> int:
    """Elements that differ from the tile's, where array[0] is position `offset`."""
    turned = np.roll(tile, -(offset % PERIOD))
    wrong = 0
    for first in range(0, len(array), PERIOD):
        block = array[first : first + PERIOD]
        wrong += int(np.count_nonzero(block != turned[: len(block)]))
    return wrong


def _integers(rank: int, rank_count: int, dtype: str, op: str) -> Array:
    index = np.arange(PERIOD, dtype=np.int64)
    if op == "product":  # powers of two; rank r doubles where bit r of the index is set
        return 1 + ((index >> rank) & 1 if rank < _DOUBLING_RANKS_MAX else 0 * index)
    if dtype == "bool":
        return (index + rank) % 2
    exact = _EXACT_INTEGERS.get(dtype) or int(np.iinfo(dtype).max) + 1
    scale = rank_count if op == "average" else 1
    summed = rank_count if op else 1  # nothing is added up where data only moves
    values = min(_VALUES_MAX, max(2, exact // (summed * scale)))
    return scale * ((index * 7919 + rank * 104729) % values)
