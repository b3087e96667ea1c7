# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: arrays of a GPU go through Python's calls, ordered on their streams, without blocking the
host; nothing is left behind, also of a rank that is killed.

Method: processes on the simulated driver (tests/simcuda); NumPy says what comes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SIMCUDA = Path(__file__).resolve().parents[1] / "simcuda"
sys.path.insert(0, str(SIMCUDA))
import simcuda  # noqa: E402

PROLOGUE = """
import os, signal, sys, time
import numpy as np
import farandole
from farandole.errors import InvalidArgumentError, RankFailed
from simcuda import Array, Driver

farandole.init()
comm, rank, size = farandole.world(), farandole.rank(), farandole.size()
driver = Driver()
stream, other = driver.stream(), driver.stream()

def mine(count=1000, dtype=np.float32):
    return np.arange(count, dtype=dtype) + 100 * rank

def everybody(count=1000, dtype=np.float32):
    return np.stack([np.arange(count, dtype=dtype) + 100 * r for r in range(size)])
"""

EPILOGUE = """
assert driver.races == 0, driver.races
print("done", flush=True)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simcuda.build(tmp_path_factory.mktemp("simcuda"))


@pytest.fixture
def run(library: Path, tmp_path: Path) -> Run:
    def start(source: str, ranks: int = 2, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text(PROLOGUE + source + EPILOGUE)
        return subprocess.run(
            [sys.executable, "-m", "farandole.cli", "run", "-n", str(ranks), str(script)],
            capture_output=True,
            text=True,
            timeout=100,
            env=os.environ
            | {
                "FARANDOLE_CUDA_LIBRARY": str(library),
                "SIMCUDA_SESSION": str(tmp_path / "session"),
                "PYTHONPATH": os.pathsep.join([str(SIMCUDA), os.environ.get("PYTHONPATH", "")]),
            }
            | environment,
        )

    return start


def ends_well(ended: subprocess.CompletedProcess[str], ranks: int = 2) -> None:
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.count("done") == ranks
    assert "simcuda" not in ended.stderr, ended.stderr[-2000:]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_results_are_those_of_numpy(run: Run, seed: int) -> None:
    source = """
array = Array(driver, mine(), stream)
assert comm.allreduce(array, array) is array
np.testing.assert_array_equal(array.get(), everybody().sum(0))

array, out = Array(driver, mine(), stream), Array(driver, np.zeros(1000 * size, np.float32), stream)
request = comm.allgather_async(array, out)
assert request.wait() is out
np.testing.assert_array_equal(out.get(), everybody().reshape(-1))
request.synchronize()

array = Array(driver, mine(1000 * size, np.int32), stream)
part = Array(driver, np.zeros(1000, np.int32), stream)
comm.reducescatter(array, part, "max")
own = slice(1000 * rank, 1000 * (rank + 1))
np.testing.assert_array_equal(part.get(), everybody(1000 * size, np.int32).max(0)[own])

for root in range(size):
    array = Array(driver, mine(7, np.int16), stream)
    comm.broadcast(array, array, root)
    np.testing.assert_array_equal(array.get(), everybody(7, np.int16)[root])

array, got = Array(driver, mine(), stream), Array(driver, mine(), stream)
comm.sendrecv(array, (rank + 1) % size, got, (rank - 1) % size)
np.testing.assert_array_equal(got.get(), everybody()[(rank - 1) % size])

# Larger than a piece, in the middle of other work.
array = Array(driver, mine(1 << 20), stream)
for _ in range(3):
    comm.allreduce(array, array, "average")
np.testing.assert_array_equal(array.get(), everybody(1 << 20).mean(0))
"""
    ends_well(run(source, SIMCUDA_SEED=str(seed)))


def test_a_stream_of_the_caller(run: Run) -> None:
    source = """
# What made the array comes first, on whichever stream the call is.
array = Array(driver, mine(1 << 18), stream)
comm.on(other).allreduce(array, array)
array.stream = other
np.testing.assert_array_equal(array.get(), everybody(1 << 18).sum(0))
try:
    comm.on("stream")
except InvalidArgumentError as error:
    assert "argument 'stream' is 'stream'" in str(error), error
else:
    raise AssertionError
"""
    ends_well(run(source, SIMCUDA_DELAY_US="2000"))


def test_arguments_are_checked(run: Run) -> None:
    source = """
def refused(call, text):
    try:
        call()
    except InvalidArgumentError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)

array = Array(driver, mine(), stream)
refused(lambda: comm.allreduce(array), "argument 'out' is None")
refused(lambda: comm.allreduce(array, mine()), "memory of the host, allowed is memory of cuda:0")
strided = Array(driver, mine(), stream)
said = {**strided.__cuda_array_interface__, "shape": (500,), "strides": (8,)}
class Strided:
    __cuda_array_interface__ = said
refused(lambda: comm.allreduce(Strided(), array), "strides (8,)")
class Masked:
    __cuda_array_interface__ = {**array.__cuda_array_interface__, "mask": array}
refused(lambda: comm.allreduce(Masked(), array), "a mask")
comm.barrier()
"""
    ends_well(run(source))


def test_without_a_driver(run: Run) -> None:
    source = """
class Somewhere:
    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (4096, False)}
del os.environ["FARANDOLE_CUDA_LIBRARY"]
try:
    comm.allreduce(Somewhere(), Somewhere())
except farandole.errors.UnsupportedError as error:
    assert "libcuda.so.1" in str(error), error
else:
    raise AssertionError
"""
    ends_well(run(source))


# Goal: a killed rank's peers go on: their streams drain, errors name it, nothing is left.
@pytest.mark.parametrize("count", [100, 3_000_000])
def test_a_killed_rank_is_named(run: Run, count: int) -> None:
    source = f"""
array = Array(driver, mine({count}), stream)
comm.allreduce(array, array)
driver.synchronize(stream)
comm.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
request = comm.allreduce_async(array, array)
request.wait()
driver.synchronize(stream)
try:
    request.synchronize()
except RankFailed as error:
    assert error.rank == 1, error
else:
    raise AssertionError
try:
    comm.allreduce(array, array)
except RankFailed as error:
    assert error.rank == 1, error
else:
    raise AssertionError
driver.synchronize(stream)
assert time.monotonic() - began < 20
farandole.shutdown()
"""
    ended = run(source, 3)
    assert ended.stdout.count("done") == 2, ended.stderr[-2000:]
    assert "simcuda" not in ended.stderr


# Goal: shutdown() gives everything back to the driver.
def test_nothing_is_left(run: Run) -> None:
    source = """
array, another = Array(driver, mine(), stream), Array(driver, mine(), stream)
driver.synchronize(stream)
before = driver.counts()
for _ in range(50):
    comm.allreduce(array, array)
    comm.allreduce_async(another, another).wait()
driver.synchronize(stream)
farandole.shutdown()
del comm
after = driver.counts()
assert after["registered"] == before["registered"], (before, after)
assert after["streams"] == before["streams"], (before, after)
"""
    ends_well(run(source))
