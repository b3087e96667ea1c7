# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the native module needs to know of an array: address, elements, dtype."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from farandole import _native
from farandole.errors import InvalidArgumentError, UnsupportedError

DTYPE_INDEX = {name: index for index, name in enumerate(_native.DTYPES)}
REDUCTION_INDEX = {name: index for index, name in enumerate(_native.REDUCTIONS)}
COLLECTIVE_INDEX = {name: index for index, name in enumerate(_native.COLLECTIVES)}

# Names of the ml_dtypes package, where they differ from ours: its float8_e4m3 is another format.
_FOREIGN_NAMES = {"float8_e4m3": "float8_e4m3fn"}
FROM_FOREIGN = {_FOREIGN_NAMES.get(name, name): name for name in _native.DTYPES}
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3", "float8_e5m2")


@dataclass(slots=True)
class Buffer:
    """A contiguous CPU array of any library; `owner` keeps the memory alive."""

    owner: Any
    pointer: int
    shape: tuple[int, ...]
    count: int
    dtype: str  # one of _native.DTYPES
    read_only: bool


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of this name; bfloat16 and float8 come from the ml_dtypes package."""
    if name not in _OF_ML_DTYPES:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as missing:
        raise UnsupportedError(
            f"{name} on NumPy arrays needs the package ml_dtypes, which is not installed."
        ) from missing
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _FOREIGN_NAMES.get(name, name)))
    return found


# Ours for the dtypes of NumPy and torch that were met. NumPy takes 1.5 us to tell a dtype's name.
_NAMES: dict[Any, str] = {}


def _checked_name(name: str, argument: str) -> str:
    """The name among _native.DTYPES."""
    if name not in FROM_FOREIGN:
        raise InvalidArgumentError(
            f"argument '{argument}' has dtype {name}, allowed are " + ", ".join(FROM_FOREIGN) + "."
        )
    return FROM_FOREIGN[name]


def _numpy_name(dtype: np.dtype[Any], argument: str) -> str:
    name = _checked_name(dtype.name, argument)
    if not dtype.isnative:
        raise InvalidArgumentError(
            f"argument '{argument}' has dtype {dtype.str}, allowed is this machine's byte order."
        )
    _NAMES[dtype] = name
    return name


def _of_tensor(tensor: Any, argument: str) -> Buffer:
    """A torch tensor's. DLPack says it 2 us later, and nothing of lazy negation."""
    strided = tensor.layout is sys.modules["torch"].strided
    if not (strided and tensor.is_cpu and tensor.is_contiguous()):
        raise InvalidArgumentError(
            f"argument '{argument}' is a tensor on {tensor.device} with layout {tensor.layout} and "
            f"shape {tuple(tensor.shape)} that is not contiguous or not on the CPU, "
            "allowed is a contiguous CPU tensor."
        )
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"argument '{argument}' is a tensor whose memory holds the conjugates or negatives of "
            "its elements, allowed is what resolve_conj() and resolve_neg() return."
        )
    name = _NAMES.get(tensor.dtype)
    if name is None:
        name = _checked_name(str(tensor.dtype).removeprefix("torch."), argument)
        _NAMES[tensor.dtype] = name
    return Buffer(tensor, tensor.data_ptr(), tuple(tensor.shape), tensor.numel(), name, False)


def describe(array: Any, argument: str, writable: bool = False) -> Buffer:
    """The buffer behind `array`: NumPy, or anything that speaks DLPack or the buffer protocol.

    Raises InvalidArgumentError naming `argument` if it is not contiguous, not on the CPU, of a
    dtype that the library does not know, or read-only where it is to be written.
    """
    if isinstance(array, np.ndarray):
        if not array.flags.c_contiguous:
            raise InvalidArgumentError(
                f"argument '{argument}' is an array with strides {array.strides}, "
                "allowed is a C-contiguous array."
            )
        pointer, _, read_only = _native.buffer(array)
        dtype = array.dtype
        name = _NAMES.get(dtype) or _numpy_name(dtype, argument)
        found = Buffer(array, pointer, array.shape, array.size, name, read_only)
    elif "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor):
        found = _of_tensor(array, argument)
    elif hasattr(array, "__dlpack__"):
        pointer, shape, name, contiguous, on_cpu = _native.dlpack(array)
        if not contiguous or not on_cpu:
            raise InvalidArgumentError(
                f"argument '{argument}' is not contiguous or not on the CPU, "
                "allowed is a contiguous CPU array."
            )
        name = _checked_name(name, argument)
        found = Buffer(array, pointer, tuple(shape), math.prod(shape), name, False)
    else:
        try:
            return describe(np.frombuffer(array, np.uint8), argument, writable)
        except TypeError:
            raise InvalidArgumentError(
                f"argument '{argument}' is a {type(array).__name__}, allowed is a NumPy array or "
                "an object with the DLPack or buffer protocol."
            ) from None
    if writable and found.read_only:
        raise InvalidArgumentError(
            f"argument '{argument}' is read-only, allowed is a writable array."
        )
    return found
