# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated driver for tests in Python: builds it, and makes arrays in its memory.

A rank imports this with FARANDOLE_CUDA_LIBRARY set, which run() in test_devices.py does.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
_ADDRESS = ctypes.c_void_p


def build(folder: Path) -> Path:
    """The driver as a library in `folder`."""
    library = folder / "libcuda.so.1"
    compiler = sysconfig.get_config_var("CXX").split()[0]
    sources = [path for path in (ROOT / "tests/simcuda").glob("*.cpp") if path.stem != "kernels"]
    subprocess.run(
        [
            compiler,
            *("-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
            *(f"-I{ROOT / folder}" for folder in ("include", "src", "tests")),
            *map(str, sources),
            *("-o", str(library), "-ldl"),
        ],
        check=True,
    )
    return library


class Driver:
    """The driver's functions, each of which raises if it fails, on the first device."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["FARANDOLE_CUDA_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
        context = _ADDRESS()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: error {status}")

    def stream(self) -> int:
        made = _ADDRESS()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        return int(made.value or 0)

    def synchronize(self, stream: int) -> None:
        self.call("cuStreamSynchronize", _ADDRESS(stream))

    def counts(self) -> dict[str, int]:
        """What the driver holds for this process."""
        names = ("device", "imported", "pinned", "registered", "streams", "events")
        found = (ctypes.c_uint * len(names))()
        self._library.simcuda_counts(found)
        return dict(zip(names, found, strict=True))

    @property
    def races(self) -> int:
        return int(self._library.simcuda_races())


class Array:
    """An array of the device as other libraries show theirs, with copies on a stream."""

    def __init__(self, driver: Driver, values: np.ndarray[Any, Any], stream: int) -> None:
        self.driver, self.stream = driver, stream
        self.shape, self.dtype = values.shape, values.dtype
        self.nbytes = values.nbytes
        address = _ADDRESS()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(self.nbytes, 1)))
        self.address = int(address.value or 0)
        self._pinned = _pinned(driver, self.nbytes)
        ctypes.memmove(self._pinned, values.ctypes.data, self.nbytes)
        self._copy(self.address, self._pinned)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self.stream,
        }

    def get(self) -> np.ndarray[Any, Any]:
        """The values once the stream has come so far."""
        values = np.empty(self.shape, self.dtype)
        pinned = _pinned(self.driver, self.nbytes)
        self._copy(pinned, self.address)
        self.driver.synchronize(self.stream)
        ctypes.memmove(values.ctypes.data, pinned, self.nbytes)
        return values

    def _copy(self, to: int, source: int) -> None:
        count = ctypes.c_size_t(math.prod(self.shape) * self.dtype.itemsize)
        stream = _ADDRESS(self.stream)
        self.driver.call("cuMemcpyAsync", _ADDRESS(to), _ADDRESS(source), count, stream)


def _pinned(driver: Driver, count: int) -> int:
    memory = _ADDRESS()
    driver.call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(max(count, 1)), 2)
    return int(memory.value or 0)
