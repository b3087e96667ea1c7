# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole bench`: how fast collectives are here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.bench_plan import (
    COLLECTIVES,
    NEVER_IN_PLACE,
    PLACES,
    REDUCING,
    ROOTED,
    WITHOUT_ALGORITHMS,
    BenchPlan,
)
from farandole.cli.launcher import LaunchOptions
from farandole.cli.run import launch
from farandole.cli.sizes import parse_size, size_steps


def bench(
    collective: Annotated[str, typer.Argument(help=f"One of {', '.join(COLLECTIVES)}.")],
    rank_count: Annotated[int, typer.Option("-n", "--ranks", min=1, help="Processes.")] = 2,
    begin: Annotated[str, typer.Option("-b", "--begin", help="Smallest size in bytes.")] = "4",
    end: Annotated[str, typer.Option("-e", "--end", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("-f", "--factor", help="From size to size.")] = 4,
    in_place: Annotated[
        bool | None, typer.Option("--in-place/--out-of-place", help="One of them only.")
    ] = None,
    owned: Annotated[
        bool, typer.Option("--owned", help="Arrays in library-owned memory: farandole.empty().")
    ] = False,
    transport: Annotated[str, typer.Option(help="auto, shm or tcp.")] = "auto",
    algorithm: Annotated[
        str,
        typer.Option(help="As in `farandole algorithms`, with options: hierarchical:layers=4/2."),
    ] = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Reduce in one fixed order of operands.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="Type of the elements.")] = "float32",
    op: Annotated[str, typer.Option(help="Reduction.")] = "sum",
    root: Annotated[int, typer.Option(min=0, help="The rank that has, or gets, all.")] = 0,
    iters: Annotated[
        int | None, typer.Option(min=1, help="Iterations per row; else as many as 0.5 s hold.")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="Iterations before; else up to 0.1 s of them.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write JSON lines to this file.")] = None,
) -> None:
    """Measure a collective, size by size.

    Starts the processes on this machine. Columns and bus factors are those of nccl-tests. The
    time is the median over iterations of the slowest rank's; every row is checked, and a row
    with wrong elements is void. Sizes are like 4, 8K or 256M; where ranks have blocks of a
    message, the size is that of all blocks. In a sendrecv each rank sends to the next one.
    """
    _check_names(collective, dtype, op)
    if root >= rank_count:
        raise typer.BadParameter(f"--root is {root}, allowed is a rank from 0 to {rank_count - 1}")
    chosen = "" if algorithm == "auto" else algorithm
    if chosen and collective in WITHOUT_ALGORITHMS:
        raise typer.BadParameter(f"--algorithm is {chosen}, but {collective} has no algorithms")
    if deterministic and collective not in REDUCING:
        raise typer.BadParameter(f"--deterministic is for {', '.join(REDUCING)}")
    try:
        sizes = size_steps(parse_size(begin), parse_size(end), factor)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    plan = BenchPlan(
        collective=collective,
        sizes=[0] if collective == "barrier" else sizes,
        dtype=dtype,
        op=op if collective in REDUCING else "",
        root=root if collective in ROOTED else -1,
        places=_places(collective, in_place),
        owned=owned,
        algorithm=chosen,
        deterministic=deterministic,
        iterations=iters,
        warmup=warmup,
        json_path="" if json is None else str(json.absolute()),
    )
    command = [sys.executable, "-m", "farandole.cli.bench_worker", plan.to_json()]
    environment = {"FARANDOLE_TRANSPORT": transport}
    raise typer.Exit(launch(LaunchOptions(command, rank_count, environment)))


def _check_names(collective: str, dtype: str, op: str) -> None:
    from farandole import _native

    if collective not in COLLECTIVES:
        raise typer.BadParameter(f"{collective!r} is none of {', '.join(COLLECTIVES)}")
    for option, value, allowed in (
        ("--dtype", dtype, _native.DTYPES),
        ("--op", op, _native.REDUCTIONS),
    ):
        if value not in allowed:
            raise typer.BadParameter(f"{option} is {value!r}, allowed are {', '.join(allowed)}")


def _places(collective: str, in_place: bool | None) -> tuple[str, ...]:
    if in_place and collective in NEVER_IN_PLACE:
        raise typer.BadParameter(f"--in-place: {collective} works out of place only")
    if in_place is None:
        return PLACES[:1] if collective == "barrier" else PLACES
    return PLACES[1:] if in_place else PLACES[:1]
