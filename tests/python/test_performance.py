# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: docs/performance.md says what the kept measurements say, and its limits are by the formula.

Method: make the page again and compare; make pages of results with known winners; compute limits
by hand, and those of the kept rows again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import limits
import pytest
import run

import performance

KEPT = performance.load()
TEXT = performance.DOCUMENT.read_text(encoding="utf-8")

PROBE = {
    "cores": 2,
    "cache_bytes": 1000,
    "read": {"one": 30.0, "all": 40.0},
    "write": {"one": 20.0, "all": 25.0},
    "copy": {"one": 10.0, "all": 16.0},
    "lines": {"one": 50.0, "all": 100.0},
    "sockets": {"one": 5.0, "all": 5.0},
    "line_hop_us": 0.05,
    "socket_hop_us": 4.0,
    "socket_send_us": 2.0,
}


def row(size: int, /, **units: list[float] | dict[str, list[float]]) -> performance.Row:
    """`units`: near ones, or by state."""
    return {
        "collective": "allreduce",
        "ranks": 2,
        "transport": "shm",
        "binding": "unbound",
        "bytes": size,
        "limit_us": 1.0,
        "us": {name: us if isinstance(us, dict) else {"near": us} for name, us in units.items()},
    }


def results(*rows: performance.Row, before: str | None = None) -> dict[str, Any]:
    return {
        "machine": {
            "processor": "X",
            "cores": 2,
            "memory_bytes": 2**30,
            "kernel": "6",
            "load": 0.0,
        },
        "command": "python bench/rivals/run.py",
        "versions": {"ours": "1"},
        "before": before,
        "lines_us": [0.02, 0.21],
        "probe": PROBE,
        "rows": list(rows),
    }


def test_the_page_is_that_of_the_kept_measurements() -> None:
    assert KEPT
    assert performance.page(KEPT) == TEXT


def test_pictures_are_there_and_small() -> None:
    shown = set(re.findall(r"\]\(performance/([\w.-]+\.svg)\)", TEXT))
    files = {path.name: path for path in performance.FOLDER.glob("*.svg")}
    assert shown == set(files)
    for path in files.values():
        assert path.stat().st_size < 200_000, path
        assert "<svg" in path.read_text(encoding="utf-8")


# Goal: ratios compare medians of one state, with the fastest that is neither ours nor a limit.
# Method: a rival that is fast in one state only; an earlier version that is faster than all.
def test_ratios_are_of_one_state() -> None:
    one = row(
        4,
        ours={"near": [3.0, 2.0, 9.0], "far": [4.0]},
        fast={"near": [2.0, 2.0, 2.0], "far": [12.0]},
        slow={"near": [3.5, 3.5, 3.5], "far": [8.0], "mixed": [0.1]},
        old={"near": [0.5]},
        reference={"near": [0.1]},
    )
    found = results(one, before="old")
    (near,) = performance.comparisons([one], "near", "ours", found)
    (far,) = performance.comparisons([one], "far", "ours", found)
    assert (near.rival, near.ratio, near.units, str(near)) == ("fast", 2 / 3, 3, "0.67")
    assert (far.rival, far.ratio, str(far)) == ("slow", 2.0, "2.00 (1)")
    assert performance.comparisons([one], "mixed", "ours", found) == []
    (old,) = performance.comparisons([one], "near", "old", found)
    assert (old.rival, old.ratio) == ("fast", 4.0)


def test_losses_are_below_the_aim_lowest_first() -> None:
    rows = [
        row(4, ours=[1.0] * 3, fast=[0.84] * 3),
        row(16, ours=[1.0] * 3, fast=[0.85] * 3),
        row(64, ours=[2.0] * 3, fast=[1.0] * 3, **{"ours, library buffers": [1.0]}),
    ]
    table = performance.loss_section(results(*rows)).splitlines()
    assert table[0] == "Of 3 cases the ratio is below 0.85 in 2."
    assert [line.split("|")[3].strip() for line in table[4:]] == ["64 B", "4 B"]
    assert "| 2.00 us | 1.00 us | 0.50 (fast) |" in table[4]


