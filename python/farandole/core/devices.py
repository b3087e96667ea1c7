# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of a GPU, and the streams on which they are used."""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from farandole import _native
from farandole.errors import InvalidArgumentError

# A handle of CUDA that stands for the default stream that other streams wait for.
LEGACY_DEFAULT_STREAM = 1


@dataclass(slots=True)
class Place:
    """What a call needs of a device array beyond its address."""

    pointer: int
    producer: int | None  # the stream on which its elements are made; None: they are there
    current: Callable[[], int]  # the stream that its library uses now on this thread
    make: Callable[[tuple[int, ...]], Any]  # a new array like it, of this shape


@cache
def use() -> None:
    """Has the native module know memory of GPUs; UnsupportedError if there is no driver."""
    _native.use_devices("cuda")


def stream_handle(stream: Any) -> int:
    """CUDA's handle of a stream: an int, an object with __cuda_stream__(), torch's, CuPy's or
    Numba's; InvalidArgumentError for anything else."""
    with contextlib.suppress(TypeError):
        return operator.index(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise InvalidArgumentError(
        f"argument 'stream' is {stream!r}, allowed are CUDA's handle as an int, an object with "
        "__cuda_stream__(), and streams of torch, CuPy and Numba."
    )


def place_of_tensor(tensor: Any) -> Place:
    """Of a torch tensor on a GPU."""
    torch = sys.modules["torch"]
    use()

    def current() -> int:
        return int(torch.cuda.current_stream(tensor.device).cuda_stream)

    def make(shape: tuple[int, ...]) -> Any:
        return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)

    return Place(tensor.data_ptr(), None, current, make)


def _current_of(array: Any, producer: int | None) -> int:
    """The stream that the array's library uses now, as far as that is known."""
    if type(array).__module__.split(".")[0] == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr) or LEGACY_DEFAULT_STREAM
    return LEGACY_DEFAULT_STREAM if producer is None else producer


def _make_like(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    library = type(array).__module__.split(".")[0]
    if library == "cupy":
        return sys.modules["cupy"].empty(shape, dtype)
    if library in ("numba", "numba_cuda"):
        return sys.modules["numba.cuda"].device_array(shape, dtype)
    raise InvalidArgumentError(
        f"argument 'out' is None, allowed for a {type(array).__name__} is an array that takes the "
        "result, since the library cannot make one like it."
    )


@dataclass(slots=True)
class Interface:
    """What __cuda_array_interface__ says (Numba's documentation, version 3)."""

    pointer: int
    shape: tuple[int, ...]
    count: int
    dtype: np.dtype[Any]
    read_only: bool
    place: Place


def interface_of(array: Any, argument: str) -> Interface:
    """InvalidArgumentError naming `argument` if the array is not contiguous or has a mask."""
    said: dict[str, Any] = array.__cuda_array_interface__
    shape = tuple(int(length) for length in said["shape"])
    dtype = np.dtype(said["typestr"])
    count = math.prod(shape)
    strides = said.get("strides")
    if strides is not None and count > 0 and not _is_contiguous(shape, strides, dtype.itemsize):
        raise InvalidArgumentError(
            f"argument '{argument}' is a GPU array with strides {tuple(strides)}, "
            "allowed is a C-contiguous array."
        )
    if said.get("mask") is not None:
        raise InvalidArgumentError(
            f"argument '{argument}' is a GPU array with a mask, which would be ignored; allowed is "
            "one without."
        )
    use()
    pointer, read_only = said["data"]
    producer = None if said.get("stream") is None else int(said["stream"])
    place = Place(
        int(pointer or 0),
        producer,
        lambda: _current_of(array, producer),
        lambda shape: _make_like(array, dtype, shape),
    )
    return Interface(int(pointer or 0), shape, count, dtype, bool(read_only), place)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    """In C's order; strides of dimensions of length 1 say nothing."""
    expected = item
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True
