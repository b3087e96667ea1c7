# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole verify` proves what it says it proves, and fails when an algorithm is wrong.

Method: count the schedules it builds; then hand it one that loses a contribution.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from farandole import _native
from farandole.cli.app import app
from farandole.cli.verify import cases, roots


def verified(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["verify", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_all_algorithms_hold() -> None:
    text = verified("--max-ranks", "9")
    assert text.count("holds") == len(_native.algorithms())
    assert "0 algorithms failed" in text


def test_messages_are_counted() -> None:
    text = verified("--max-ranks", "4", "--collective", "allgather", "--algorithm", "ring")
    messages = sum(p * (p - 1) for p in range(1, 5))
    assert re.search(rf"1 algorithms, .* 4 schedules with {messages} messages", text)


def test_every_root_is_proved_where_it_matters() -> None:
    assert list(roots("broadcast", 16)) == list(range(16))
    assert list(roots("broadcast", 17)) == [0, 1, 8, 16]
    assert list(roots("allreduce", 16)) == [0]
    assert len(list(cases("broadcast", 4))) == 1 + 2 + 3 + 4


def test_wrong_algorithm_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = _native.Schedule.build
    broken = """farandole schedule 1
collective allgather
algorithm ring
ranks 3
root 0
chunks 3
scratch 0
lanes 1
"""

    def build(collective: str, algorithm: str, rank_count: int, root: int = 0) -> Any:
        if (algorithm, rank_count) == ("ring", 3):
            return _native.Schedule.parse(broken)
        return right(collective, algorithm, rank_count, root)

    monkeypatch.setattr(_native, "Schedule", _Patched(build))
    text = verified("--collective", "allgather", "--max-ranks", "4", status=1)
    assert "3 ranks, root 0:" in text
    assert "1 algorithms failed" in text


class _Patched:
    """Stands for the class Schedule with another build()."""

    parse = staticmethod(_native.Schedule.parse)

    def __init__(self, build: Any) -> None:
        self.build = build


def test_unknown_algorithm_is_refused() -> None:
    assert "no algorithm is called nosuch" in verified("--algorithm", "nosuch", status=2)
