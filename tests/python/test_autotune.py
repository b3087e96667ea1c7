# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: autotuning keeps the fastest settings, not the luckiest; every rank changes to the same
ones between the same two steps; training computes what it computes without; a result is used
again for the same model and ranks, and for no others.

Method: the search against made-up step times; all ranks' sides with an agreement in one process;
then real training with every setting changing every few steps, while one rank leaves early.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch_checks import assert_passed, checks_of

from farandole.coordination.autotune import Autotuner, Choice, Search, Windows
from farandole.errors import InvalidArgumentError

START = Choice(cycle_time_us=1000, fusion_threshold=1 << 27, size_shift_up=4)
WORKLOAD = {"ranks": 4, "tensors": 7, "bytes": 12_345}
WINDOWS = Windows(warmup_samples=1, steps_per_sample=3, max_samples=12)


def make_search(log: Path | None = None, **workload: int) -> Search:
    return Search(START, [0, 1, 2, 4], WORKLOAD | workload, WINDOWS, log)


def step_seconds(choice: Choice) -> float:
    """A made-up machine, on which short cycles and four groups are fast."""
    return 1.0 + choice.cycle_time_us / 1e4 + abs(choice.num_groups - 4) / 10


def run_search(search: Search) -> list[Choice]:
    tried = []
    while not search.finished:
        tried.append(search.choice)
        search.tell(step_seconds(search.choice))
    return tried


def test_the_fastest_that_was_tried_stays() -> None:
    search = make_search()
    tried = run_search(search)
    assert tried[0] == START
    assert len(set(tried)) > WINDOWS.max_samples / 2
    assert len(tried) == WINDOWS.max_samples + 4  # the fastest and the start, twice each
    assert step_seconds(search.choice) == min(step_seconds(choice) for choice in tried)
    assert search.choice != START


def test_one_lucky_window_does_not_replace_the_start() -> None:
    search = make_search()
    samples = 0
    while not search.finished:
        samples += 1
        lucky = samples == 5
        search.tell(0.1 if lucky else 1.0 if search.choice == START else 2.0)
    assert search.choice == START


def test_a_search_that_finds_nothing_better_ends_with_the_start() -> None:
    search = make_search()
    while not search.finished:
        search.tell(1.0 if search.choice == START else 2.0)
    assert search.choice == START


def test_a_result_is_used_again_by_the_same_workload_alone(tmp_path: Path) -> None:
    log = tmp_path / "tuned.json"
    first = make_search(log)
    run_search(first)
    again = make_search(log)
    assert (again.finished, again.choice) == (True, first.choice)
    other = make_search(log, ranks=8)
    assert not other.finished
    run_search(other)
    results = json.loads(log.read_text())["results"]
    assert [result["workload"]["ranks"] for result in results] == [4, 8]
    assert len(results[0]["samples"]) == WINDOWS.max_samples


def test_a_search_that_was_cut_off_is_no_result(tmp_path: Path) -> None:
    log = tmp_path / "tuned.json"
    make_search(log).tell(1.0)
    assert not make_search(log).finished


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 2, "results": []}', '{"format": 1, "results": [{}]}']
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    log = tmp_path / "notes.json"
    log.write_text(content)
    with pytest.raises(InvalidArgumentError, match=r"FARANDOLE_AUTOTUNE_LOG is '.*notes\.json'"):
        make_search(log)
    assert log.read_text() == content


class Ranks:
    """The sides of three ranks, stepped one after the other."""

    def __init__(self, search: Search | None, joined: Sequence[int] = ()) -> None:
        self.said: list[list[int]] = []
        self._joined = joined
        self._answer: list[int] = []
        leader = Autotuner(search, WINDOWS, self._lead)
        self.tuners = [leader, *(Autotuner(None, WINDOWS, self._follow) for _ in range(2))]

    def _lead(self, mine: Sequence[int]) -> Sequence[int]:
        self._answer = list(mine)
        self.said.append(self._answer)
        return mine

    def _follow(self, mine: Sequence[int]) -> Sequence[int]:
        return [max(pair) for pair in zip(mine, self._answer, strict=True)]

    def step(self) -> list[Choice | None]:
        return [tuner.step() for tuner in self.tuners]


def test_ranks_change_together_and_stop_talking_in_the_end() -> None:
    search = make_search()
    ranks = Ranks(search)
    changes = 0
    for _ in range(200):
        chosen = ranks.step()
        assert chosen[0] == chosen[1] == chosen[2]
        changes += chosen[0] is not None
    assert search.finished
    assert changes > WINDOWS.max_samples / 2
    assert {tuner.choice for tuner in ranks.tuners} == {search.choice}
    assert len(ranks.said) == 1 + WINDOWS.max_samples + 4


def test_a_leader_that_has_left_ends_the_search() -> None:
    ranks = Ranks(None)  # nobody says anything but -1, as when rank 0 has joined
    for _ in range(100):
        assert ranks.step() == [None, None, None]
    assert len(ranks.said) == 1


# What follows runs on ranks; see torch_checks.


def check_training_is_the_same_and_all_settings_change() -> None:
    import os

    import torch

    import farandole.torch as hvd

    def losses(autotune: bool) -> tuple[list[float], list[int]]:
        os.environ["FARANDOLE_AUTOTUNE"] = str(int(autotune))
        torch.manual_seed(1)
        model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(6)])
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            named_parameters=model.named_parameters(),
        )
        values, groups = [], []
        torch.manual_seed(100 + hvd.rank())
        for _ in range(60):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 16)).square().mean()
            loss.backward()
            optimizer.step()
            assert all(parameter.grad is not None for parameter in model.parameters())
            values.append(float(loss))
            groups.append(len(optimizer._exchange._buckets))
        return values, groups

    os.environ |= {
        "FARANDOLE_AUTOTUNE_WARMUP_SAMPLES": "0",
        "FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE": "1",
        "FARANDOLE_AUTOTUNE_MAX_SAMPLES": "10",
    }
    plain, _ = losses(autotune=False)
    tuned, groups = losses(autotune=True)
    assert tuned == pytest.approx(plain, rel=1e-5)
    assert len(set(groups)) > 1
    assert groups[-1] == groups[-5], "the search has not ended"
    settings = hvd.allgather_object(hvd.global_process_set.coordinator.options())
    assert all(other == settings[0] for other in settings)


def check_a_rank_that_joins_early_ends_the_search_of_the_others() -> None:
    import os

    import torch

    import farandole.torch as hvd

    os.environ |= {"FARANDOLE_AUTOTUNE": "1", "FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE": "2"}
    os.environ["FARANDOLE_AUTOTUNE_WARMUP_SAMPLES"] = "0"
    model = torch.nn.Linear(4, 4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(), num_groups=1
    )
    for _ in range(3 if hvd.rank() == 0 else 20):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    hvd.join()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="after").tolist() == [hvd.size()] * 3


@pytest.mark.parametrize("rank_count", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("check", checks_of(globals()))
def test_on_ranks(rank_count: int, check: str) -> None:
    assert_passed(__file__, rank_count, check)
