# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the numbers of `farandole bench` mean what its columns say, and wrong elements are seen.

Method: the arithmetic against nccl-tests' definitions, the data against its promise of exactness,
then real runs of a few iterations; a communicator that spoils one element must be caught.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farandole
from farandole.cli.sizes import parse_size, size_steps
from farandole.core.arrays import numpy_dtype
from farandole.measure import bench_data as data
from farandole.measure import bench_plan as columns
from farandole.measure import bench_worker
from farandole.measure.bench_plan import BenchPlan

DEADLINE_SECONDS = 120
REDUCED_DTYPES = [
    name for name in farandole._native.DTYPES if name != "bool" and "float8" not in name
]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4", 4), ("8K", 8192), ("8k", 8192), ("1MiB", 2**20), ("256M", 2**28), ("2GB", 2 * 10**9)],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "K", "-4", "4.5", "4X", "4 K B"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        parse_size(text)


def test_size_steps() -> None:
    assert size_steps(4, 64, 4) == [4, 16, 64]
    assert size_steps(4, 63, 4) == [4, 16]
    for begin, factor, message in ((0, 2, "allowed"), (4, 1, "allowed"), (65, 2, "above")):
        with pytest.raises(ValueError, match=message):
            size_steps(begin, 64, factor)


def test_counts_and_bus_factors_are_those_of_nccl_tests() -> None:
    assert columns.elements_per_rank("allreduce", 1024, 4, 3) == 256
    assert columns.elements_per_rank("allgather", 1024, 4, 3) == 85
    assert columns.size_of_row("allgather", 85, 4, 3) == 1020
    factors = {
        1.5: ["allreduce"],
        0.75: ["reducescatter", "allgather", "alltoall", "gather", "scatter"],
        1.0: ["broadcast", "reduce", "sendrecv", "barrier"],
    }
    assert {name for names in factors.values() for name in names} == set(columns.COLLECTIVES)
    for factor, names in factors.items():
        for name in names:
            assert columns.bus_factor(name, 4) == factor
            parts = 4 if factor == 0.75 else 1
            assert columns.elements_per_rank(name, 1024, 4, 4) == 256 // parts
            assert columns.size_of_row(name, 64, 4, 4) == 256 * parts
    assert columns.bandwidths("allreduce", 10**9, 0.5, 2) == (2.0, 2.0)


@pytest.mark.parametrize("op", ["sum", "product", "min", "max", "average"])
@pytest.mark.parametrize("dtype", REDUCED_DTYPES)
@pytest.mark.parametrize("rank_count", [1, 2, 3, 8])
def test_data_is_exact_and_unlike_its_neighbours(dtype: str, op: str, rank_count: int) -> None:
    tiles = [data.input_tile(rank, rank_count, dtype, op) for rank in range(rank_count)]
    total = data.reduced_tile(rank_count, dtype, op)
    if op in ("sum", "product"):  # in the dtype itself, one rank after the other: nothing is lost
        step = np.add if op == "sum" else np.multiply
        result = tiles[0]
        for tile in tiles[1:]:
            result = step(result, tile).astype(numpy_dtype(dtype))
        assert (result == total).all()
    for a, b in itertools.pairwise(tiles):
        assert (a != b).mean() > 0.3  # a rank's data in the wrong place would be noticed
    if op in ("sum", "average") and dtype in ("float32", "float64", "int32", "int64"):
        assert (total[1:] != total[:-1]).mean() > 0.9  # so would be a shift by one


@pytest.mark.parametrize("dtype", farandole._native.DTYPES)
def test_data_that_only_moves_keeps_its_values(dtype: str) -> None:
    tiles = [data.input_tile(rank, 3, dtype, "") for rank in range(3)]
    for a, b in itertools.pairwise(tiles):
        assert a.dtype == numpy_dtype(dtype)
        assert (a != b).mean() > 0.9
    smallest = 2 if dtype == "bool" else 8
    assert len(np.unique(tiles[0].astype(np.complex128))) >= smallest


def test_wrong_elements_are_counted_wherever_they_are() -> None:
    tile = data.reduced_tile(2, "float32", "sum")
    array = np.empty(3 * data.PERIOD + 17, np.float32)
    data.fill(array, tile)
    assert data.count_wrong(array, tile) == 0
    assert data.count_wrong(array[100:], tile, offset=100) == 0
    assert data.count_wrong(array[100:], tile, offset=data.PERIOD + 100) == 0
    assert data.count_wrong(array[100:], tile, offset=101) > len(array) // 2
    array[[0, data.PERIOD, -1]] += 1
    array[5] = np.nan
    assert data.count_wrong(array, tile) == 4


