# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the drawings of `farandole explain` show what the schedule does: every message once, at
the right ranks, with the right label; and no label of a picture covers another.

Method: all algorithms at many numbers of ranks, counted against the verifier's own count; known
cells of the ring; the picture parsed as XML and its boxes compared with each other.
"""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farandole import _native
from farandole.cli.app import app
from farandole.report.rounds import Drawing, drawing_of
from farandole.report.schedule_svg import schedule_svg

ALGORITHMS = [(row["collective"], row["name"]) for row in _native.algorithms()]
SVG = "{http://www.w3.org/2000/svg}"


def draw(collective: str, algorithm: str, rank_count: int, root: int = 0) -> Drawing:
    schedule = _native.Schedule.build(collective, algorithm, rank_count, root)
    return drawing_of(schedule.expand())


def explained(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("rank_count", [1, 2, 3, 4, 5, 7, 8, 12])
def test_every_message_is_drawn_once(collective: str, algorithm: str, rank_count: int) -> None:
    schedule = _native.Schedule.build(collective, algorithm, rank_count, 0)
    proof = schedule.verify()
    drawing = drawing_of(schedule.expand())
    messages = [step for step in drawing.steps if step.sender is not None]
    assert len(messages) == proof["transfers"]
    assert sum(step.reduces for step in messages) <= proof["reductions"]
    for step in messages:
        assert step.sender != step.rank
        if step.source is not None and step.target is not None:
            assert step.source.count == step.target.count


def test_ring_of_three_in_full() -> None:
    steps = [
        (step.round, step.sender, step.rank, step.label)
        for step in draw("allreduce", "ring", 3).steps
    ]
    assert len(steps) == 4 * 3
    for index, sender, rank, label in steps:
        assert sender == (rank - 1) % 3
        assert ("+" in label) == (index < 2)  # reduced in the first p - 1 rounds, then kept
    received = [label.split()[0] for _, _, rank, label in steps if rank == 0]
    assert len(set(received[:2])) == 2
    assert len(set(received[2:])) == 2


def test_messages_pair_in_order_on_their_lane() -> None:
    def action(kind: str, peer: int, lane: int, chunk: int) -> dict[str, Any]:
        span = ("out", chunk, 1, chunk)
        receives = kind == "receive"
        return {
            "kind": kind,
            "peer": peer,
            "lane": lane,
            "source": None if receives else span,
            "target": span if receives else None,
            "operand": None,
        }

    sends = [[action("send", 1, 0, 5), action("send", 1, 1, 6)], [action("send", 1, 0, 7)]]
    receives = [[action("receive", 0, 1, 6)], [action("receive", 0, 0, 5)]]
    drawing = drawing_of([sends, [*receives, [action("receive", 0, 0, 7)]]])
    assert [step.source for step in drawing.steps] == [step.target for step in drawing.steps]


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("rank_count", [1, 2, 5, 8])
def test_picture_is_complete_and_nothing_overlaps(
    collective: str, algorithm: str, rank_count: int
) -> None:
    drawing = draw(collective, algorithm, rank_count)
    text = schedule_svg(drawing, "a < b & c", "facts")
    root = ElementTree.fromstring(text)
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    arrows = [path for path in root.iter(f"{SVG}path") if "marker-end" in path.attrib]
    assert len(arrows) == sum(step.sender is not None for step in drawing.steps)
    boxes = [
        tuple(float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        for box in root.iter(f"{SVG}rect")
        if box.attrib["class"].endswith("box") and box.attrib["height"] != "12"  # not the legend
    ]
    assert len(boxes) == len(drawing.steps)
    for x, y, w, h in boxes:
        assert 0 <= x <= width - w
        assert 0 <= y <= height - h
    for (x1, y1, w, h), (x2, y2, _, _) in itertools.combinations(boxes, 2):
        assert abs(x1 - x2) >= w or abs(y1 - y2) >= h


def test_arrows_start_at_their_sender_and_end_at_their_receiver() -> None:
    root = ElementTree.fromstring(schedule_svg(draw("broadcast", "binomial", 4, root=2), "t", "s"))
    columns = {
        label.text: float(label.attrib["x"])
        for label in root.iter(f"{SVG}text")
        if label.attrib["class"] == "rank"
    }
    ends = []
    for path in root.iter(f"{SVG}path"):
        if "marker-end" in path.attrib:
            numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
            near = min(columns, key=lambda name: abs(columns[name] - numbers[-1]))
            start = min(columns, key=lambda name: abs(columns[name] - numbers[0]))
            ends.append((start, near))
    expected = [
        (f"rank {step.sender}", f"rank {step.rank}")
        for step in draw("broadcast", "binomial", 4, root=2).steps
        if step.sender is not None
    ]
    assert sorted(ends) == sorted(expected)


def test_picture_goes_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ring.svg"
    explained("allreduce", "--algorithm", "ring", "-n", "4", "--svg", str(path))
    assert path.read_text(encoding="utf-8").startswith("<svg")


def test_picture_that_nobody_could_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.svg"
    arguments = ("allreduce", "--algorithm", "ring", "-n", "64", "--svg", str(path))
    assert "cannot be read" in explained(*arguments, status=2)
    assert not path.exists()


def test_terminal_shows_every_cell() -> None:
    text = explained("allreduce", "--algorithm", "ring", "-n", "4")
    assert "allreduce · ring · 4 ranks" in text
    assert len(re.findall(r"\d→ out\[\d\]\+in", text)) == 3 * 4
    assert len(re.findall(r"\d→ out\[\d\](?!\+)", text)) == 3 * 4 + 1  # and the legend


def test_terminal_summarises_many_ranks() -> None:
    text = explained("allreduce", "--algorithm", "ring", "-n", "12")
    assert re.search(r"1 to 11 +12 +r → r \+ 1 +1 +reduced", text)
    assert re.search(r"12 to 22 +12 +r → r \+ 1 +1 +kept", text)
    exchange = explained("allreduce", "--algorithm", "recursive_doubling", "-n", "16")
    assert [f"r ↔ r xor {1 << k}" in exchange for k in range(4)] == [True] * 4
    assert "all → all" in explained("allreduce", "--algorithm", "direct", "-n", "16")


def test_text_form_is_the_file_format() -> None:
    text = explained("allreduce", "--algorithm", "ring", "-n", "5", "--text")
    again = _native.Schedule.parse(text)
    assert (again.collective, again.algorithm, again.rank_count) == ("allreduce", "ring", 5)


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
def test_one_rank_is_no_special_case(collective: str, algorithm: str) -> None:
    assert "1 ranks" in explained(collective, "--algorithm", algorithm, "-n", "1")
