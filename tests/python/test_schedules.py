# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a schedule from a file runs as any algorithm does, `farandole` shows, proves and times it,
and what is wrong with it is said before anything moves.

Method: examples/schedules/star3.txt over ranks that are threads, its results against NumPy's; the
commands in this process; damaged copies of the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rank_threads import on_ranks
from typer.testing import CliRunner

import farandole
from farandole import _native, errors
from farandole.cli.app import app
from farandole.core.communicator import Communicator

STAR = Path(__file__).parents[2] / "examples" / "schedules" / "star3.txt"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "damaged.txt"
    text = STAR.read_text()
    path.write_text(text.replace("receive out[0] = out[0] + incoming", "receive out[0] = incoming"))
    assert path.read_text() != text
    return path


def ran(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == status, result.output
    return result.output


def test_what_a_file_says() -> None:
    star = farandole.Schedule.load(STAR)
    assert (star.collective, star.algorithm, star.rank_count) == ("allreduce", "star", 3)
    assert star.root == 0
    assert star.proof == {"rounds": 2, "transfers": 4, "reductions": 2}
    assert star.text() in STAR.read_text()
    assert repr(star) == "<Schedule allreduce star for 3 ranks>"


def test_runs_as_any_algorithm_does() -> None:
    name = farandole.Schedule.load(STAR).register()
    inputs = np.random.default_rng(1).integers(-1000, 1000, (3, 4099)).astype(np.int64)

    def body(world: Communicator) -> None:
        mine = inputs[world.rank]
        for _ in range(3):  # the first is planned, the others repeat it
            assert np.array_equal(world.allreduce(mine, algorithm=name), inputs.sum(0))
        assert np.array_equal(world.allreduce(mine, op="max", algorithm=name), inputs.max(0))
        average = world.allreduce(mine.astype(np.float64), op="average", algorithm=name)
        assert np.allclose(average, inputs.mean(0))
        assert np.array_equal(world.allreduce(mine.copy(), algorithm="ring"), inputs.sum(0))
        world.set_algorithm("allreduce", mine.nbytes, name)
        assert world.algorithm("allreduce", mine.nbytes) == name
        assert np.array_equal(world.allreduce(mine), inputs.sum(0))

    for transport in ("inproc", "shm"):
        on_ranks(body, transport)


def test_is_refused_where_it_does_not_fit() -> None:
    name = farandole.Schedule.load(STAR).register()

    def two(world: Communicator) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="2 ranks, allowed is 3 ranks"):
            world.allreduce(np.ones(4), algorithm=name)
        with pytest.raises(errors.InvalidArgumentError, match="no algorithm"):
            world.allgather(np.ones(4), algorithm=name)
        assert np.array_equal(world.allreduce(np.ones(4)), np.full(4, 2.0))

    def three(world: Communicator) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="'deterministic' is true"):
            world.allreduce(np.ones(4), algorithm=name, deterministic=True)

    on_ranks(two, size=2)
    on_ranks(three)


def test_ranks_that_take_another_algorithm_are_told() -> None:
    name = farandole.Schedule.load(STAR).register()

    def body(world: Communicator) -> None:
        with pytest.raises(errors.MismatchError, match="by a registered algorithm"):
            world.allreduce(np.ones(4), algorithm="ring" if world.rank == 1 else name)
        assert np.array_equal(world.allreduce(np.ones(4), algorithm=name), np.full(4, 3.0))

    on_ranks(body)


def test_wrong_files_are_refused(tmp_path: Path, damaged: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"damaged.txt': .*line 19"):
        farandole.Schedule.load(damaged)
    unproved = tmp_path / "unproved.txt"
    unproved.write_text(STAR.read_text().replace("= out[0] + incoming", "= in[0] + incoming"))
    with pytest.raises(errors.InvalidArgumentError, match=r"the proof fails: .*rank 0, round"):
        farandole.Schedule.load(str(unproved))
    with pytest.raises(errors.InvalidArgumentError, match="argument 'path' is 3"):
        farandole.Schedule.load(3)  # type: ignore[arg-type]
    taken = tmp_path / "taken.txt"
    taken.write_text(STAR.read_text().replace("algorithm star", "algorithm ring"))
    with pytest.raises(errors.InvalidArgumentError, match="name of an algorithm of the library"):
        farandole.Schedule.load(taken).register()


def test_commands_take_files(tmp_path: Path, damaged: Path) -> None:
    assert "2 rounds, 4 messages, 2 reductions proved" in ran("verify", STAR)
    assert "damaged.txt" in ran("verify", damaged, status=2)
    drawn = ran("explain", "--schedule", STAR)
    assert "allreduce · star · 3 ranks" in drawn
    assert drawn.count("0→ out[0]") == 2
    picture = tmp_path / "star.svg"
    ran("explain", "--schedule", STAR, "--svg", picture)
    assert "star" in picture.read_text()
    assert ran("explain", "--schedule", STAR, "--text") in STAR.read_text()
    timed = ran("simulate", "collective", "-m", "abci", "--schedule", STAR)
    assert "allreduce by star" in timed
    assert "4 messages" in timed


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "allreduce", "--schedule", STAR),
        ("explain", "--schedule", STAR, "-n", 3),
        ("explain", "--schedule", STAR, "--root", 0),
        ("explain", "allreduce"),
        ("verify", STAR, "--collective", "allreduce"),
        ("simulate", "collective", "-m", "abci", "--schedule", STAR, "--algorithm", "ring"),
        ("simulate", "collective", "-m", "abci", "--algorithm", "ring"),
        ("run", "-n", 2, "--schedule", STAR, "true"),
        ("run", "-n", 3, "--schedule", "absent.txt", "true"),
        ("run", "-n", 3, "--schedule", "a:b.txt", "true"),
    ],
)
def test_commands_refuse_what_makes_no_sense(arguments: tuple[object, ...]) -> None:
    ran(*arguments, status=2)


# Goal: a delegate is explained as the one step that it is. Method: a table with one row, since a
# program registers its delegates itself.
def test_a_delegate_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    price = {"seconds": 2e-6, "seconds_per_byte": 1e-9}
    row = {"collective": "allreduce", "name": "other", "summary": "Another library.", **price}
    assert _native.delegates(4) == []
    monkeypatch.setattr(_native, "delegates", lambda rank_count: [row] if rank_count == 8 else [])
    lines = ran("explain", "allreduce", "--algorithm", "other", "-n", 8).splitlines()
    assert lines[:2] == ["allreduce · other · 8 ranks", "Another library."]
    assert "one step" in lines[2]
    assert "2.00 us" in lines[3]
    assert "1.05 ms per MiB" in lines[3]
    ran("explain", "allreduce", "--algorithm", "other", "-n", 8, "--text", status=2)
    ran("explain", "allreduce", "--algorithm", "other", "-n", 7, status=2)
