# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: whatever object a call is given, its own numbers are what moves, or an error names it.

Method: objects of every kind that shows memory, on ranks that are threads; what comes is what NumPy
makes of the same objects' values.
"""

from __future__ import annotations

import array
import ctypes
import mmap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rank_threads import SIZE, on_ranks

from farandole import _native
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError

BIG = np.dtype(np.float64).newbyteorder()

BUFFERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "array of doubles": (lambda: array.array("d", [1.5, -2]), np.float64),
    "array of longs": (lambda: array.array("l", [1, -300]), np.dtype("l")),
    "array of shorts": (lambda: array.array("h", [1, -300]), np.int16),
    "ctypes floats": (lambda: (ctypes.c_float * 2)(1.5, 2.5), np.float32),
    "ctypes longs": (lambda: (ctypes.c_long * 2)(2**40, 2), np.dtype("l")),
    "ctypes matrix": (lambda: (ctypes.c_int16 * 2 * 3)((1, 2), (300, 4), (5, 6)), np.int16),
    "ctypes bytes": (lambda: (ctypes.c_uint8 * 3)(1, 2, 3), np.uint8),
    "one ctypes double": (lambda: ctypes.c_double(2.5), np.float64),
    "memoryview of floats": (lambda: memoryview(np.array([0.5, 3], np.float32)), np.float32),
    "memoryview of complex": (lambda: memoryview(np.array([1j, 2 + 1j])), np.complex128),
    "memoryview of half": (lambda: memoryview(np.array([0.5, 3], np.float16)), np.float16),
    "cast memoryview": (lambda: memoryview(bytes(16)).cast("q"), np.int64),
    "bytearray": (lambda: bytearray([1, 2, 3]), np.uint8),
    "bytes": (lambda: bytes([1, 2, 3]), np.uint8),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_a_buffer_is_of_its_own_format(name: str) -> None:
    make, dtype = BUFFERS[name]

    def body(comm: Communicator) -> None:
        expected = np.asarray(memoryview(make()))
        assert expected.dtype == dtype
        result = comm.allreduce(make())
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(result, expected * np.dtype(dtype).type(SIZE))
        if expected.ndim > 0:
            np.testing.assert_array_equal(comm.allgather(make()), np.concatenate([expected] * SIZE))
        if not memoryview(make()).readonly:
            changed = make()
            assert comm.allreduce(changed, changed) is changed
            np.testing.assert_array_equal(np.asarray(memoryview(changed)), result)

    on_ranks(body)


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_float))


class Exporter:
    """Speaks DLPack in a way of its own."""

    def __init__(self, capsule: Callable[[], Any]) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def fails() -> Any:
    raise RuntimeError("not now")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "int": (lambda: 3, r"is an int, .*numpy\.float64\(3\)"),
    "float": (lambda: 3.5, r"is a float, .*numpy\.float64\(3\.5\)"),
    "bool": (lambda: True, r"is a bool, .*numpy scalar|is a bool"),
    "None": (lambda: None, "is a NoneType"),
    "text": (lambda: "3", "is a str"),
    "foreign order": (lambda: (ctypes.c_double.__ctype_be__ * 2)(1, 2), "format '>d'"),
    "foreign order in memory": (lambda: memoryview(np.ones(2, BIG)), "format '>d'"),
    "structures": (lambda: (Point * 2)(), "format 'T{"),
    "pointers": (lambda: (ctypes.c_void_p * 2)(), "format '<P'"),
    "characters": (lambda: array.array("u", "ab"), "is a buffer of format"),
    "long doubles": (lambda: (ctypes.c_longdouble * 2)(), "format '<g'"),
    "every other": (lambda: memoryview(bytearray(8))[::2], r"strides \(2,\)"),
    "masked": (lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), r"masked array.*filled\(\)"),
    "objects": (lambda: np.array([1, None], object), "dtype object"),
    "dates": (lambda: np.array(["2020-01-01"], "datetime64[D]"), r"dtype datetime64\[D\]"),
    "a date": (lambda: np.datetime64("2020-01-01"), r"dtype datetime64\[D\]"),
    "records": (lambda: np.zeros(2, [("x", "i4"), ("y", "f4")]), "dtype void64"),
    "letters": (lambda: np.array(["ab"]), "dtype str"),
    "extended": (lambda: np.ones(2, np.longdouble), "dtype float128"),
    "an extended": (lambda: np.longdouble(1), "dtype float128"),
    "backwards": (lambda: np.ones(3)[::-1], r"strides \(-8,\)"),
    "Fortran": (lambda: np.ones((2, 3), order="F"), r"strides \(8, 16\)"),
    "overlapping": (
        lambda: np.lib.stride_tricks.as_strided(np.ones(4), (3, 2), (8, 8)),
        r"strides \(8, 8\)",
    ),
    "repeated": (lambda: np.broadcast_to(np.ones(1), (3,)), r"strides \(0,\)"),
    "failing DLPack": (lambda: Exporter(fails), "is a Exporter whose __dlpack__"),
    "DLPack of nothing": (lambda: Exporter(lambda: None), "is a Exporter whose __dlpack__"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_plain_numbers_is_refused(name: str) -> None:
    make, word = REFUSED[name]

    def body(comm: Communicator) -> None:
        calls: list[Callable[[Any], Any]] = [
            comm.allreduce,
            comm.allreduce_async,
            comm.allgather,
            lambda given: comm.send(given, 0),
            lambda given: comm.allreduce(np.ones(3), given),
            lambda given: comm.recv(given, 0),
        ]
        for call in calls:
            if make() is None and call is calls[4]:
                continue  # the same as none given
            with pytest.raises(InvalidArgumentError, match=word):
                call(make())
        assert comm.allreduce(np.ones(1)) == comm.size

    on_ranks(body)


# Goal: a NumPy scalar is a number to the caller, of any kind, and never written.
def test_a_scalar_comes_back_as_a_scalar() -> None:
    def body(comm: Communicator) -> None:
        for kind in (
            np.float64,
            np.float32,
            np.float16,
            np.int64,
            np.uint8,
            np.complex64,
            np.bool_,
        ):
            one = kind(1)
            expected = np.add.reduce([one] * SIZE, dtype=kind)
            for result in (comm.allreduce(one), comm.allreduce_async(one).wait()):
                assert type(result) is kind
                assert result == expected
            assert type(comm.broadcast(one, root=1)) is kind
            reduced = comm.reduce(one, root=1)
            assert type(reduced) is (kind if comm.rank == 1 else type(None))
            assert comm.allgather(one).tolist() == [one] * SIZE
            out = np.zeros((), kind)
            assert comm.allreduce(one, out) is out
            assert out == expected
            with pytest.raises(InvalidArgumentError, match="'out' is read-only"):
                comm.allreduce(one, one)
            whole = comm.allreduce(np.ones((), kind))  # an array stays one
            assert type(whole) is np.ndarray
            assert whole.shape == ()

    on_ranks(body)


class Tagged(np.ndarray):  # type: ignore[type-arg]
    """An array with a name."""


def test_subclasses_are_arrays() -> None:
    def body(comm: Communicator) -> None:
        for given in (np.ones(4).view(Tagged), np.ones((2, 2)).view(np.matrix)):
            for result in (comm.allreduce(given), comm.broadcast(given)):
                assert type(result) is np.ndarray
                assert result.shape == given.shape
            assert comm.allreduce(given, given) is given
            assert (given == SIZE).all()

    on_ranks(body)


def test_no_elements_whatever_the_strides() -> None:
    def body(comm: Communicator) -> None:
        odd = np.lib.stride_tricks.as_strided(np.ones(4), (0, 3), (-24, 5))
        for given in (odd, np.ones((3, 0))[:, ::-1], array.array("d"), memoryview(b"")):
            assert comm.allreduce(given).size == 0

    on_ranks(body)


# Goal: memory that an operation uses does not move or shrink under it.
# Method: ask the owner to while the operation waits for a rank that has not started it yet.
def test_a_buffer_cannot_be_resized_while_it_is_used() -> None:
    asked = threading.Event()

    def body(comm: Communicator) -> None:
        growing = bytearray(100)
        mapped = mmap.mmap(-1, 4096)
        if comm.rank != 0:
            assert asked.wait(30)
        requests = [comm.allreduce_async(held, held) for held in (growing, mapped)]
        if comm.rank == 0:
            with pytest.raises(BufferError):
                growing.extend(bytes(1 << 20))
            with pytest.raises(BufferError):
                mapped.close()
            asked.set()
        while requests:
            requests.pop().wait()
        growing.extend(b"1")
        mapped.close()

    on_ranks(body)


# Goal: an array that DLPack or its exporter calls read-only is never a result's place.
def test_read_only_exporters_are_not_written() -> None:
    class Frozen:
        def __init__(self) -> None:
            self.array = np.zeros(3)
            self.array.flags.writeable = False

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    def body(comm: Communicator) -> None:
        frozen = Frozen()
        for call in (comm.allreduce, comm.broadcast):
            with pytest.raises(InvalidArgumentError, match="read-only"):
                call(np.ones(3), frozen)
        assert not frozen.array.any()

    on_ranks(body)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about what is young
def test_tensors_without_plain_memory_are_refused() -> None:
    torch = pytest.importorskip("torch")
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    refused = {
        "null": freed,
        "not contiguous": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "dtype quint8": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "dtype complex32": torch.ones(3, dtype=torch.complex32),
        "on meta": torch.ones(3, device="meta"),
        "sparse": torch.eye(3).to_sparse_csr(),
        r"shape \(3, 4\)": torch.ones(1, 4).expand(3, 4),
    }

    def body(comm: Communicator) -> None:
        for word, tensor in refused.items():
            with pytest.raises(InvalidArgumentError, match=word):
                comm.allreduce(tensor)
        with pytest.raises(InvalidArgumentError, match="without memory of its own"):
            torch.func.vmap(comm.allreduce)(torch.ones(2, 3))
        leaf = torch.ones(3, requires_grad=True)
        assert comm.allreduce(leaf).tolist() == [SIZE] * 3
        assert comm.allreduce(torch.ones(())).tolist() == SIZE

    on_ranks(body)


def test_empty_checks_its_shape() -> None:
    from farandole.core import job

    (context,) = _native.inproc(1)
    job._context = context
    try:
        for shape in (-1, (2, -1), 1.5, (2**40, 2**40), (2**32, 2**32), None, "ab"):
            with pytest.raises(InvalidArgumentError, match="'shape' is"):
                job.empty(shape)  # type: ignore[arg-type]
        for dtype in (BIG, "object", "datetime64[s]"):
            with pytest.raises(InvalidArgumentError, match="'dtype' is"):
                job.empty(3, dtype)
        assert job.empty(np.int64(3)).shape == (3,)  # type: ignore[arg-type]
        assert job.empty([2, np.int8(3)], np.int16).shape == (2, 3)  # type: ignore[arg-type]
    finally:
        job._context = None
        context.shutdown()
