# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of arguments that commands share: each is read, limited and refused in one way.

A number's limit is that of what is supported, or far above what makes sense; what goes beyond is
refused before any work begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole import _native
from farandole.cli.sizes import parse_size
from farandole.errors import InvalidArgumentError
from farandole.measure.bench_plan import WITH_ALGORITHMS

if TYPE_CHECKING:
    from farandole import Schedule

RANKS_MAX = 27_600  # of jobs, real and described
TRANSPORTS = ("auto", *(name for name, _, _ in _native.transports()))
TRANSPORT_HELP = "; ".join(f"{name}: {summary}" for name, summary, _ in _native.transports())
COUNT_MAX = 1_000_000  # of iterations, rows, seeds and the like
LIST_MAX = 1_000
PRINT = "-"  # as a file: the standard output

# Readers of one value. typer calls them with defaults, too, which are of the right type already.


def size(text: str | int) -> int:
    """Bytes of a size like 128MiB."""
    if isinstance(text, int):
        return text
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@dataclass(frozen=True)
class Counts:
    """Numbers like 2,16,27600."""

    values: tuple[int, ...]


def rank_counts(text: str | Counts) -> Counts:
    if isinstance(text, Counts):
        return text
    words = text.split(",")
    if len(words) > LIST_MAX:
        raise typer.BadParameter(f"{len(words)} numbers are given, allowed are {LIST_MAX}")
    found = [int(word) if word.strip().isdecimal() and len(word) < 20 else 0 for word in words]
    if min(found) < 1 or max(found) > RANKS_MAX:
        raise typer.BadParameter(
            f"'{text:.80}' is no list of numbers of 1 or more, of {RANKS_MAX} at most"
        )
    return Counts(tuple(found))


def one_of(*allowed: str) -> Callable[[str], str]:
    """Reads one of a few words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(allowed)}")
        return text

    return read


def complete(*words: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def choice(*names: str, words: tuple[str, ...], help: str) -> Any:
    """An option that takes one of a few words."""
    return typer.Option(
        *names,
        parser=one_of(*words),
        metavar="|".join(words) if len(words) < 5 else "NAME",
        autocompletion=complete(*words),
        help=help,
    )


def size_option(*names: str, default: str, help: str) -> Any:
    return typer.Option(*names, parser=size, metavar="SIZE", show_default=default, help=help)


# Files that a command writes


def output_problem(path: Path) -> str:
    """Why a file could not be written; empty if it can. Leaves things as they are."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                return f"cannot write {path}: it is a folder"
            return "" if os.access(path, os.W_OK) else f"cannot write {path}: not permitted"
        existed = os.path.lexists(path)
        path.open("ab").close()
        if not existed:
            path.unlink()
    except (OSError, ValueError) as error:
        return f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
    return ""


def _output(ctx: typer.Context, value: Path | None) -> Path | None:
    from farandole.cli.command import JoiningCommand
    from farandole.cli.joined import is_in_job

    if value is None or str(value) == PRINT or ctx.resilient_parsing:
        return value
    if isinstance(ctx.command, JoiningCommand) and is_in_job():
        return value  # it is rank 0 that writes, and that looks
    if problem := output_problem(value):
        raise typer.BadParameter(problem)
    return value


def output_file(*names: str, help: str) -> Any:
    """An option that names a file to write."""
    return typer.Option(*names, callback=_output, metavar="FILE", help=help)


Json = Annotated[
    Path | None,
    output_file("--json", help="Write JSON to this file, too; - or nothing: print only that."),
]
Html = Annotated[
    Path | None, output_file("--html", help="Write plots here; needs farandole[report].")
]
Svg = Annotated[Path | None, output_file("--svg", help="Write a picture to this file.")]


def printed(path: Path | None) -> bool:
    """Whether the standard output is to hold JSON and nothing else."""
    return path is not None and str(path) == PRINT


def write(path: Path, text: str) -> None:
    """To the file, or to the standard output."""
    if printed(path):
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        path.write_text(text, encoding="utf-8")


