# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: contexts come from Job values over any store, several in one process, without environment
variables.

Method: ranks are threads, each with a store object of its own, as processes would have; torch's
stores are the real ones. Once they are processes.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farandole
from farandole.errors import InternalError, InvalidArgumentError, TimedOutError

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

SIZE = 3
LIMIT = timedelta(seconds=60)
Stores = Callable[[int], Any]


def on_threads(body: Callable[[int], None], size: int = SIZE) -> None:
    """Runs body(rank) on a thread per rank; the first exception is raised here."""
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            body(rank)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]


def tcp_stores(tmp_path: Path) -> Stores:
    master = dist.TCPStore("127.0.0.1", 0, None, True, LIMIT, wait_for_workers=False)
    return lambda rank: (
        master if rank == 0 else dist.TCPStore("127.0.0.1", master.port, None, False, LIMIT)
    )


def prefix_stores(tmp_path: Path) -> Stores:
    make = tcp_stores(tmp_path)
    return lambda rank: dist.PrefixStore("of this test", make(rank))


def torch_file_stores(tmp_path: Path) -> Stores:
    return lambda rank: dist.FileStore(str(tmp_path / "file"), -1)


def hash_stores(tmp_path: Path) -> Stores:
    store = dist.HashStore()
    return lambda rank: store


def own_file_stores(tmp_path: Path) -> Stores:
    return lambda rank: farandole.FileStore(tmp_path / "folder")


def memory_stores(tmp_path: Path) -> Stores:
    store = farandole.MemoryStore()
    return lambda rank: store


ALL = [
    tcp_stores,
    prefix_stores,
    torch_file_stores,
    hash_stores,
    own_file_stores,
    memory_stores,
]


def total(context: farandole.Context, value: int) -> int:
    return int(context.world.allreduce(np.array([value]))[0])


@pytest.mark.parametrize("make", ALL)
def test_any_store_and_many_generations(make: Callable[[Path], Stores], tmp_path: Path) -> None:
    stores = make(tmp_path)

    def body(rank: int) -> None:
        store = stores(rank)
        for epoch in range(3):
            order = (rank + epoch) % SIZE  # another rank in each generation
            job = farandole.Job(
                rank=order, size=SIZE, store=store, prefix=f"epoch {epoch}", secret="known to us"
            )
            with farandole.Context(job) as context:
                assert (context.rank, context.size, context.local_size) == (order, SIZE, SIZE)
                assert total(context, 10**rank) == 111
                assert [member["rank"] for member in context.members] == [0, 1, 2]

    on_threads(body)


