# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: docs/predictions.md says what this version predicts, and its commands run.

Method: make the predicted sections again and look for them; the simulated one, which takes long, is
made again for few ranks and compared row by row. Run each command on few ranks.
"""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

import predictions
from farandole.cli.app import app

TEXT = predictions.DOCUMENT.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^farandole (.*)$", TEXT, re.M)
CHECKED_RANKS_MAX = 400


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_hierarchies_are_those_of_this_version() -> None:
    assert predictions.hierarchy_section(predictions.hierarchies()) in TEXT


def test_broadcasts_are_those_of_this_version() -> None:
    times = {name: predictions.broadcast_times(name) for name in predictions.BROADCAST_MACHINES}
    assert predictions.broadcast_section(times) in TEXT


@pytest.mark.parametrize("name", ["abci", "blueconnect-p100", "k80-dense", "p100-sparse"])
def test_fastest_algorithms_are_those_of_this_version(name: str) -> None:
    section = predictions.map_section({name: predictions.fastest_cells(name)})
    assert rows(section)[-1] in TEXT


def test_steps_are_those_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(ranks for ranks in predictions.SCALING_RANKS if ranks <= CHECKED_RANKS_MAX)
    monkeypatch.setattr(predictions, "SCALING_RANKS", few)
    found = {
        training.model: predictions.weak_scaling(training) for training in predictions.TRAININGS
    }
    section = rows(predictions.scaling_section(found))
    assert len(section) == len(found) * (2 + len(few))
    for row in section:
        assert row in TEXT
    assert predictions.BASIS in TEXT


def test_pictures_are_there_and_small() -> None:
    shown = set(re.findall(r"\]\(predictions/([\w-]+\.svg)\)", TEXT))
    pictures = {path.name: path for path in predictions.PICTURES.iterdir()}
    assert shown == set(pictures)
    for path in pictures.values():
        assert path.stat().st_size < 100_000, path
        assert "<svg" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command: str) -> None:
    arguments = shlex.split(command)
    if arguments[1] == "map" and "--ranks" not in arguments:
        arguments += ["--ranks-max", "16"]
    if arguments[1] == "scaling":
        arguments[arguments.index("--ranks") + 1] = "6"
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_every_picture_has_a_command() -> None:
    assert len(COMMANDS) == TEXT.count("![") == 11
