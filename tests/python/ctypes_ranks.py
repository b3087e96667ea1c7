# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a language without a C compiler does: describes farandole.h to ctypes, and calls.

Run by test_cpp_package.py on two ranks, with the library's path. Every dtype and reduction is
compared with NumPy; the parts that go wrong raise. Its processes are ranks of the Python package as
well, as those are whose plugin brings a library of its own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import farandole

OK, INVALID_ARGUMENT = 0, 1
ALLREDUCE, ALLGATHER = 0, 4
COUNT = 50

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = [  # by their constant
    *map(np.dtype, ["bool", *_INTEGERS, "float16"]),
    np.dtype(ml_dtypes.bfloat16),
    *map(np.dtype, ["float32", "float64", "complex64", "complex128"]),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2),
]


def kind(dtype: np.dtype[Any]) -> str:
    """bool, integer, float, complex, or float8, which nothing reduces."""
    if dtype.itemsize == 1 and dtype.kind not in "biu":
        return "float8"
    return {"b": "bool", "i": "integer", "u": "integer", "c": "complex"}.get(dtype.kind, "float")


def average(a: Any, b: Any) -> Any:
    if kind(a.dtype) == "integer":
        wide = a.astype(object) + b.astype(object)
        return np.array([int(x / 2) for x in wide]).astype(a.dtype)
    return (a + b) / a.dtype.type(2)


ALL = {"bool", "integer", "float", "complex"}
# By their constant: what it is, and the kinds of dtypes that it is defined on.
REDUCTIONS: list[tuple[Callable[[Any, Any], Any], set[str]]] = [
    (np.add, ALL),
    (np.multiply, ALL),
    (np.minimum, ALL - {"complex"}),
    (np.maximum, ALL - {"complex"}),
    (average, ALL - {"bool"}),
    (np.logical_and, {"bool", "integer"}),
    (np.logical_or, {"bool", "integer"}),
    (np.logical_xor, {"bool", "integer"}),
    (np.bitwise_and, {"bool", "integer"}),
    (np.bitwise_or, {"bool", "integer"}),
    (np.bitwise_xor, {"bool", "integer"}),
    (lambda a, b: a * a.dtype.type(3) + b * b.dtype.type(3), ALL),  # premultiplied by 3
]


class Ranks(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in ["rank", "size", "local_rank", "local_size"]),
        *((name, ctypes.c_int32) for name in ("cross_rank", "cross_size")),
    ]


class Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in ["status", "failed_rank", "failed_pid", "reserved"]),
        *((name, ctypes.c_char_p) for name in ("failed_host", "operation", "message")),
    ]


class Arguments(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in ("collective", "dtype", "reduction", "root")),
        ("in_", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("factor", ctypes.c_double),
        ("in_counts", ctypes.c_void_p),
        ("in_counts_length", ctypes.c_size_t),
        ("out_counts", ctypes.c_void_p),
        ("out_counts_length", ctypes.c_size_t),
        ("by_rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class Job:
    """The library, and this process's rank."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.farandole_last_error.restype = ctypes.POINTER(Error)
        self.context, self.world = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("init", ctypes.byref(self.context))
        self.call("world", self.context, ctypes.byref(self.world))
        ranks = Ranks(struct_size=ctypes.sizeof(Ranks))
        self.call("get_ranks", self.context, ctypes.byref(ranks))
        self.rank, self.size = ranks.rank, ranks.size

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self.library, f"farandole_{name}")(*arguments) != OK:
            raise RuntimeError(f"{name}: {self.message()}")

    def message(self) -> str:
        return str(self.library.farandole_last_error().contents.message.decode())

    def collective(self, mine: Any, out: Any, starts: bool, **fields: Any) -> int:
        """Status of a collective, run to its end, or started and waited for."""
        arguments = Arguments(
            struct_size=ctypes.sizeof(Arguments),
            in_=mine.ctypes.data,
            out=out.ctypes.data,
            count=mine.size,
            dtype=DTYPES.index(mine.dtype),
            **fields,
        )
        if not starts:
            return int(self.library.farandole_run(self.world, ctypes.byref(arguments), None))
        request = ctypes.c_void_p()
        status = self.library.farandole_start(
            self.world, ctypes.byref(arguments), None, ctypes.byref(request)
        )
        if status == OK:
            status = self.library.farandole_wait(request)
        self.call("request_release", request)
        return int(status)

    def finalize(self) -> None:
        self.call("communicator_release", self.world)
        self.call("finalize", self.context)


def values(dtype: np.dtype[Any], rank: int) -> Any:
    """Small enough that every reduction of two of them is exact."""
    numbers = (np.arange(COUNT) * 5 + 3 * rank) % 4
    return numbers.astype(np.float32).astype(dtype)


def main() -> None:
    farandole.init()
    job = Job(sys.argv[1])
    assert farandole.allreduce(np.ones(1))[0] == job.size
    reduced = 0
    for constant, (function, kinds) in enumerate(REDUCTIONS):
        for number, dtype in enumerate(DTYPES):
            mine, out = values(dtype, job.rank), np.zeros(COUNT, dtype)
            status = job.collective(
                mine, out, number % 2 == 0, collective=ALLREDUCE, reduction=constant, factor=3.0
            )
            what = f"reduction {constant} of {dtype}: {job.message()}"
            if kind(dtype) not in kinds:
                assert status == INVALID_ARGUMENT, what
                assert "is not defined on" in job.message(), what
                continue
            assert status == OK, what
            expected = np.asarray(function(values(dtype, 0), values(dtype, 1))).astype(dtype)
            assert np.array_equal(out, expected), f"{what}: {out} is not {expected}"
            reduced += 1
    for dtype in DTYPES:
        both = np.zeros(2 * COUNT, dtype)
        status = job.collective(values(dtype, job.rank), both, False, collective=ALLGATHER)
        assert status == OK, job.message()
        assert np.array_equal(both, np.concatenate([values(dtype, 0), values(dtype, 1)])), dtype
    job.finalize()
    assert farandole.allreduce(np.ones(1))[0] == job.size
    print(f"rank {job.rank} of {job.size}: {reduced} reductions")


main()
