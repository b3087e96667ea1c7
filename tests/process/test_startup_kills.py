# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a rank that dies while the job starts or makes its first connections is named by every
other, soon; nobody waits out the time to start for one that had come, and nobody blames a rank that
lives. A rank that is done at once fails no slower one.

Method: kill one rank at a moment of the start that a seed chooses (FARANDOLE_TEST_SEED; the name of
each test holds it). A handful of kills here, 300 with the mark "full".
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from startup_kills import START_TIMEOUT_SECONDS, Start, kill_one, start_seconds

from namespaces import Hosts, why_not

FIRST_SEED = int(os.environ.get("FARANDOLE_TEST_SEED", random.SystemRandom().randrange(10**6)))
SAMPLE = (("shm", 4, 3), ("tcp", 4, 3), ("hosts", 4, 2), ("shm", 70, 1))
FULL = (("shm", 4, 90), ("tcp", 4, 90), ("hosts", 4, 60), ("shm", 70, 20), ("tcp", 70, 20),
        ("hosts", 70, 20))  # fmt: skip
# On a machine that others use as well; a wait for the time to start would be longer still.
NAMED_WITHIN_SECONDS = 0.75 * START_TIMEOUT_SECONDS


@pytest.fixture
def two_hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    hosts = Hosts(2)
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()


def kill_some(kind: str, ranks: int, seeds: range, hosts: Hosts | None) -> None:
    within = 1.2 * start_seconds(kind, ranks, hosts)
    for seed in seeds:
        outcome = kill_one(seed, kind, ranks, within, hosts)
        assert not outcome.complaints, f"seed {seed}: {outcome}"
        assert len(outcome.delays) == ranks - 1
        assert max(outcome.delays) < NAMED_WITHIN_SECONDS, f"seed {seed}: {outcome}"


def campaign(kinds: tuple[tuple[str, int, int], ...]) -> list[object]:
    return [
        pytest.param(kind, ranks, range(FIRST_SEED, FIRST_SEED + kills), id=f"{kind}-{ranks}-ranks")
        for kind, ranks, kills in kinds
    ]


@pytest.mark.parametrize(("kind", "ranks", "seeds"), campaign(SAMPLE))
def test_a_rank_killed_at_the_start_is_named(
    kind: str, ranks: int, seeds: range, request: pytest.FixtureRequest
) -> None:
    hosts = request.getfixturevalue("two_hosts") if kind == "hosts" else None
    kill_some(kind, ranks, seeds, hosts)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "ranks", "seeds"), campaign(FULL))
def test_every_rank_killed_at_the_start_is_named(
    kind: str, ranks: int, seeds: range, request: pytest.FixtureRequest
) -> None:
    hosts = request.getfixturevalue("two_hosts") if kind == "hosts" else None
    kill_some(kind, ranks, seeds, hosts)


# Method: six starts after which everybody leaves at once.
@pytest.mark.parametrize("kind", ["shm", "tcp"])
def test_a_rank_that_leaves_at_once_fails_no_other(kind: str) -> None:
    for _ in range(6):
        start = Start(kind, 4, extra={"ONLY_INIT": "1"})
        try:
            start.go()
            start.until_over()
        finally:
            start.end()
        events = [row["event"] for row in start.rows]
        assert events.count("ready") == events.count("over") == 4, start.rows
        assert events.count("failed") == 0, start.rows
