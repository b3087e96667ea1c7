# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: messages between two ranks, alone and in batches, from Python.

Method: ranks are threads over real engines; values are unique to (rank, index).
"""

from __future__ import annotations

import numpy as np
import pytest
from rank_threads import SIZE, on_ranks

from farandole import Recv, Send
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError, MismatchError


@pytest.mark.parametrize("transport", ["inproc", "shm", "tcp"])
@pytest.mark.parametrize("count", [0, 1, 70_000])
def test_around_a_ring(transport: str, count: int) -> None:
    def body(comm: Communicator) -> None:
        right, left = (comm.rank + 1) % SIZE, (comm.rank - 1) % SIZE
        own = np.arange(count) + 10**6 * comm.rank
        wanted = np.arange(count) + 10**6 * left
        out = np.empty_like(own)
        assert comm.sendrecv(own, right, out, left) is out
        np.testing.assert_array_equal(out, wanted)
        requests = [comm.recv_async(np.empty_like(own), left), comm.send_async(own, right)]
        np.testing.assert_array_equal(requests[0].wait(), wanted)
        requests[1].wait()
        first, second = np.empty_like(own), np.empty_like(own)
        got = comm.batch_async(
            [Recv(first, left), Send(own, right), Send(own, comm.rank), Recv(second, comm.rank)]
        ).wait()
        assert got[0] is first
        assert got[1] is second
        np.testing.assert_array_equal(first, wanted)
        np.testing.assert_array_equal(second, own)

    on_ranks(body, transport)


def test_blocking_and_order() -> None:
    def body(comm: Communicator) -> None:
        for round_ in range(20):
            if comm.rank == 0:
                comm.send(np.full(5, round_), 1)
            elif comm.rank == 1:
                assert comm.recv(np.empty(5, np.int64), 0).tolist() == [round_] * 5
            if round_ % 7 == 0:
                comm.barrier()

    on_ranks(body)


def test_errors() -> None:
    def body(comm: Communicator) -> None:
        own = np.arange(4)
        for call, word in [
            (lambda: comm.send(own, SIZE), "'dest' is 3"),
            (lambda: comm.recv(own, -1), "'source' is -1"),
            (lambda: comm.send(own, comm.rank), "this rank itself"),
            (lambda: comm.recv(np.arange(8)[::2], 0), "'out' is an array with strides"),
            (lambda: comm.batch([own]), "holds a ndarray"),
        ]:
            with pytest.raises(InvalidArgumentError, match=word):
                call()
        if comm.rank == 0:
            comm.send(own, 1)
            comm.send(own, 1)
        elif comm.rank == 1:
            with pytest.raises(MismatchError, match=r"int64\[4\].*float32\[4\]"):
                comm.recv(np.empty(4, np.float32), 0, name="halo")
            assert comm.recv(np.empty(4, np.int64), 0).tolist() == [0, 1, 2, 3]

    on_ranks(body)
