# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the native module needs to know of an array: address, elements, dtype."""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from farandole import _native
from farandole.core import devices
from farandole.errors import InvalidArgumentError, UnsupportedError

# Names of the ml_dtypes package, where they differ from ours: its float8_e4m3 is another format.
_FOREIGN_NAMES = {"float8_e4m3": "float8_e4m3fn"}
FROM_FOREIGN = {_FOREIGN_NAMES.get(name, name): name for name in _native.DTYPES}
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3", "float8_e5m2")


def integer(argument: str, value: Any, allowed: str, low: int, high: int) -> int:
    """`value` as an int of [low, high]; InvalidArgumentError naming `argument` and `allowed`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidArgumentError(f"argument '{argument}' is {value!r}, allowed is {allowed}.")
    return number


def positive_seconds(argument: str, value: Any) -> float:
    """`value` as seconds > 0; InvalidArgumentError naming `argument`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not number > 0:
        raise InvalidArgumentError(f"argument '{argument}' is {value!r}, allowed is seconds > 0.")
    return number


@dataclass(slots=True)
class Buffer:
    """A contiguous array of any library."""

    owner: Any  # what the caller gave, or the array made for the result
    pointer: int
    shape: tuple[int, ...]
    count: int
    dtype: str  # one of _native.DTYPES
    read_only: bool
    kept: Any = None  # keeps the memory alive and where it is
    scalar: bool = False  # a NumPy scalar, whose results of shape () are scalars
    place: devices.Place | None = None  # in the memory of a GPU


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
    reached = tensor.is_cpu or tensor.is_cuda
    if not (strided and reached and not tensor.is_nested and tensor.is_contiguous()):
        shape = "a shape of its own" if tensor.is_nested else f"shape {tuple(tensor.shape)}"
        raise InvalidArgumentError(
            f"argument '{argument}' is a tensor on {tensor.device} with layout {tensor.layout} and "
            f"{shape} that is not contiguous or not on a CPU or GPU of CUDA, allowed is a "
            "contiguous tensor there."
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
    try:
        pointer = tensor.data_ptr()
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"argument '{argument}' is a {type(tensor).__name__} without memory of its own "
            f"({error}), allowed is a tensor that has some."
        ) from None
    place = devices.place_of_tensor(tensor) if tensor.is_cuda else None
    dimensions = tuple(tensor.shape)
    return Buffer(tensor, pointer, dimensions, tensor.numel(), name, False, tensor, place=place)


def _of_ndarray(array: np.ndarray[Any, Any], argument: str) -> Buffer:
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise InvalidArgumentError(
            f"argument '{argument}' is a masked array, whose mask would be ignored; allowed is "
            "what its filled() returns, or its data and mask one by one."
        )
    if not array.flags.c_contiguous:
        raise InvalidArgumentError(
            f"argument '{argument}' is an array with strides {array.strides}, "
            "allowed is a C-contiguous array."
        )
    dtype = array.dtype
    name = _NAMES.get(dtype) or _numpy_name(dtype, argument)
    pointer, read_only = _native.buffer(array)
    return Buffer(array, pointer, array.shape, array.size, name, read_only, array)


def _of_interface(array: Any, argument: str) -> Buffer:
    found = devices.interface_of(array, argument)
    name = _NAMES.get(found.dtype) or _numpy_name(found.dtype, argument)
    return Buffer(
        array,
        found.pointer,
        found.shape,
        found.count,
        name,
        found.read_only,
        array,
        place=found.place,
    )


def _of_dlpack(array: Any, argument: str, writable: bool) -> Buffer:
    found = _native.dlpack(array, writable)
    if found is None:
        raise InvalidArgumentError(
            f"argument '{argument}' is a {type(array).__name__} whose __dlpack__() gives no "
            "array, allowed is a NumPy array or an object with the DLPack or buffer protocol."
        )
    if not found.is_contiguous or not found.is_on_cpu:
        raise InvalidArgumentError(
            f"argument '{argument}' is not contiguous or not on the CPU, "
            "allowed is a contiguous CPU array."
        )
    read_only = found.read_only
    if writable and not read_only:  # what DLPack cannot say of older exporters
        with contextlib.suppress(TypeError, ValueError, BufferError):
            read_only = memoryview(array).readonly
    name, shape = _checked_name(found.dtype, argument), tuple(found.shape)
    return Buffer(array, found.pointer, shape, math.prod(shape), name, read_only, array)


# What the letters of the buffer protocol stand for; how many bits is in the size of an item, which
# differs between "l" and "<l", and which ctypes does not always say by its letter.
_KINDS = {"?": "bool", **dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint")}
_KINDS |= {**dict.fromkeys("efd", "float"), "Zf": "complex", "Zd": "complex"}


def _format_name(view: memoryview, argument: str) -> str:
    """Our dtype of a memoryview's format."""
    order, letters = "@", view.format
    if letters[:1] in ("@", "=", "<", ">", "!"):
        order, letters = letters[0], letters[1:]
    foreign = ">!" if sys.byteorder == "little" else "<"
    if letters not in _KINDS or (order in foreign and view.itemsize > 1):
        raise InvalidArgumentError(
            f"argument '{argument}' is a buffer of format {view.format!r}, allowed are "
            + ", ".join(_KINDS)
            + " in this machine's byte order."
        )
    kind = _KINDS[letters]
    return _checked_name("bool" if kind == "bool" else f"{kind}{8 * view.itemsize}", argument)


def _of_buffer(array: Any, argument: str) -> Buffer:
    """What speaks the buffer protocol: bytes, array.array, ctypes, mmap. The view is kept, so that
    nothing moves or shrinks the memory meanwhile."""
    try:
        view = memoryview(array)
    except TypeError:
        hint = ""
        if isinstance(array, bool | int | float | complex):
            hint = f" with a dtype that all ranks share, such as numpy.float64({array!r})"
        raise InvalidArgumentError(
            f"argument '{argument}' is {_a(type(array).__name__)}, allowed is a NumPy array or "
            f"scalar, or an object with the DLPack or buffer protocol{hint}."
        ) from None
    if not view.c_contiguous:
        raise InvalidArgumentError(
            f"argument '{argument}' is a buffer with strides {view.strides}, "
            "allowed is a C-contiguous one."
        )
    name = _format_name(view, argument)
    shape = view.shape or ()
    pointer, _ = _native.buffer(view)
    return Buffer(array, pointer, shape, math.prod(shape), name, view.readonly, view)


def _a(name: str) -> str:
    return ("an " if name[:1] in "aeiou" else "a ") + name


def describe(array: Any, argument: str, writable: bool = False) -> Buffer:
    """The buffer behind `array`: NumPy, torch, or anything that speaks __cuda_array_interface__,
    DLPack or the buffer protocol.

    Raises InvalidArgumentError naming `argument` if it is not contiguous, out of reach, of a
    dtype that the library does not know, or read-only where it is to be written.
    """
    if isinstance(array, np.ndarray):
        found = _of_ndarray(array, argument)
    elif "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor):
        found = _of_tensor(array, argument)
    elif isinstance(array, np.generic):
        found = _of_ndarray(np.asarray(array), argument)
        found.scalar = found.read_only = True  # a scalar never changes; this is a copy
    elif hasattr(array, "__cuda_array_interface__"):
        found = _of_interface(array, argument)
    elif hasattr(array, "__dlpack__"):
        found = _of_dlpack(array, argument, writable)
    else:
        found = _of_buffer(array, argument)
    if writable and found.read_only:
        raise InvalidArgumentError(
            f"argument '{argument}' is read-only, allowed is a writable array."
        )
    return found
