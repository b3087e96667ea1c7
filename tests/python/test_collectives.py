# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: collectives on NumPy arrays and on anything with DLPack or the buffer protocol.

Method: ranks are threads of this process, over real engines; results are compared with NumPy, on
values that are unique to (rank, index).
"""

from __future__ import annotations

import array
import gc
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rank_threads import SIZE, on_ranks

from farandole import _native
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError, MismatchError, RankFailed


def mine(rank: int, count: int = 12) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.float32) + 100 * rank


def everybody(count: int = 12) -> np.ndarray[Any, Any]:
    return np.stack([mine(rank, count) for rank in range(SIZE)])


@pytest.mark.parametrize("transport", ["inproc", "shm", "tcp"])
def test_results_are_those_of_numpy(transport: str) -> None:
    def body(comm: Communicator) -> None:
        own = mine(comm.rank)
        np.testing.assert_array_equal(comm.allreduce(own), everybody().sum(0))
        np.testing.assert_array_equal(comm.allreduce(own, op="max"), everybody().max(0))
        np.testing.assert_array_equal(comm.allreduce(own, op="average"), everybody().mean(0))
        scaled = comm.allreduce(own, op="premultiplied_sum", factor=0.5)
        np.testing.assert_array_equal(scaled, everybody().sum(0) / 2)
        np.testing.assert_array_equal(comm.allgather(own), everybody().reshape(-1))
        part = comm.reducescatter(own)
        np.testing.assert_array_equal(part, np.split(everybody().sum(0), SIZE)[comm.rank])
        for root in range(SIZE):
            np.testing.assert_array_equal(comm.broadcast(own, root=root), mine(root))
        np.testing.assert_array_equal(own, mine(comm.rank))  # inputs are left alone
        comm.barrier()

    on_ranks(body, transport)


def test_shapes() -> None:
    def body(comm: Communicator) -> None:
        block = np.full((2, 3), comm.rank, np.int32)
        assert comm.allgather(block).shape == (2 * SIZE, 3)
        assert comm.allgather(np.array(comm.rank)).tolist() == list(range(SIZE))
        assert comm.reducescatter(np.ones((SIZE * 2, 5))).shape == (2, 5)
        assert comm.allreduce(np.zeros((0, 4))).shape == (0, 4)
        with pytest.raises(InvalidArgumentError, match=r"'array' has shape \(4,\)"):
            comm.reducescatter(np.ones(SIZE + 1))

    on_ranks(body)


def test_in_place_and_out() -> None:
    def body(comm: Communicator) -> None:
        own = mine(comm.rank)
        assert comm.allreduce(own, own) is own
        np.testing.assert_array_equal(own, everybody().sum(0))
        out = np.empty_like(own)
        assert comm.broadcast(own, out, root=1) is out
        for bad, word in [
            (np.empty(11, np.float32), "shape"),
            (np.empty(12, np.float64), "dtype"),
            (own[::2], "strides"),
        ]:
            with pytest.raises(InvalidArgumentError, match=word):
                comm.allreduce(own, bad)
        fixed = np.empty_like(own)
        fixed.flags.writeable = False
        with pytest.raises(InvalidArgumentError, match="read-only"):
            comm.allreduce(own, fixed)
        with pytest.raises(InvalidArgumentError, match="read-only"):
            comm.allreduce(fixed, fixed)

    on_ranks(body)


def test_only_this_machines_byte_order() -> None:
    def body(comm: Communicator) -> None:
        swapped = mine(comm.rank).astype(np.dtype(np.float32).newbyteorder())
        for call in (comm.allreduce, comm.allgather):
            with pytest.raises(InvalidArgumentError, match="byte order"):
                call(swapped)

    on_ranks(body)


@pytest.mark.parametrize("name", [*np.typecodes["AllInteger"], *"?efdFD", "bfloat16"])
def test_dtypes(name: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)

    def body(comm: Communicator) -> None:
        result = comm.allreduce(np.ones(5, dtype))
        assert result.dtype == dtype
        assert result.astype(np.complex128).tolist() == [1 if name == "?" else SIZE] * 5

    on_ranks(body)


class Foreign:
    """An array of a library that we never heard of."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_dlpack_and_buffer_protocol() -> None:
    torch = pytest.importorskip("torch")

    def body(comm: Communicator) -> None:
        tensor = torch.full((4,), comm.rank + 1, dtype=torch.bfloat16)
        assert comm.allreduce(tensor, tensor) is tensor
        assert tensor.tolist() == [6.0] * 4
        ones = torch.ones(4)
        for wrong in (torch.ones(4, 4).t(), ones.to_sparse(), ones.to("meta")):
            with pytest.raises(InvalidArgumentError, match="contiguous"):
                comm.allreduce(wrong)
        for wrong in (ones.to(torch.complex64).conj(), torch._neg_view(ones)):
            with pytest.raises(InvalidArgumentError, match="resolve_conj"):
                comm.allreduce(wrong)
        parameter = torch.nn.Parameter(torch.ones(2, 2))
        assert comm.allreduce(parameter).tolist() == [[float(SIZE)] * 2] * 2
        foreign = Foreign(mine(comm.rank))
        np.testing.assert_array_equal(comm.allreduce(foreign), everybody().sum(0))
        with pytest.raises(InvalidArgumentError, match="contiguous"):
            comm.allreduce(Foreign(mine(comm.rank)[::2]))
        raw = array.array("B", [comm.rank] * 4)
        assert comm.broadcast(raw, root=2).tolist() == [2] * 4
        with pytest.raises(InvalidArgumentError, match="is a list"):
            comm.allreduce([1, 2, 3])

    on_ranks(body)


