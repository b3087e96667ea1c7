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


def row(size: int, **us: list[float]) -> performance.Row:
    return {
        "collective": "allreduce",
        "ranks": 2,
        "transport": "shm",
        "bytes": size,
        "limit_us": 1.0,
        "us": us,
    }


def results(*rows: performance.Row) -> dict[str, Any]:
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


def test_losses_are_medians_above_a_rivals() -> None:
    lost = row(4, ours=[3.0, 2.0, 9.0], fast=[2.0], faster=[1.5], slow=[3.5], reference=[0.1])
    won = row(8, ours=[2.0], fast=[2.0], slow=[9.0], reference=[0.1])
    worse = row(16, ours=[8.0], fast=[1.0])
    assert performance.losses([lost, won, worse]) == [
        (worse, {"fast": 8.0}),
        (lost, {"faster": 2.0, "fast": 1.5}),
    ]


def test_buffers_of_the_library_do_not_hide_a_loss() -> None:
    text = performance.page({"x": results(row(4, **{"ours, library buffers": [1.0]}, ours=[3.0],
                                               fast=[2.0]))})  # fmt: skip
    section = text.partition("### Where we lose")[2].partition("\n###")[0]
    assert "Of 1 cases a rival is faster in 1." in section
    assert "| allreduce | 2 | shm | 4 B | 3.00 us | 1.00 us | fast 1.50 |" in section


def test_limits_that_say_nothing_are_left_out() -> None:
    text = performance.page({"x": results(row(4, ours=[1.0]) | {"limit_us": 0.0})})
    assert "| 4 B | 1.00 us | - | - |" in text


def test_no_losses_are_said_too() -> None:
    text = performance.page({"x": results(row(4, ours=[1.0], fast=[2.0]))})
    assert "Of 1 cases a rival is faster in 0." in text
    assert "| 4 B | 2.00 (fast) |" in text
    assert "| 4 B | 1.00 us | 2.00 us | 1.00 us | 1.0 |" in text


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


class ScriptedCores(run.Cores):
    """Near or far as a list says, once for each run."""

    def __init__(self, *near: bool, keep_far: bool = False) -> None:
        self.keep_far = keep_far
        self.repeated = 0
        self._near = list(near)

    def are_near(self) -> bool:
        return self._near.pop(0)

    def wait_until_near(self) -> None:
        pass


@pytest.mark.parametrize(
    ("near", "taken", "repeated"),
    [
        ([True], 1, 0),
        ([False, True], 2, 1),
        ([False, False, False], 4, 3),
    ],
)
def test_runs_beside_far_cores_are_repeated(near: list[bool], taken: int, repeated: int) -> None:
    cores = ScriptedCores(*near)
    runs = iter({4: float(number)} for number in range(1, 10))
    assert run.undisturbed(lambda: next(runs), cores) == {4: float(taken)}
    assert cores.repeated == repeated
    page = performance.machine_section(results(row(4, ours=[1.0])) | {"repeated_runs": repeated})
    assert (f"{repeated} runs were repeated" in page) == (repeated > 0)


def test_runs_beside_far_cores_are_kept_if_asked() -> None:
    cores = ScriptedCores(False, keep_far=True)
    runs = iter([{4: 1.0}, {4: 2.0}])
    assert run.undisturbed(lambda: next(runs), cores) == {4: 1.0}
    assert cores.repeated == 0


# Goal: how many times as fast as before, of each memory by itself, and what lost a tenth.
def test_progress_is_a_geometric_mean(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(4, **{"old": [2.0], "old, library buffers": [3.0], "ours, library buffers": [3.0]},
            ours=[1.0]),
        row(16, **{"old": [1.0]}, ours=[2.0]),
    ]  # fmt: skip
    run.show_progress(rows, "old")
    first, second = capsys.readouterr().out.strip().split("\n\n")
    assert first == ("2 cases: 1.000 times as fast as old\n  0.50 allreduce p=2 shm 16 B")
    assert second == "1 cases, library buffers: 1.000 times as fast as old"


@pytest.mark.parametrize("first", [(0.05, 0.02, 0.05, 0.16, 0.05), (0.16, 0.16, 0.05, 0.16, 0.05)])
def test_near_is_the_usual_although_a_line_is_faster_or_most_are_far(
    first: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FIRST_LOOKS_APART_SECONDS", 0.0)

    class Timed(run.Cores):
        def __init__(self, *us: float) -> None:
            self.us = list(us)
            super().__init__(Path())

        def _line_us(self) -> float:
            return self.us.pop(0)

    cores = Timed(*first * (run.FIRST_LOOKS // len(first)), 0.05, 0.02, 0.05, 0.16, 0.05)
    assert [cores.are_near() for _ in range(5)] == [True, True, True, False, True]
