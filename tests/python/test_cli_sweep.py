# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole sweep` and `farandole simulate` print and write what they computed, labelled.

Method: small sweeps; tables, files and pages are compared with each other and with the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farandole import _native, machines
from farandole.cli.app import app
from farandole.report.units import seconds_text, size_text


def farandole(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    return " ".join(result.output.replace("│", " ").split())


def files(tmp_path: Path) -> tuple[list[str], Path, Path]:
    table, page = tmp_path / "sweep.json", tmp_path / "sweep.html"
    return ["--json", str(table), "--html", str(page)], table, page


def check_page(page: Path, label: str, other: str) -> str:
    text = page.read_text(encoding="utf-8")
    assert 'src="http' not in text
    assert text.count("Plotly.newPlot(") == 1
    shown = text[: text.index("<script")] + text[text.rindex("Plotly.newPlot(") :]
    assert label in shown.lower()
    assert other not in shown.lower()
    return shown


@pytest.mark.parametrize(
    ("source", "other"), [("predicted", "simulated"), ("simulated", "predicted")]
)
def test_factorizations(tmp_path: Path, source: str, other: str) -> None:
    options, table, page = files(tmp_path)
    output = farandole(
        *("sweep", "factorizations", "-m", "abci", "-n", "64", "--bytes", "16MiB"),
        *("--by", source, "--top", "3", *options),
    )
    assert f"32 ordered factorizations, {source}" in output
    assert other not in output
    data = json.loads(table.read_text())
    assert data["kind"] == source
    rows: list[dict[str, Any]] = data["rows"]
    assert len(rows) == 32
    assert rows == sorted(rows, key=lambda row: row["seconds"])
    for row in rows:
        assert sum(row["layer_seconds"]) == pytest.approx(row["seconds"], rel=1e-9)
    lines = [line.split() for line in output.splitlines() if line[1:2].isdigit()]
    assert [line[:2] for line in lines[:3]] == [
        [str(place), row["name"]] for place, row in enumerate(rows[:3], 1)
    ]
    assert lines[-1][1] == "64"  # the flat ring, for comparison
    assert lines[-1][0] == str(1 + [row["name"] for row in rows].index("64"))
    assert rows[0]["name"] in check_page(page, source, other)


def test_the_flat_ring_is_shown_once() -> None:
    arguments = ("sweep", "factorizations", "-m", "abci", "-n", "8")
    named = [line.split()[:2] for line in farandole(*arguments).splitlines()]
    assert sum(line[1:] == ["8"] for line in named) == 1
    limited = farandole(*arguments, "--factor-max", "4")
    assert "3 ordered factorizations" in limited
    assert limited.split().count("1.00x") == 1
    assert ["-", "8"] in [line.split()[:2] for line in limited.splitlines()]


def test_map(tmp_path: Path) -> None:
    options, table, page = files(tmp_path)
    output = farandole(
        *("sweep", "map", "-m", "k80-dense", "--collective", "broadcast", "--ranks", "8,64"),
        *("-b", "4", "-e", "16MiB", *options),
    )
    assert "predicted" in output
    assert "simulated" not in output
    rows = json.loads(table.read_text())["rows"]
    assert [(row["ranks"], row["size_bytes"]) for row in rows] == [
        (ranks, 4**power) for ranks in (8, 64) for power in range(1, 13)
    ]
    machine = machines.load("k80-dense").machine()
    for row in rows:
        assert row["algorithm"] == _native.choose(
            machine, "broadcast", row["size_bytes"], row["ranks"]
        )
        assert row["algorithm"].partition(":")[0] in output
    check_page(page, "predicted", "simulated")


def test_map_covers_the_machine_by_default(tmp_path: Path) -> None:
    table = tmp_path / "map.json"
    farandole(*("sweep", "map", "-m", "p100-sparse", "-e", "4", "--json", str(table)))
    assert [row["ranks"] for row in json.loads(table.read_text())["rows"]] == [2, 4, 8, 16]


def test_scaling(tmp_path: Path) -> None:
    options, table, page = files(tmp_path)
    output = farandole(
        *("sweep", "scaling", "-m", "abci", "--ranks", "4,32", "--global-batch", "16", *options)
    )
    data = json.loads(table.read_text())
    assert data["kind"] == "simulated"
    found = {(row["mode"], row["variant"], row["ranks"]) for row in data["rows"]}
    variants = ("overlap, cache", "no overlap", "no cache", "flat coordinator", "4 groups")
    assert found == {
        (m, v, n) for v in variants for m, n in (("weak", 4), ("weak", 32), ("strong", 4))
    }
    for row in data["rows"]:
        assert 0 < row["efficiency"] <= 1
        assert seconds_text(row["seconds"]) in output
    text = check_page(page, "simulated", "predicted")
    assert "strong: 16 samples of all ranks" in text


def test_simulate_collective() -> None:
    arguments = ("simulate", "collective", "-m", "abci", "-n", "8", "--algorithm", "ring")
    arguments += ("--bytes", "1MiB")
    output = farandole(*arguments)
    schedule = _native.Schedule.build("allreduce", "ring", 8)
    result = _native.simulate_schedule(machines.load("abci").machine(), schedule, 2**20)
    assert f"simulated time {seconds_text(result['seconds'])}" in output
    assert "112 messages by path" in output
    assert result["busiest"][0]["name"] in output
    assert "predicted" not in output
    data = json.loads(farandole(*arguments, "--json", "--path", "events"))
    assert data["kind"] == "simulated"
    assert data["path"] == "events"
    assert data["seconds"] == pytest.approx(result["seconds"], rel=1e-6)


def test_seeds_give_a_median_and_a_range() -> None:
    spec = "hierarchical:layers=4ring/64direct"
    arguments = ("simulate", "collective", "-m", "abci", "-n", "256", "--json", "--bytes", "8MiB")
    arguments += ("--algorithm", spec, "--path", "rounds")
    machine = machines.load("abci").machine()
    schedule = _native.Schedule.build("allreduce", spec, 256)
    times = sorted(
        _native.simulate_schedule(machine, schedule, 2**23, path="rounds", seed=seed)["seconds"]
        for seed in range(3)
    )
    assert times[0] < times[2]
    data = json.loads(farandole(*arguments, "--seeds", "3"))
    assert [data[key] for key in ("seconds_min", "seconds", "seconds_max")] == times
    ideal = json.loads(farandole(*arguments, "--routing", "ideal"))
    assert ideal["seconds"] <= times[0]


def test_a_straggler_is_waited_for() -> None:
    # On ABCI a ring's calls between hosts cost, so a rank that is slow in them delays all.
    arguments = ("simulate", "collective", "-m", "abci", "-n", "8", "--algorithm", "ring", "--json")
    usual = json.loads(farandole(*arguments))["seconds"]
    assert json.loads(farandole(*arguments, "--straggler", "3@3"))["seconds"] > usual


def test_simulate_training() -> None:
    arguments = ("simulate", "training", "-m", "abci", "-n", "16", "--batch", "8")
    data = json.loads(farandole(*arguments, "--json"))
    assert data["kind"] == "simulated"
    assert data["ranks"] == 16
    assert data["efficiency"] == pytest.approx(data["compute_seconds"] / data["seconds"])
    output = farandole(*arguments)
    assert seconds_text(data["exposed_seconds"]) in output
    assert "simulated step" in output
    late = json.loads(farandole(*arguments, "--json", "--no-overlap"))
    tree = json.loads(farandole(*arguments, "--json", "--no-cache"))
    assert late["exposed_seconds"] > data["exposed_seconds"]
    assert tree["control_seconds"] / tree["cycles"] > data["control_seconds"] / data["cycles"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sweep factorizations -m abci -n 12 --powers-of-two", "12 ranks cannot be written"),
        ("sweep factorizations -m abci -n 8 --by guess", "none of predicted, simulated"),
        ("sweep factorizations -m nowhere -n 8", "machine is 'nowhere'"),
        ("sweep map -m abci --ranks 0", "no list of numbers of 1 or more"),
        ("sweep map -m abci -b 8 -e 4", "sizes begin at 8, above the last, 4"),
        ("sweep map -m abci --collective gossip", "'gossip' is none of allreduce"),
        ("sweep scaling -m abci --model lenet --ranks 2", "'lenet' is none of alexnet"),
        ("sweep map -m p100-sparse -e 4 --json /nowhere/a.json", "cannot write /nowhere/a.json"),
        ("simulate collective -m abci -n 4 --algorithm ring --routing x", "none of ideal"),
        ("simulate collective -m abci -n 4 --algorithm ring --straggler 2", "not FACTOR@RANK"),
        ("simulate collective -m abci -n 4 --algorithm ring --straggler 2@4", "from 0 to 3"),
        ("simulate collective -m abci -n 4 --algorithm ring --bytes many", "a size is 'many'"),
        (
            "simulate collective -m abci -n 4 --algorithm ring --seeds 2 --routing ideal",
            "only static_hash has seeds",
        ),
        ("simulate training -m abci -n 2 --batch 0", "Invalid value for '--batch'"),
    ],
)
def test_bad_arguments_are_refused(arguments: str, message: str) -> None:
    assert message in refused(*arguments.split())


def test_units() -> None:
    assert [seconds_text(t) for t in (0, 5e-7, 1.234e-5, 0.0999, 0.0184, 1, 12.345, 4321)] == [
        *("0.000 us", "0.500 us", "12.3 us", "99.9 ms", "18.4 ms", "1.00 s", "12.3 s", "4,321 s")
    ]
    assert [size_text(n) for n in (0, 4, 1000, 1536, 2**20, 2**30)] == [
        *("0 B", "4 B", "1,000 B", "1,536 B", "1 MiB", "1 GiB")
    ]
