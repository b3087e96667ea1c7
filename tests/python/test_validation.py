# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: docs/validation.md says what the kept results say, misses included.

Method: make the page again and compare; a page of results with a known miss; files that are kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import validation

HIT = {
    "ranks": 2,
    "megabits": 100,
    "collective": "broadcast",
    "bytes": 4,
    "choice": "direct",
    "predicted_seconds": 1e-3,
    "measured_seconds": 2e-3,
    "fastest": "direct",
    "fastest_seconds": 2e-3,
}
MISS = {**HIT, "bytes": 8, "fastest": "chain", "fastest_seconds": 1.8e-3}


def test_the_page_is_that_of_the_kept_results() -> None:
    assert validation.page(validation.load()) == validation.DOCUMENT.read_text(encoding="utf-8")


def test_misses_stand_beside_hits() -> None:
    text = validation.network_section([HIT, MISS])
    assert "1 of 2 choices are right" in text
    assert "| 4 | direct | 1.000 ms | 2.000 ms | -50% | direct | 2.000 ms | yes |" in text
    assert "| 8 | direct | 1.000 ms | 2.000 ms | -50% | chain | 1.800 ms | no |" in text


def test_files_given_replace_those_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "validation"
    monkeypatch.setattr(validation, "FOLDER", folder)
    files = []
    for i, row in enumerate((HIT, MISS)):
        files.append(tmp_path / f"{i}.json")
        files[-1].write_text(json.dumps([{**row, "measured": {}, "predicted": {}}]))
    validation.keep(files)
    assert json.loads((folder / "network.json").read_text()) == [HIT, MISS]
    validation.keep(files[:1])
    assert json.loads((folder / "network.json").read_text()) == [HIT]