# Goal: torch's store has no place for a secret, unless its user says so.
@pytest.mark.parametrize("trust", [False, True])
def test_the_secret_is_in_a_trusted_store_only(
    trust: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARANDOLE_SECRET", "of the environment")
    store = dist.HashStore()

    def body(rank: int) -> None:
        job = farandole.Job(rank=rank, size=2, store=store, trust_store=trust)
        with farandole.Context(job) as context:
            assert total(context, 1) == 2

    on_threads(body, 2)
    assert store.check(["farandole/rank 0"])
    assert store.check(["farandole/secret"]) == trust


# Goal: two jobs of one process, over two stores, do not touch each other; one ends, one goes on.
def test_two_jobs_at_once(tmp_path: Path) -> None:
    first, second = farandole.MemoryStore(), dist.HashStore()

    def body(rank: int) -> None:
        one = farandole.Context(farandole.Job(rank=rank, size=3, store=first))
        two = farandole.Context(farandole.Job(rank=2 - rank, size=3, store=second, secret="s"))
        for i in range(20):
            assert total(one, i) == 3 * i
            assert total(two, 2 * i) == 6 * i
        one.shutdown()
        with pytest.raises(InvalidArgumentError, match="shut down"):
            one.world.barrier()
        assert total(two, 1) == 3
        two.shutdown()

    on_threads(body)


@pytest.mark.parametrize("make", ALL)
def test_rank_0_does_not_come(make: Callable[[Path], Stores], tmp_path: Path) -> None:
    stores = make(tmp_path)
    keep = stores(0)
    job = farandole.Job(rank=1, size=2, store=stores(1), secret="s", start_timeout=0.2)
    with pytest.raises(TimedOutError, match=r"rank 0 did not come.*within 0\.2 s"):
        farandole.Context(job)
    del keep


def test_another_rank_does_not_come() -> None:
    def body(rank: int) -> None:
        if rank == 1:
            return
        job = farandole.Job(rank=rank, size=3, store=store, start_timeout=0.3)
        with pytest.raises(TimedOutError, match="rank 1 of 3 did not come"):
            farandole.Context(job)

    store = farandole.MemoryStore()
    on_threads(body)


def test_a_prefix_is_used_once() -> None:
    store = dist.HashStore()

    def job(rank: int, prefix: str) -> farandole.Job:
        return farandole.Job(rank=rank, size=2, store=store, prefix=prefix, secret="s")

    def body(rank: int) -> None:
        with farandole.Context(job(rank, "used")) as context:
            context.world.barrier()

    on_threads(body, 2)
    with pytest.raises(InvalidArgumentError, match="prefix 'used'"):
        farandole.Context(dataclasses.replace(job(0, "used"), start_timeout=5))


class Broken:
    """A store whose calls raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def set(self, key: str, value: bytes) -> None:
        raise self.error

    def get(self, key: str) -> bytes:
        raise self.error

    def add(self, key: str, amount: int) -> int:
        raise self.error

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        raise self.error


def test_what_a_store_raises_is_told() -> None:
    for rank in (0, 1):
        job = farandole.Job(rank=rank, size=2, store=Broken(OSError("no disk")), secret="s")
        with pytest.raises(InternalError, match=rf"rank {rank} .* the Broken: OSError: no disk"):
            farandole.Context(job)
        job = farandole.Job(rank=rank, size=2, store=Broken(KeyboardInterrupt()), secret="s")
        with pytest.raises(KeyboardInterrupt):
            farandole.Context(job)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "'size' is 0"),
        ({"rank": 2}, "'rank' is 2, allowed is a rank from 0 to 1"),
        ({"rank": "one"}, "'rank' is 'one'"),
        ({"local_rank": 2}, "'local_rank' is 2"),
        ({"local_size": 3}, "'local_size' is 3"),
        ({"port": 70000}, "'port' is 70000"),
        ({"prefix": ""}, "prefix is 0 bytes"),
        ({"prefix": 3}, "'prefix' is 3"),
        ({"timeout": 0}, "'timeout' is 0"),
        ({"start_timeout": "soon"}, "'start_timeout' is 'soon'"),
        ({"secret": ""}, "'secret' is empty"),
        ({"store": 3}, "'store' is a int without set, get, add, wait"),
        ({"store": None}, "neither a store nor an address"),
    ],
)
def test_bad_jobs(fields: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"rank": 1, "size": 2, "store": farandole.MemoryStore()}
    with pytest.raises(InvalidArgumentError, match=message):
        farandole.Context(farandole.Job(**good | fields))


def test_a_secret_is_not_shown() -> None:
    assert "hush" not in repr(farandole.Job(rank=0, size=1, secret="hush"))


def test_stores_by_themselves(tmp_path: Path) -> None:
    for store in (farandole.MemoryStore(), farandole.FileStore(tmp_path / "new")):
        store.set("key", b"a\0b")
        assert store.get("key", 1) == b"a\0b"
        store.set("key", "text")
        assert store.get("key", 1) == b"text"
        assert [store.add("count", n) for n in (1, 5, -2)] == [1, 6, 4]
        with pytest.raises(TimedOutError, match="'none'"):
            store.get("none", 0.01)
    with pytest.raises(InvalidArgumentError, match="/no/such"):
        farandole.FileStore("/no/such/folder")


PROGRAM = """
import sys
import numpy, farandole
rank, folder = int(sys.argv[1]), sys.argv[2]
farandole.init(farandole.Job(rank=rank, size=3, store=farandole.FileStore(folder)))
sums = farandole.allreduce(numpy.arange(4) + rank)
part = farandole.create_group([2, 0], tag=1) if rank != 1 else None
mine = int(part.allreduce(numpy.array([rank + 1]))[0]) if part else 0
print(farandole.rank(), sums.tolist(), mine, flush=True)
"""


# Goal: farandole.init(job) in processes that nobody started as ranks, and groups among them.
def test_processes_over_files(tmp_path: Path) -> None:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("FARANDOLE_")}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(tmp_path / "files")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert said == [f"{r} [3, 6, 9, 12] {0 if r == 1 else 4}\n" for r in range(3)]