def test_bands_are_geometric_means() -> None:
    rows = [
        row(4, ours=[1.0] * 4, fast=[4.0] * 3),
        row(4096, ours=[1.0] * 4, fast=[1.0] * 4),
        row(65536, ours=[2.0] * 4, fast=[1.0] * 4),
    ]
    (line,) = performance.band_table(results(*rows)).splitlines()[2:]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "2, unbound, shm", "near", "ours", "2.00", "0.50", "-", "0.50 allreduce 64 KiB", "3", "3",
    ]  # fmt: skip


def test_files_given_replace_those_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "FOLDER", tmp_path / "kept")
    for name in ("old", "new"):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(results(row(4, ours=[1.0]))), encoding="utf-8")
        performance.keep([path])
        performance.keep([performance.FOLDER / path.name])  # one that is there already
        assert set(performance.load()) == {name}


@pytest.mark.parametrize(
    ("collective", "ranks", "transport", "size", "expected"),
    [
        ("allreduce", 2, "shm", 4, 0.05),  # a hop
        ("allgather", 2, "tcp", 4, 4.0),
        ("broadcast", 2, "tcp", 4, 2.0),  # which waits for no hop, but sends
        ("broadcast", 3, "tcp", 4, 4.0),
        ("allgather", 2, "shm", 10**5, 199 / 25),  # writes 2 n beyond the caches
        ("allgather", 4, "tcp", 10**5, 60.0),  # 3 n through sockets
        ("allreduce", 2, "shm", 10**5, 199 / 16),  # copies 2 n
        ("reducescatter", 4, "shm", 10**6, 3999 / 40),  # reads 4 n
        ("broadcast", 4, "shm", 10**6, 2999 / 25),  # writes 3 n
    ],
)
def test_limits_by_hand(
    collective: str, ranks: int, transport: str, size: int, expected: float
) -> None:
    found = limits.limit_us(PROBE, collective, ranks, transport, size)
    assert found == pytest.approx(expected)


# Goal: without memory, what crosses counts. Method: caches that hold everything.
def test_limits_between_caches() -> None:
    probe = PROBE | {"cache_bytes": 2**40}
    for ranks in (2, 4):  # of which at most two run at a time
        assert limits.limit_us(probe, "allreduce", ranks, "shm", 10**6) == pytest.approx(20.0)
        assert limits.limit_us(probe, "broadcast", ranks, "shm", 10**6) == pytest.approx(10.0)


def test_kept_limits_are_those_of_the_formula() -> None:
    for kept in KEPT.values():
        for one in kept["rows"]:
            case = (one["collective"], one["ranks"], one["transport"], one["bytes"])
            expected = limits.limit_us(kept["probe"], *case)
            assert one["limit_us"] == pytest.approx(expected, abs=1e-3)


# Goal: a unit is near or far if the looks before and after it say so.
def test_units_have_the_state_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0.02, 0.03, 0.2, 0.25, 0.05])
    monkeypatch.setattr(run.Cores, "_line_us", lambda self: next(looks))
    cores = run.Cores(Path())
    found = [cores.state_of(lambda: {4: 1.0}) for _ in range(4)]
    assert [state for state, _ in found] == ["near", "mixed", "far", "mixed"]
    assert cores.lines_us == [0.02, 0.03, 0.2, 0.25, 0.05]


# Goal: how many times as fast as before, of each memory and state by itself, and what lost a tenth.
def test_progress_is_a_geometric_mean(capsys: pytest.CaptureFixture[str]) -> None:
    both = {"old, library buffers": [3.0], "ours, library buffers": [3.0]}
    rows = [row(4, **both, old=[2.0], ours=[1.0]), row(16, old=[1.0], ours=[2.0])]
    run.show_progress(rows, "old")
    first, second = capsys.readouterr().out.strip().split("\n\n")
    lost = "  0.50 allreduce p=2 shm unbound 16 B"
    assert first == f"2 cases, near: 1.000 times as fast as old\n{lost}"
    assert second == "1 cases, library buffers, near: 1.000 times as fast as old"
