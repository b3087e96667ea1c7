# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: init() to shutdown() of one process, and library-owned memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import numpy as np
import pytest

import farandole
from farandole import _native
from farandole.core import job


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    farandole.init()
    yield
    farandole.shutdown()


def test_alone() -> None:
    farandole.init()  # a second time does nothing
    assert farandole.is_initialized()
    assert (farandole.rank(), farandole.size()) == (0, 1)
    assert (farandole.local_rank(), farandole.local_size()) == (0, 1)
    assert (farandole.cross_rank(), farandole.cross_size()) == (0, 1)
    assert farandole.allreduce(np.arange(3)).tolist() == [0, 1, 2]
    assert farandole.allgather(np.arange(3)).tolist() == [0, 1, 2]
    farandole.barrier()
    assert farandole.statistics()["operations"] == 3


def test_ranks_occupy_a_host_whose_cores_they_all_take() -> None:
    def occupies(rank_count: int, usable: set[int]) -> bool:
        farandole.shutdown()
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, usable)
        try:
            contexts = _native.inproc(rank_count)
        finally:
            os.sched_setaffinity(0, before)
        (answer,) = {context.occupies_host for context in contexts}
        for context in contexts:
            context.shutdown()
        return answer

    cores = os.sched_getaffinity(0)
    online = os.cpu_count() or 1
    assert occupies(online, cores)
    assert occupies(online + 1, cores)
    assert occupies(1, {min(cores)}), "bound to one core"
    assert occupies(1, cores) == (online == 1 or len(cores) == 1)


def test_before_and_after() -> None:
    farandole.shutdown()
    farandole.shutdown()
    assert not farandole.is_initialized()
    with pytest.raises(farandole.FarandoleError, match=r"call farandole\.init"):
        farandole.rank()
    farandole.init()
    assert farandole.size() == 1


def test_owned_memory_lives_as_long_as_its_views() -> None:
    view = farandole.empty((1000, 3), "float64")[10:]
    view[:] = 7
    farandole.shutdown()
    gc.collect()
    assert view.sum() == 990 * 3 * 7


def test_owned_memory_is_reused() -> None:
    first = farandole.empty(1 << 16, "uint8")
    address = first.ctypes.data
    del first
    gc.collect()
    assert farandole.empty(1 << 16, "uint8").ctypes.data == address


@pytest.mark.parametrize("dtype", _native.DTYPES)
def test_owned_memory_has_every_dtype(dtype: str) -> None:
    array = farandole.empty((3, 2), dtype)
    array[:] = 1
    assert farandole.broadcast(array).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("shape", "dtype", "word"), [((2, -1), "float32", "'shape'"), (3, "datetime64[s]", "'dtype'")]
)
def test_bad_requests_are_named(shape: int | tuple[int, ...], dtype: str, word: str) -> None:
    with pytest.raises(farandole.InvalidArgumentError, match=word):
        farandole.empty(shape, dtype)


def test_what_was_added_runs_before_shutdown() -> None:
    """The last addition first, once; and an error in one of them does not spare the others."""
    said: list[object] = []

    def fail() -> None:
        raise ValueError("on purpose")

    job.before_shutdown.append(lambda: said.append(farandole.size()))
    job.before_shutdown.append(fail)
    job.before_shutdown.append(lambda: said.append("last"))
    with pytest.raises(ValueError, match="on purpose"):
        farandole.shutdown()
    assert said == ["last", 1]
    assert not farandole.is_initialized()
    farandole.shutdown()
    assert said == ["last", 1]