def test_requests() -> None:
    def body(comm: Communicator) -> None:
        requests = [comm.allreduce_async(mine(comm.rank) + i, name=f"t{i}") for i in range(20)]
        for i, request in reversed(list(enumerate(requests))):
            np.testing.assert_array_equal(request.wait(), everybody().sum(0) + SIZE * i)
            assert request.test()
        gathered = comm.allgather_async(mine(comm.rank))
        part = comm.reducescatter_async(mine(comm.rank))
        copy = comm.broadcast_async(mine(comm.rank), root=1)
        np.testing.assert_array_equal(copy.wait(), mine(1))
        np.testing.assert_array_equal(gathered.wait(), everybody().reshape(-1))
        assert part.wait().shape == (12 // SIZE,)

    on_ranks(body)


def test_errors_name_what_was_given() -> None:
    def body(comm: Communicator) -> None:
        own = mine(comm.rank)
        with pytest.raises(InvalidArgumentError, match="'op' is 'plus'"):
            comm.allreduce(own, op="plus")
        with pytest.raises(InvalidArgumentError, match="'root' is 3, allowed is a rank from 0"):
            comm.broadcast(own, root=3)
        with pytest.raises(InvalidArgumentError, match="teleport"):
            comm.allreduce(own, algorithm="teleport")
        with pytest.raises(InvalidArgumentError, match="datetime64"):
            comm.allreduce(np.zeros(3, "datetime64[s]"))
        with pytest.raises(ValueError, match="bitwise_and"):  # also a ValueError
            comm.allreduce(own, op="bitwise_and")
        for wrong in ({"dtype": 99}, {"reduction": "sum"}, {"collective": 0}):
            with pytest.raises(TypeError):
                _native.Arguments(**({"collective": _native.Collective.barrier} | wrong))
        odd = own[:5].copy() if comm.rank == 1 else own
        with pytest.raises(MismatchError, match=r"rank 1 .*float32\[5\]"):
            comm.allreduce(odd, name="grad")
        np.testing.assert_array_equal(comm.allreduce(own), everybody().sum(0))

    on_ranks(body)


# Goal: a wrong value of any option is named, at once and on the way through the background, and no
# list of C++ overloads is all that a user gets.
def test_options_of_other_types_are_named() -> None:
    def body(comm: Communicator) -> None:
        own = mine(comm.rank)
        wrong: list[dict[str, Any]] = [
            {"op": ["sum"]},
            {"op": None},
            {"name": 3},
            {"algorithm": b"ring"},
            {"factor": "2"},
            {"deterministic": 1},
        ]
        for options in wrong:
            (argument,) = options
            for call in (comm.allreduce, comm.allreduce_async, comm.reducescatter):
                with pytest.raises(InvalidArgumentError, match=f"'{argument}' is .*allowed"):
                    call(own, **options)
        for root in (1.0, None, "0", 2**40, -1):
            for rooted in (comm.broadcast, comm.gather, comm.reduce, comm.scatter):
                with pytest.raises(InvalidArgumentError, match=r"'root' is .*allowed is a rank"):
                    rooted(own, root=root)
            with pytest.raises(InvalidArgumentError, match=r"'dest' is .*allowed is a rank"):
                comm.send(own, root)
        with pytest.raises(InvalidArgumentError, match="'name' is 3"):
            comm.send(own, 0, name=3)
        with pytest.raises(InvalidArgumentError, match=r"'color' is 1\.5"):
            comm.split(1.5)
        with pytest.raises(InvalidArgumentError, match="'key' is 'a'"):
            comm.split(1, "a")
        with pytest.raises(InvalidArgumentError, match="'ranks' is None"):
            comm.group([0, None])
        np.testing.assert_array_equal(comm.allreduce(own), everybody().sum(0))

    on_ranks(body)


# Goal: what a rank sends itself and takes from itself has one length, or nothing is written.
# Method: both directions, with an `out` in the middle of a larger array; the native call, which has
# no other check before it, too.
def test_a_ranks_own_rows_have_one_length_in_alltoall() -> None:
    def body(comm: Communicator) -> None:
        for sent, received in [(50, 1), (1, 50)]:
            data = np.ones(sent * comm.size, np.float32)
            around = np.full(4000, -1, np.float32)
            out = around[1000 : 1000 + received * comm.size]
            counts = ([sent] * comm.size, [received] * comm.size)
            with pytest.raises(InvalidArgumentError, match="'recv_counts' has"):
                comm.alltoall(data, out, send_counts=counts[0], recv_counts=counts[1])
            arguments = _native.Arguments(
                collective=_native.Collective.alltoall,
                input=data.ctypes.data,
                output=out.ctypes.data,
                dtype=_native.DType.float32,
                by_rank=True,
                in_counts=counts[0],
                out_counts=counts[1],
            )
            with pytest.raises(InvalidArgumentError, match="'out_counts' is"):
                comm.native.run(arguments, _native.CallOptions())
            assert (around == -1).all()
        assert comm.allreduce(np.ones(1)) == comm.size

    on_ranks(body)


def test_a_rank_that_left_is_named() -> None:
    contexts = _native.inproc(2)
    contexts[1].shutdown()
    comm = Communicator(contexts[0].world)
    with pytest.raises(RankFailed, match=r"rank 1 .* during allreduce 'grad'") as caught:
        comm.allreduce(mine(0), name="grad")
    assert (caught.value.rank, caught.value.host) == (1, "this process")
    assert caught.value.pid > 0
    assert "grad" in caught.value.operation
    contexts[0].shutdown()


# Goal: memory that the library still writes is not freed with a request that nobody keeps.
# Method: rank 0 drops a request before the others take part; its array lives until it has ended,
# and goes once the next request is made.
def test_a_dropped_request_keeps_its_arrays() -> None:
    started = threading.Event()
    alive = []

    def body(comm: Communicator) -> None:
        if comm.rank == 0:
            data = np.ones(100_000)
            watch = weakref.ref(data)
            comm.allreduce_async(data, out=data)
            del data
            gc.collect()
            alive.append(watch() is not None)
            started.set()
            comm.barrier_async().wait()
            comm.barrier_async().wait()
            gc.collect()
            alive.append(watch() is not None)
            return
        started.wait(30)
        assert (comm.allreduce(np.ones(100_000)) == comm.size).all()
        comm.barrier_async().wait()
        comm.barrier_async().wait()

    on_ranks(body)
    assert alive == [True, False]
