# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: messages and communicators between real processes, on one host and on several pretended
ones; a rank that is killed in the middle of either raises RankFailed where it is needed, and only
there.

Method: four ranks run a small program; hosts are told apart by FARANDOLE_HOST_ID. A rank that is
to die kills itself, so that the others are known to be in the operation that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

Start = Callable[..., Job]
Write = Callable[[str], Path]

RANKS = 4
TRANSPORTS = ("shm", "tcp")

HEAD = """
import os, signal, time
import numpy as np
import farandole

farandole.init()
comm, rank, size = farandole.world(), farandole.rank(), farandole.size()
right, left = (rank + 1) % size, (rank - 1) % size

def total(group, value):
    return int(group.allreduce(np.array([value]))[0])

def die():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

def must_fail(call):
    since = time.monotonic()
    try:
        call()
    except farandole.RankFailed as failed:
        assert failed.rank == 2, failed
        assert time.monotonic() - since < 5
    else:
        raise AssertionError("nothing failed")

def say_ok():
    os.write(1, b"ok\\n")
"""

EXCHANGE = """
for count in (0, 1, 1000, 300_000):
    own = np.arange(count) + 10**7 * rank
    out = np.empty_like(own)
    comm.sendrecv(own, right, out, left)
    assert (out == np.arange(count) + 10**7 * left).all()
    blocks = np.repeat(np.arange(size) + 10 * rank, count)
    wanted = np.repeat(10 * np.arange(size) + rank, count)
    assert (comm.alltoall(blocks) == wanted).all()
say_ok()
"""

HOSTS = """
node, across = comm.node, comm.across
assert node.size == 2 and across.size == 2, (node.size, across.size)
assert node.world_ranks == [rank - rank % 2, rank - rank % 2 + 1], node.world_ranks
assert across.world_ranks == [rank % 2, 2 + rank % 2], across.world_ranks
assert total(node, rank) == 1 + 4 * (rank // 2)
assert total(across, rank) == 2 + 2 * (rank % 2)
for _ in range(50):
    with comm.split(rank % 2) as part:
        assert total(part, rank) == 2 + 2 * (rank % 2)
say_ok()
"""

DEATHS = {
    "recv": "comm.recv(np.empty(10), 2)",
    "send": "comm.send(np.ones(10**7), 2)",
    "recv_of_others": "comm.recv(np.empty(10), (rank + 1) % 2)",
    "alltoall": "comm.alltoall(np.ones(4 * size))",
    "split": "comm.split(0)",
    "create_group": "comm.create_group([3, 2, 1, 0], timeout=60)",
}

DEATH = """
comm.barrier()
if rank == 2:
    die()
must_fail(lambda: {call})
must_fail(lambda: comm.barrier())
say_ok()
"""

DEATH_ELSEWHERE = """
pair = comm.split(rank // 2)
assert total(pair, 1) == 2
comm.barrier()
if rank == 2:
    die()
if rank == 3:
    must_fail(lambda: pair.allreduce(np.ones(10)))
    time.sleep(1)  # so that nobody hears of this rank's end first
else:
    for _ in range(1000):
        assert total(pair, 1) == 2
    must_fail(lambda: comm.allreduce(np.ones(10)))
    assert total(pair, 1) == 2
    other, out = 1 - pair.rank, np.empty(1, np.int64)
    assert pair.sendrecv(np.array([rank]), other, out, other).tolist() == [1 - rank]
say_ok()
"""

GROUP_OF_THE_LIVING = """
comm.barrier()
if rank == 2:
    die()
must_fail(lambda: comm.barrier())
for tag in range(3):
    with comm.create_group([3, 0, 1], tag) as living:
        assert total(living, rank) == 4
        assert total(living.split(0, -living.rank), 1) == 3
must_fail(lambda: comm.create_group([rank, 2]))
say_ok()
"""

ABORT = """
for round in range(8):
    group = comm.split(0)
    if rank == 1:
        group.abort(f"reason {round}")
    try:
        group.allreduce(np.ones(300_000))
    except farandole.AbortedError as aborted:
        assert aborted.rank == 1 and f"reason {round}" in str(aborted), aborted
    else:
        raise AssertionError("nothing was aborted")
    assert total(comm, 1) == size
say_ok()
"""


def oks(job: Job) -> int:
    job.finish()
    assert "Assertion" not in job.stderr, job.stderr
    return job.stdout.count("ok\n")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_and_alltoall(start: Start, write: Write, transport: str) -> None:
    job = start("-n", str(RANKS), write(HEAD + EXCHANGE), FARANDOLE_TRANSPORT=transport)
    assert oks(job) == RANKS, job.stderr


def test_hosts(start: Start, write: Write) -> None:
    hosts = 'import os\nos.environ["FARANDOLE_HOST_ID"] = str(int(os.environ["RANK"]) // 2)\n'
    job = start("-n", str(RANKS), write(hosts + HEAD + HOSTS))
    assert oks(job) == RANKS, job.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("operation", DEATHS)
def test_a_rank_dies(start: Start, write: Write, transport: str, operation: str) -> None:
    program = write(HEAD + DEATH.format(call=DEATHS[operation]))
    job = start("-n", str(RANKS), program, FARANDOLE_TRANSPORT=transport)
    assert oks(job) == RANKS - 1, job.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_only_communicators_of_the_dead_break(start: Start, write: Write, transport: str) -> None:
    job = start("-n", str(RANKS), write(HEAD + DEATH_ELSEWHERE), FARANDOLE_TRANSPORT=transport)
    assert oks(job) == RANKS - 1, job.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_living_make_a_communicator(start: Start, write: Write, transport: str) -> None:
    program = write(HEAD + GROUP_OF_THE_LIVING)
    job = start("-n", str(RANKS), program, FARANDOLE_TRANSPORT=transport)
    assert oks(job) == RANKS - 1, job.stderr


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_communicator_is_aborted(start: Start, write: Write, transport: str) -> None:
    job = start("-n", str(RANKS), write(HEAD + ABORT), FARANDOLE_TRANSPORT=transport)
    assert oks(job) == RANKS, job.stderr