def bench(path: Path, *arguments: str, status: int = 0) -> tuple[list[dict[str, Any]], str]:
    command = [sys.executable, "-m", "farandole.cli", "bench", *arguments, "--json", str(path)]
    done = subprocess.run(
        [*command, "--iters", "3", "--warmup", "1"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == status, done.stderr
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("collective", "transport"),
    [
        *((name, "shm") for name in columns.COLLECTIVES if name != "barrier"),
        ("allreduce", "tcp"),
        ("sendrecv", "tcp"),
    ],
)
def test_every_collective(tmp_path: Path, collective: str, transport: str) -> None:
    options = ("-n", "3", "-b", "4", "-e", "1M", "-f", "64", "--root", "2")
    rows, text = bench(tmp_path / "b", collective, *options, "--transport", transport)
    places = ["out-of-place"] if collective == "sendrecv" else ["out-of-place", "in-place"]
    assert [row["place"] for row in rows] == places * 4
    for row in rows:
        assert row["wrong"] == 0
        assert (row["collective"], row["ranks"], row["transport"]) == (collective, 3, transport)
        assert len(row["samples"]) == 3
        assert row["min_us"] <= row["p50_us"] <= row["p99_us"]
        assert row["p50_us"] == sorted(row["samples"])[1]
        assert bool(row["algorithm"]) == (collective != "sendrecv")
        algbw = row["bytes"] / row["p50_us"] / 1e3
        assert row["algbw_GBps"] == pytest.approx(algbw, abs=1e-3)
        factor = columns.bus_factor(collective, 3)
        assert row["busbw_GBps"] == pytest.approx(algbw * factor, abs=1e-3)
    table = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [int(line[0]) for line in table] == [row["bytes"] for row in rows[:: len(places)]]
    root = "2" if collective in ("reduce", "broadcast", "gather", "scatter") else "-1"
    for line in table:
        assert len(line) == 13
        assert line[4] == root
        assert (line[9:] == ["n/a"] * 4) == (collective == "sendrecv")


def test_options_reach_the_library(tmp_path: Path) -> None:
    options = ("--algorithm", "recursive_doubling", "--dtype", "int16", "--op", "max", "--owned")
    rows, _ = bench(tmp_path / "b", "allreduce", "-b", "1K", "-e", "1K", "--in-place", *options)
    assert len(rows) == 1
    expected = {
        "algorithm": "recursive_doubling",
        "dtype": "int16",
        "op": "max",
        "owned": True,
        "place": "in-place",
        "bytes": 1024,
        "count": 512,
        "wrong": 0,
    }
    assert {key: rows[0][key] for key in expected} == expected


def test_algorithms_with_options_and_fixed_order(tmp_path: Path) -> None:
    spec = "hierarchical:layers=2/2"
    options = ("-n", "4", "-b", "1K", "-e", "1K", "--algorithm", spec)
    rows, text = bench(tmp_path / "b", "allreduce", *options, "--deterministic")
    assert [(row["algorithm"].startswith(spec), row["wrong"]) for row in rows] == [(True, 0)] * 2
    assert "4 ranks on this machine, deterministic" in text


@pytest.mark.parametrize("dtype", ["bool", "uint64", "float16", "bfloat16", "complex64"])
def test_unusual_dtypes(tmp_path: Path, dtype: str) -> None:
    op = "max" if dtype == "bool" else "sum"
    size = ("-b", "3000", "-e", "3000")
    rows, _ = bench(tmp_path / "b", "allreduce", *size, "--dtype", dtype, "--op", op)
    assert [row["wrong"] for row in rows] == [0, 0]


def test_barrier_has_a_time_only(tmp_path: Path) -> None:
    rows, _ = bench(tmp_path / "b", "barrier", "-n", "3")
    assert [(row["bytes"], row["busbw_GBps"]) for row in rows] == [(0, 0)]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["sum"], 2, "none of allreduce"),
        (["allreduce", "-b", "four"], 2, "allowed are forms like"),
        (["allreduce", "-f", "1"], 2, "'--factor'"),
        (["allreduce", "--algorithm", "nosuch"], 2, "--algorithm is 'nosuch', allreduce has"),
        (["allreduce", "--dtype", "float99"], 2, "'float99', allowed are bool"),
        (["allreduce", "--op", "mean"], 2, "'mean', allowed are sum"),
        (["broadcast", "--root", "7"], 2, "is 7, allowed is a rank from 0 to 1"),
        (["sendrecv", "--in-place"], 2, "sendrecv works out of place only"),
        (["sendrecv", "--algorithm", "ring"], 2, "sendrecv has no algorithms"),
        (["allgather", "--deterministic"], 2, "is for allreduce, reduce, reducescatter"),
        (["allreduce", "-n", "3", "--algorithm", "hierarchical:layers=2/2"], 2, "product is 3"),
        (["reduce", "--dtype", "float8_e5m2"], 2, "float8"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    _, text = bench(tmp_path / "b", *arguments, status=status)
    assert message in text
    assert "Traceback" not in text


def _plan(collective: str, sizes: list[int]) -> BenchPlan:
    op = "sum" if collective in columns.REDUCING else ""
    root = 0 if collective in columns.ROOTED else -1
    return BenchPlan(collective, sizes, "float32", op, root, columns.PLACES, False, "", False, 2, 1)


class _Spoiler:
    """The world of one rank, where every collective damages one element of a large message."""

    rank, size = 0, 1

    def barrier(self) -> None: ...

    def allreduce(self, array: Any, out: Any, *_: Any, **__: Any) -> Any:
        out[:] = array
        if len(out) > 100:
            out[77] += 1
        return out

    reduce = broadcast = reducescatter = allgather = gather = scatter = alltoall = allreduce

    def sendrecv(self, array: Any, dest: int, out: Any, source: int) -> Any:
        assert dest == source == 0
        return self.allreduce(array, out)


@pytest.mark.parametrize("collective", [name for name in columns.COLLECTIVES if name != "barrier"])
def test_damage_by_the_library_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], collective: str
) -> None:
    monkeypatch.setattr(farandole, "world", _Spoiler)
    monkeypatch.setattr(farandole, "cross_size", lambda: 1)
    monkeypatch.setattr(farandole, "statistics", lambda: {"plans": {}, "transports": {}})
    monkeypatch.setattr(bench_worker, "_places", str)
    places = 1 if collective == "sendrecv" else 2
    assert bench_worker.Bench(_plan(collective, [40, 4000])).run() == places
    rows = capsys.readouterr().out.splitlines()
    wrong = [line.split()[8::4][:places] for line in rows[-2:]]
    assert wrong == [["0"] * places, ["1"] * places]
