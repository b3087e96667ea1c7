# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole bench`: how fast collectives are here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.bench_plan import COLLECTIVES, PLACES, BenchPlan
from farandole.cli.launcher import LaunchOptions
from farandole.cli.run import launch
from farandole.cli.sizes import parse_size, size_steps

REDUCING = ("allreduce", "reducescatter")


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
    algorithm: Annotated[str, typer.Option(help="See `farandole algorithms`.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Type of the elements.")] = "float32",
    op: Annotated[str, typer.Option(help="Reduction.")] = "sum",
    root: Annotated[int, typer.Option(min=0, help="Who broadcasts.")] = 0,
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
    with wrong elements is void. Sizes are like 4, 8K or 256M; of an allgather or reducescatter,
    the size is that of the larger side.
    """
    if collective not in COLLECTIVES:
        raise typer.BadParameter(f"{collective!r} is none of {', '.join(COLLECTIVES)}")
    from farandole import _native

    for option, value, allowed in (
        ("--dtype", dtype, _native.DTYPES),
        ("--op", op, _native.REDUCTIONS),
    ):
        if value not in allowed:
            raise typer.BadParameter(f"{option} is {value!r}, allowed are {', '.join(allowed)}")
    try:
        sizes = size_steps(parse_size(begin), parse_size(end), factor)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    places = PLACES if in_place is None else (PLACES[1],) if in_place else (PLACES[0],)
    plan = BenchPlan(
        collective=collective,
        sizes=[0] if collective == "barrier" else sizes,
        dtype=dtype,
        op=op if collective in REDUCING else "",
        root=root if collective == "broadcast" else -1,
        places=places[:1] if collective == "barrier" else places,
        owned=owned,
        algorithm="" if algorithm == "auto" else algorithm,
        iterations=iters,
        warmup=warmup,
        json_path="" if json is None else str(json.absolute()),
    )
    command = [sys.executable, "-m", "farandole.cli.bench_worker", plan.to_json()]
    environment = {"FARANDOLE_TRANSPORT": transport}
    raise typer.Exit(launch(LaunchOptions(command, rank_count, environment)))
