# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that measure between ranks: `bench`, `probe` and `tune`.

In a job, on one host or several, they measure between that job's ranks; by themselves they start
ranks on this machine, each of which is the same command line once more, now in a job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from farandole.cli.arguments import RANKS_MAX, TRANSPORTS, check_memory, choice, output_problem
from farandole.doctor.findings import NO_JOB, started_by
from farandole.errors import FarandoleError, InvalidArgumentError, UnsupportedError

RANKS_BY_DEFAULT = 2
JobRanks = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--ranks",
        min=1,
        max=RANKS_MAX,
        show_default=str(RANKS_BY_DEFAULT),
        help="Processes to start, outside of a job.",
    ),
]
Transport = Annotated[
    str | None,
    choice("--transport", words=TRANSPORTS, help="What the ranks use, outside of a job."),
]


@dataclass(frozen=True)
class Ranks:
    """What these commands are told about their ranks, besides the work.

    outputs        files that rank 0 writes
    largest_bytes  of the arrays of one rank, which `--end` decides
    """

    count: int | None
    count_min: int
    transport: str | None
    oversubscribe: bool
    outputs: Sequence[Path | None]
    largest_bytes: int


def is_in_job() -> bool:
    return started_by(os.environ) != NO_JOB


def rank_told() -> int | None:
    """This process's rank, as whoever started it says; None where nobody says one."""
    from farandole import _native

    starter = started_by(os.environ)
    for row in _native.starters():
        if row["name"] == starter:
            told = next((text for name in row["rank"] if (text := os.environ.get(name))), "")
            return int(told) if told.isdecimal() else None
    return None


def measure(ranks: Ranks, work: Callable[[], int | None]) -> NoReturn:
    """Does the work on every rank of the job, or starts ranks that will. `work` is called between
    init() and shutdown(), with enough ranks, and returns an exit status, None for 0."""
    if is_in_job():
        raise typer.Exit(_join(ranks, work))
    from farandole.cli.run import launch
    from farandole.launch.launcher import LaunchOptions

    count = ranks.count or RANKS_BY_DEFAULT
    check_memory(count * ranks.largest_bytes, f"--end asks {count} ranks here to hold")
    environment = {} if ranks.transport is None else {"FARANDOLE_TRANSPORT": ranks.transport}
    command = [sys.executable, "-m", "farandole.cli", *sys.argv[1:]]
    options = LaunchOptions(command, count, environment, oversubscribe=ranks.oversubscribe)
    raise typer.Exit(launch(options))


def _join(ranks: Ranks, work: Callable[[], int | None]) -> int:
    import farandole

    rank, status = None, 0
    try:
        farandole.init()
        rank = farandole.rank()
        _agree(_problem(ranks))
        status = work() or 0
        farandole.shutdown()
    except (InvalidArgumentError, UnsupportedError) as error:
        # All ranks have the same arguments and find the same.
        if not rank:
            print(f"farandole: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgumentError) else 1
    except (FarandoleError, MemoryError, OSError) as error:
        who = "" if rank is None else f"rank {rank}: "
        print(f"farandole: {who}{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return status


def _problem(ranks: Ranks) -> str:
    """What this rank finds wrong."""
    import farandole
    from farandole import _native

    size, transport = farandole.size(), _native.setting("FARANDOLE_TRANSPORT")
    if ranks.count not in (None, size):
        return f"--ranks is {ranks.count} in a job of {size} ranks; leave it out there"
    if size < ranks.count_min:
        return f"the job has {size} rank, allowed are {ranks.count_min} or more"
    if ranks.transport not in (None, transport):
        return (
            f"--transport is {ranks.transport} in a job that uses {transport}; leave it out there"
        )
    if farandole.rank() == 0:
        for path in ranks.outputs:
            if path is not None and (problem := output_problem(path)):
                return problem
    local = farandole.local_size()
    try:
        check_memory(local * ranks.largest_bytes, f"--end asks {local} ranks of a host to hold")
    except InvalidArgumentError as error:
        return str(error)
    return ""


def _agree(problem: str) -> None:
    """Collective: raises on all ranks what the first rank with a problem has found."""
    import numpy as np

    import farandole

    size = farandole.size()
    first = np.array([farandole.rank() if problem else size], np.int64)
    farandole.allreduce(first, first, "min")
    if first[0] == size:
        return
    text = np.zeros(1024, np.uint8)
    encoded = np.frombuffer(problem.encode()[: len(text)], np.uint8)
    text[: len(encoded)] = encoded
    farandole.broadcast(text, text, int(first[0]))
    raise InvalidArgumentError(bytes(text).rstrip(b"\0").decode(errors="replace"))