def write_json(path: Path | None, document: Any) -> bool:
    """Writes where it is wanted; returns whether nothing else is to be printed."""
    if path is not None:
        write(path, json.dumps(document, indent=1) + "\n")
    return printed(path)


def require_plotly(html: Path | None) -> None:
    """Before a long computation rather than after it."""
    if html is None:
        return
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise typer.BadParameter(
            "plots need plotly: pip install 'farandole[report]'", param_hint="--html"
        ) from None


def check_factor_max(factor_max: int) -> None:
    if factor_max == 1:
        raise typer.BadParameter("--factor-max is 1, allowed are 0 and 2 or more")


# Schedules from files


def load_schedule(path: Path, also: Mapping[str, object], ranks_max: int) -> Schedule:
    """Proved. `also`: what the file says itself, so that it must not be given."""
    from farandole import Schedule

    for name, value in also.items():
        if value is not None:
            raise typer.BadParameter(f"give {name} or --schedule, not both")
    schedule = Schedule.load(path)
    if schedule.rank_count > ranks_max:
        raise typer.BadParameter(
            f"--schedule {path} is for {schedule.rank_count} ranks, allowed are {ranks_max}"
        )
    return schedule


# Memory


def check_memory(needed_bytes: float, what: str) -> None:
    """InvalidArgumentError where this machine has not got as much memory. `what`: "... asks to
    hold"."""
    present = memory_bytes()
    if needed_bytes > present:
        raise InvalidArgumentError(
            f"{what} {needed_bytes / 2**30:,.1f} GiB, this machine has {present / 2**30:,.1f} GiB"
        )


def memory_bytes() -> int:
    """Of this machine, or of the control group that this process is in."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # none there, or "max"
            limits.append(int(Path(file).read_text()))
    return min(limits)


# Options that several commands have. A name means the same everywhere, long or short.

_machine = typer.Option(
    "--machine",
    "-m",
    help="A machine's name, or a file of one.",
    autocompletion=lambda incomplete: complete(*_machine_names())(incomplete),
)
Machine = Annotated[str, _machine]
MachineIfGiven = Annotated[str | None, _machine]
_rank_count = typer.Option("-n", "--ranks", min=1, max=RANKS_MAX, help="Number of ranks.")
RankCount = Annotated[int, _rank_count]
RankCountIfGiven = Annotated[int | None, _rank_count]
_rank_counts = typer.Option(
    "--ranks", parser=rank_counts, metavar="N,N,...", help="Numbers of ranks."
)
RankCounts = Annotated[Counts, _rank_counts]
RankCountsIfGiven = Annotated[Counts | None, _rank_counts]
Bytes = Annotated[
    int,
    size_option("--bytes", default="128MiB", help="Of a rank: the larger of its input and output."),
]
BYTES_BY_DEFAULT = 128 << 20
Begin = Annotated[int, size_option("-b", "--begin", default="4", help="Smallest size.")]
Factor = Annotated[
    int, typer.Option("-f", "--factor", min=2, max=1 << 20, help="From one size to the next.")
]
FactorMax = Annotated[
    int, typer.Option(min=0, max=RANKS_MAX, help="Ranks of a layer of a hierarchy; 0: any.")
]
Collective = Annotated[
    str,
    choice("--collective", words=WITH_ALGORITHMS, help="As in `farandole algorithms`."),
]
_root = typer.Option(
    "--root", min=0, max=RANKS_MAX - 1, show_default="0", help="The rank that has, or gets, all."
)
Root = Annotated[int, _root]
RootIfGiven = Annotated[int | None, _root]
ScheduleFile = Annotated[
    Path | None,
    typer.Option(
        "--schedule",
        metavar="SCHEDULE",
        help="A schedule from a file instead, see docs/formats/schedule.md.",
    ),
]
Oversubscribe = Annotated[
    bool,
    typer.Option("--oversubscribe", help="Allow more than 8 ranks per core of a host."),
]


def _machine_names() -> list[str]:
    from farandole import machines

    return machines.names()
