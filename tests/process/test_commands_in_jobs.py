# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a command that is started as the ranks of a job is one command: `bench`, `probe` and `tune`
measure between the ranks, on one host or several; what says the same on every rank says it once;
what is wrong is said once, in a line, and ends all ranks.

Method: real jobs of these commands; a stand-in for ssh makes a host of each of two addresses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROGRAMS
from launched import Job

Start = Callable[..., Job]
FARANDOLE = [sys.executable, "-m", "farandole.cli"]
TWO_HOSTS = ("-H", "127.0.0.2:1,127.0.0.3:1")
STAND_IN = ("--ssh-command", f"{sys.executable} {PROGRAMS / 'stand_in_for_ssh.py'}")
QUICK = ("-b", "1K", "-e", "1K", "--iters", "3", "--warmup", "1")


def rows_of(job: Job) -> list[dict[str, object]]:
    assert job.finish() == 0, job.stderr
    return [json.loads(line) for line in job.stdout.splitlines()]


@pytest.mark.parametrize("ranks", [1, 3])
def test_bench_is_one_benchmark(start: Start, ranks: int, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    job = start("-n", ranks, *FARANDOLE, "bench", "allreduce", *QUICK, "--json", file)
    assert job.finish() == 0, job.stderr
    assert job.stdout.count(f"# allreduce among {ranks} ranks on this machine") == 1
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["ranks"] for row in rows] == [ranks, ranks]


def test_bench_prints_json_and_nothing_else(start: Start) -> None:
    rows = rows_of(start("-n", 2, *FARANDOLE, "bench", "broadcast", *QUICK, "--json", "-"))
    assert [(row["ranks"], row["place"]) for row in rows] == [
        (2, "out-of-place"),
        (2, "in-place"),
    ]


def test_bench_joins_across_hosts(start: Start) -> None:
    job = start(*STAND_IN, "-n", 2, *TWO_HOSTS, *FARANDOLE, "bench", "allreduce", *QUICK)
    assert job.finish() == 0, job.stderr
    assert job.stdout.count("# allreduce among 2 ranks on 2 hosts") == 1


def test_probe_prints_json_and_nothing_else(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "machine.toml"
    words = ("probe", "-o", file, "-e", "64K", "--json", "-")
    job = start("-n", 2, *FARANDOLE, *words)
    assert job.finish() == 0, job.stderr
    assert json.loads(job.stdout)["samples"]
    assert file.exists()


# Goal: what says the same on all ranks is said, and written, by one of them; what is about the
# process is said by each.
@pytest.mark.parametrize(
    ("words", "times"),
    [
        (["plan", "-n", "2", "-m", "abci", "--json"], 1),
        (["simulate", "training", "-m", "abci", "-n", "2", "--json"], 1),
        (["doctor", "--json"], 3),
    ],
)
def test_who_speaks(start: Start, words: list[str], times: int) -> None:
    job = start("-n", 3, "-p", *FARANDOLE, *words)
    assert job.finish() == 0, job.stderr
    assert {line.split()[0] for line in job.stdout.splitlines()} == {
        f"[{rank}]" for rank in range(times)
    }


# Goal: what all ranks find wrong is said once, with a status; what rank 0 finds before the work,
# as a file that it cannot write, ends the others with the same status at once.
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["bench", "allreduce", "-b", "four"], 2, "a size is 'four'"),
        (["bench", "allreduce", "--root", "7", "--json", "/no/such/place"], 2, "cannot write"),
        (["bench", "broadcast", "--root", "2"], 2, "--root is 2, allowed is a rank from 0 to 1"),
        (["bench", "allreduce", "-n", "3"], 2, "--ranks is 3 in a job of 2 ranks"),
        (["bench", "allreduce", "--transport", "tcp"], 2, "in a job that uses auto"),
        (["bench", "allreduce", "--algorithm", "hierarchical:layers=3/2"], 2, "product is 2"),
        (["bench", "allreduce", "-e", "900TiB"], 2, "--end asks 2 ranks of a host to hold"),
        (["probe", "-o", "/no/such/file"], 2, "cannot write /no/such/file"),
        (["tune", "-o", "/"], 2, "cannot write /: it is a folder"),
        (["plan", "-n", "2", "-m", "acbi"], 2, "machine is 'acbi'"),
    ],
)
def test_what_ranks_find_is_said_once(
    start: Start, words: list[str], status: int, message: str
) -> None:
    job = start("-n", 2, *FARANDOLE, *words)
    assert job.finish() == status, job.stderr
    assert job.stderr.count(message) == 1, job.stderr
    assert "Traceback" not in job.stderr
    assert "sending" not in job.stderr  # no rank waited for another in vain


# Goal: an error of one rank is said in a line that names the rank. Method: rank 1 has no memory.
def test_an_error_of_a_rank_names_it(start: Start, write: Callable[[str], Path]) -> None:
    program = write(
        "import sys\n"
        "from farandole.cli import main\n"
        "from farandole.measure import bench_cases\n"
        "def fail(self, count, in_place):\n"
        "    if self._rank == 1:\n"
        "        raise MemoryError('cannot have 4 KiB')\n"
        "    return make(self, count, in_place)\n"
        "make, bench_cases.Cases.make = bench_cases.Cases.make, fail\n"
        "sys.argv = ['farandole', 'bench', 'allreduce', '-e', '64']\n"
        "main()\n"
    )
    job = start("-n", 2, program)
    assert job.finish() == 1
    assert job.stderr.count("farandole: rank 1: MemoryError: cannot have 4 KiB\n") == 1, job.stderr
    assert "Traceback" not in job.stderr


# Goal: too many ranks for a host are refused there, before any is started, by its name.
# Method: more than any machine has cores for, on this host and through an agent.
def test_crowds_are_refused(start: Start) -> None:
    ranks = 8 * len(os.sched_getaffinity(0)) + 1
    here = start("-n", ranks, "true")
    assert here.finish() == 2
    assert f"farandole: {ranks} ranks on " in here.stderr
    assert "--oversubscribe allows it" in here.stderr
    there = start(*STAND_IN, "-n", ranks, "-H", f"127.0.0.2:{ranks}", "true")
    assert there.finish() == 2
    assert f"127.0.0.2: {ranks} ranks on " in there.stderr
    allowed = start("-n", ranks, "--oversubscribe", "true")
    assert allowed.finish() == 0, allowed.stderr


def test_files_that_ranks_could_not_write_are_found_first(start: Start, tmp_path: Path) -> None:
    started = tmp_path / "started"
    for option in ("--timeline-filename", "--autotune-log-file", "--output-dir"):
        job = start("-n", 2, option, "/proc/no/place", "touch", started)
        assert job.finish() == 2
        assert "/proc/no" in job.stderr
    assert not started.exists()


# Goal: a misspelt variable is told by rank 0, once.
def test_an_unknown_variable_is_told_once(start: Start, write: Callable[[str], Path]) -> None:
    program = write("import farandole\nfor _ in range(2): farandole.init(); farandole.shutdown()\n")
    job = start("-n", 2, program, FARANDOLE_TIMOUT="7", HOROVOD_FUSION="1")
    assert job.finish() == 0, job.stderr
    assert job.stderr.count("FARANDOLE_TIMOUT is no setting") == 1
    assert job.stderr.count("\n") == 1, job.stderr
