# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole simulate coordinator` prints and writes what the controllers cost.

Method: small numbers of ranks, for which messages can be counted by hand; the page is looked into.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farandole.cli.app import app


def simulate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", "coordinator", *arguments])
    return result.exit_code, result.output


def test_table_and_files(tmp_path: Path) -> None:
    table, page = tmp_path / "cost.json", tmp_path / "cost.html"
    code, output = simulate(
        *("--ranks", "8,16", "--tensors", "5"), *("--json", str(table), "--html", str(page))
    )
    assert code == 0, output
    rows = json.loads(table.read_text())
    assert len(rows) == 2 * 3 * 2
    by_key = {(row["ranks"], row["step"], row["design"]): row for row in rows}
    flat, tree = by_key["8", "later", "flat"], by_key["8", "later", "tree"]
    assert (flat["messages"], flat["to rank 0"], flat["rounds"]) == ("14", "7", "2")
    assert (tree["messages"], tree["to rank 0"], tree["rounds"]) == ("14", "3", "6")
    cached = by_key["16", "later", "cached"]
    assert (cached["messages"], cached["rounds"]) == (str(16 * 4), "4")
    assert cached["largest"] == "16 B"  # the status and one word of bits
    text = page.read_text()
    assert "cached, later step" in text
    assert "<script" in text
    assert 'src="http' not in text


def test_slower_network_takes_longer() -> None:
    code, output = simulate("--ranks", "4", "--tensors", "2", "--latency-us", "1000")
    assert code == 0, output
    later = [line for line in output.splitlines() if "later" in line and "cached" in line]
    assert float(later[0].split()[3].replace(",", "")) >= 2000


@pytest.mark.parametrize("ranks", ["0", "x", "4,", "-1,5"])
def test_bad_numbers_are_refused(ranks: str) -> None:
    code, output = simulate("--ranks", ranks)
    assert code == 2
    assert "numbers of 1 or more" in output
