# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: what `farandole tune` makes of its measurements is right.

Method: its decisions for plans and times that are made up, where every limit is known.
"""

from __future__ import annotations

import pytest

from farandole import _native
from farandole.measure import tuner
from farandole.measure.tuner import Choice, Shape, Timing

SHAPE = Shape(ranks=4, hosts=2, transport="tcp")


def plan(name: str, seconds: float, chosen: bool = False) -> dict[str, object]:
    return {"algorithm": name, "seconds": seconds, "chosen": chosen}


def names(plans: list[dict[str, object]], size_bytes: int) -> str:
    return "".join(str(one["algorithm"])[0] for one in tuner.candidates(plans, size_bytes))


# Goal: near ones, four at least, the model's choice, and small cheap ones. Method: each limit from
# both sides.
def test_what_is_measured() -> None:
    near = [plan("a", 1.0, True), *(plan(name, 2.9) for name in "bcde"), plan("f", 3.1)]
    assert names(near, 1 << 20) == "abcde"
    far = [plan("a", 1.0, True), *(plan(name, 9.0) for name in "bcde")]
    assert names(far, 1 << 20) == "abcd"
    small = [plan("a", 1e-6, True), *(plan(name, 2e-6) for name in "bcd")]
    small += [plan("e", 9e-3), plan("f:layers=2ring/2ring", 9e-3), plan("g", 11e-3)]
    assert names(small, (64 << 10) - 1) == "abcde"
    assert names(small, 64 << 10) == "abcd"


@pytest.mark.parametrize(("model_seconds", "expected"), [(1.029, "model"), (1.031, "fast")])
def test_the_models_choice_is_kept_where_it_is_as_fast(model_seconds: float, expected: str) -> None:
    timings = [Timing("fast", 9.0, 1.0), Timing("model", 1.0, model_seconds)]
    assert tuner.winner(timings, "model") == expected


def choice(collective: str, size_bytes: int, algorithm: str) -> Choice:
    timings = (Timing(algorithm, 1e-6, 2e-6), Timing("other", 3e-6, 4e-6))
    return Choice(collective, size_bytes, algorithm, "other", timings)


# Goal: neighbours with one winner share a line, of one collective only; the native module reads
# the file. Method: winners in turn.
def test_the_file() -> None:
    choices = [
        choice("allreduce", 64, "direct"),
        choice("allreduce", 256, "direct"),
        choice("allreduce", 1024, "ring"),
        choice("allgather", 64, "ring"),
        choice("allgather", 256, "bruck"),
    ]
    text = tuner.tuning_text(choices, SHAPE, "by hand")
    header, comment, *lines = text.splitlines()
    assert header == "farandole-tuning 1"
    assert comment == "# Measured by farandole tune: 4 ranks on 2 hosts over tcp, by hand."
    assert lines == [
        "allreduce ranks=4 hosts=2 transport=tcp bytes<=512 direct",
        "allreduce ranks=4 hosts=2 transport=tcp bytes<=2048 ring",
        "allgather ranks=4 hosts=2 transport=tcp bytes<=128 ring",
        "allgather ranks=4 hosts=2 transport=tcp bytes<=512 bruck",
    ]
    assert _native.check_tuning(text, "file").splitlines()[1:] == lines


def test_the_table_marks_both_choices() -> None:
    rows = tuner.timing_rows([choice("allreduce", 64, "direct")])
    assert [(row["algorithm"], row["choice of"]) for row in rows] == [
        ("direct", "file"),
        ("other", "model"),
    ]
    assert (rows[0]["measured"], rows[0]["predicted"]) == ("2 us", "1 us")
    kept = choice("allreduce", 64, "other")
    assert tuner.timing_rows([kept])[0]["choice of"] == "both"
