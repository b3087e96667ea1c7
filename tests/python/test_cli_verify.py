# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole verify` proves what it says it proves, and fails when an algorithm is wrong.

Method: count the schedules it builds; then hand it one that loses a contribution.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from farandole import _native
from farandole.cli.app import app
from farandole.cli.specs import factorizations, layers, specs
from farandole.cli.verify import cases, roots, spot_cases

ROWS = {(row["collective"], row["name"]): row for row in _native.algorithms()}


def verified(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["verify", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_all_algorithms_hold() -> None:
    text = verified("--max-ranks", "8", "--spot", "12,17")
    assert text.count("holds") == len(_native.algorithms())
    assert "0 algorithms failed" in text
    assert "left out" not in text


def test_messages_are_counted() -> None:
    text = verified(
        "--max-ranks", "4", "--collective", "allgather", "--algorithm", "ring", "--spot", "6"
    )
    messages = sum(p * (p - 1) for p in (1, 2, 3, 4, 6))
    assert re.search(
        rf"1 algorithms, 1 to 4 and 6 ranks: 5 schedules with {messages} messages", text
    )


def test_every_root_is_proved_where_it_matters() -> None:
    for collective in ("broadcast", "reduce", "gather", "scatter"):
        assert list(roots(collective, 16)) == list(range(16))
    assert list(roots("broadcast", 17)) == [0, 1, 8, 16]
    assert list(roots("allreduce", 16)) == [0]
    assert len(list(cases(ROWS["broadcast", "binomial"], 4))) == 1 + 2 + 3 + 4


def test_reductions_are_proved_in_one_order_of_operands_too() -> None:
    chosen = list(cases(ROWS["allreduce", "ring"], 3))
    assert [case.deterministic for case in chosen] == [False, True] * 3
    assert not any(case.deterministic for case in cases(ROWS["allgather", "ring"], 9))


def test_factorizations_are_all_and_ordered() -> None:
    assert sorted(factorizations(12)) == sorted(
        [(12,), (2, 6), (6, 2), (3, 4), (4, 3), (2, 2, 3), (2, 3, 2), (3, 2, 2)]
    )
    assert list(factorizations(1)) == [(1,)]
    for number in range(2, 65):
        found = list(factorizations(number))
        assert len(set(found)) == len(found)
        assert all(math.prod(sizes) == number and min(sizes) > 1 for sizes in found)


def test_layers_are_of_every_kind() -> None:
    assert list(layers((3, 4, 2))) == [
        "layers=3ring/4ring/2ring",
        "layers=3direct/4direct/2direct",
        "layers=3ring/4halving/2halving",
        "layers=3direct/4halving/2ring",
    ]


@pytest.mark.parametrize("row", _native.algorithms(), ids=lambda row: row["name"])
def test_every_option_of_the_table_is_tried(row: dict[str, str]) -> None:
    tried = specs(row, 12)
    assert tried[0] == row["name"]
    assert len(set(tried)) == len(tried)
    keys = {spec.partition(":")[2].partition("=")[0] for spec in tried} - {""}
    assert keys == set(row["options"].split())


def test_spot_checks_say_what_they_leave_out() -> None:
    text = verified(
        "--collective", "alltoall", "--algorithm", "direct", "--max-ranks", "2", "--spot", "1025"
    )
    assert "1 spot checks left out: more ranks than the algorithm is for" in text
    chosen = list(spot_cases(ROWS["reduce", "chain"], 2048))
    assert [(case.root, case.deterministic) for case in chosen] == [(682, False)]


@pytest.mark.parametrize("spot", ["0", "12,x", "-4"])
def test_spots_are_numbers(spot: str) -> None:
    assert "'--spot'" in verified("--spot", spot, status=2)


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

    def build(algorithm: str, name: str, rank_count: int, root: int, deterministic: bool) -> Any:
        if (name, rank_count) == ("ring", 3):
            return _native.Schedule.parse(broken)
        return right(algorithm, name, rank_count, root, deterministic)

    monkeypatch.setattr(_native, "Schedule", _Patched(build))
    text = verified("--collective", "allgather", "--max-ranks", "4", "--spot", "", status=1)
    assert "ring, 3 ranks, root 0:" in text
    assert "1 algorithms failed" in text


class _Patched:
    """Stands for the class Schedule with another build()."""

    parse = staticmethod(_native.Schedule.parse)

    def __init__(self, build: Any) -> None:
        self.build = build


def test_unknown_algorithm_is_refused() -> None:
    assert "--algorithm is nosuch, none of any collective" in verified(
        "--algorithm", "nosuch", status=2
    )
