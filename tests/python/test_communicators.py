# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: communicators come from splits, lists and hosts, work side by side, and go again.

Method: ranks are threads over real engines.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from rank_threads import on_ranks

from farandole.core.communicator import Communicator
from farandole.errors import AbortedError, FarandoleError, InvalidArgumentError, TimedOutError


def total(comm: Communicator, value: int) -> int:
    return int(comm.allreduce(np.array([value]))[0])


def test_split() -> None:
    def body(comm: Communicator) -> None:
        part = comm.split(None if comm.rank == 2 else comm.rank % 2, key=-comm.rank)
        if comm.rank == 2:
            assert part is None
        else:
            assert part is not None
            assert part.world_ranks == ([4, 0] if comm.rank % 2 == 0 else [3, 1])
            assert part.world_ranks[part.rank] == comm.rank
            assert total(part, comm.rank) == 4
        assert total(comm, 1) == 5

    on_ranks(body, size=5)


def test_groups_of_lists_and_hosts() -> None:
    def body(comm: Communicator) -> None:
        part = comm.group([2, 0])
        assert (part is None) == (comm.rank == 1)
        if part is not None:
            assert part.world_ranks == [2, 0]
        assert comm.node.world_ranks == [0, 1, 2]
        assert comm.node is comm.node
        assert comm.across.world_ranks == [comm.rank]
        with pytest.raises(InvalidArgumentError, match="'ranks'"):
            comm.group([0, 0])

    on_ranks(body)


def test_free_and_with() -> None:
    def body(comm: Communicator) -> None:
        for _ in range(100):
            part = comm.split(0)
            assert part is not None
            with part:
                assert total(part, 1) == 3
            with pytest.raises(InvalidArgumentError, match="was freed"):
                part.barrier()
        with pytest.raises(InvalidArgumentError, match="world"):
            comm.free()

    on_ranks(body)


def test_two_threads_with_a_communicator_each() -> None:
    def body(comm: Communicator) -> None:
        parts = [comm.split(0, key) for key in (comm.rank, -comm.rank)]
        sums: list[list[int]] = [[], []]

        def work(which: int) -> None:
            part = parts[which]
            assert part is not None
            sums[which] = [total(part, i) for i in range(50)]

        threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums == [[3 * i for i in range(50)]] * 2

    on_ranks(body)


def test_the_choice_of_an_algorithm_can_be_asked_for_and_changed() -> None:
    def body(communicator: Communicator) -> None:
        before = communicator.algorithm("allreduce", 4096)
        other = "ring" if before != "ring" else "rabenseifner"
        communicator.set_algorithm("allreduce", 4096, other)
        assert communicator.algorithm("allreduce", 4096) == other
        assert communicator.algorithm("allreduce", 1 << 24) != ""
        values = np.ones(1024, np.float32)
        communicator.allreduce(values, out=values)
        assert values[0] == communicator.size
        communicator.set_algorithm("allreduce", 4096, None)
        assert communicator.algorithm("allreduce", 4096) == before
        with pytest.raises(InvalidArgumentError, match=r"'collective' is 'sum', allowed are"):
            communicator.algorithm("sum", 1)
        with pytest.raises(InvalidArgumentError, match=r"'nbytes' is -1, allowed is 0 or more"):
            communicator.set_algorithm("allreduce", -1, None)
        with pytest.raises(InvalidArgumentError, match=r"nonsense"):
            communicator.set_algorithm("allreduce", 1, "nonsense")

    on_ranks(body)


def test_create_group() -> None:
    def body(comm: Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            return
        with comm.create_group([2, 0], tag=5, timeout=60) as part:
            assert part.world_ranks == [2, 0]
            assert total(part, comm.rank) == 2
        with pytest.raises(TimedOutError, match=r"tag 6: rank 1 did not come within"):
            comm.create_group([0, 1, 2], tag=6, timeout=0.5)
        for arguments, message in (
            (([3],), "'ranks' is 3"),
            (([1],), "without this rank"),
            (([0, 2, 0],), "once at most"),
            (([0, 2], 2**31), "'tag' is 2147483648"),
            (([0, 2], 0, 0), "'timeout' is 0"),
        ):
            with pytest.raises(InvalidArgumentError, match=message):
                comm.create_group(*arguments)

    on_ranks(body)


def test_abort() -> None:
    def body(comm: Communicator) -> None:
        part, other = comm.split(0), comm.split(0)
        assert part is not None
        assert other is not None
        if comm.rank == 2:
            part.abort("out of paper")
        with pytest.raises(
            AbortedError, match=r"rank 2 .* aborted communicator.*out of paper"
        ) as a:
            part.allreduce(np.ones(10))
        assert a.value.rank == 2
        with pytest.raises(AbortedError) as b:
            part.allgather(np.ones(1))
        assert str(a.value) == str(b.value)
        assert total(other, 1) == 3
        with pytest.raises(InvalidArgumentError, match="'reason' is 3"):
            other.abort(3)  # type: ignore[arg-type]

    on_ranks(body)


# Goal: each function is called once with what the operation came to, on the library's thread or, if
# it has ended, on this one; an exception there reaches sys.unraisablehook and nothing else.
def test_on_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)

    def body(comm: Communicator) -> None:
        told: list[tuple[FarandoleError | None, str]] = []
        done = threading.Semaphore(0)

        def tell(error: FarandoleError | None) -> None:
            told.append((error, threading.current_thread().name))
            done.release()

        for _ in range(100):
            comm.allreduce_async(np.ones(4)).on_complete(tell)  # nobody keeps the request
        for _ in range(100):
            assert done.acquire(timeout=60)
        assert {error for error, _ in told} == {None}
        request = comm.allreduce_async(np.ones(4))
        request.wait()
        request.on_complete(tell)
        assert told[100:] == [(None, threading.current_thread().name)]

        part = comm.split(0)
        assert part is not None
        if comm.rank == 0:
            failing = part.barrier_async()
            failing.on_complete(lambda error: 1 / 0)
            failing.on_complete(tell)
            comm.barrier()
            assert done.acquire(timeout=60)
            assert done.acquire(timeout=60)
            error, thread = told[-1]
            assert isinstance(error, AbortedError)
            assert thread == "farandole-completions"
        else:
            comm.barrier()
            part.abort("enough")
        with pytest.raises(InvalidArgumentError, match="'told' is 3"):
            request.on_complete(3)  # type: ignore[arg-type]

    on_ranks(body)
    assert [one.exc_type for one in raised] == [ZeroDivisionError]
