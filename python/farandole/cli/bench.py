# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole bench`: how fast collectives are here."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.arguments import (
    COUNT_MAX,
    Begin,
    Factor,
    Json,
    Oversubscribe,
    Root,
    complete,
    printed,
    size_option,
)
from farandole.cli.joined import (
    RANKS_BY_DEFAULT,
    JobRanks,
    Ranks,
    Transport,
    is_in_job,
    measure,
)
from farandole.cli.sizes import size_steps
from farandole.measure.bench_plan import (
    COLLECTIVES,
    NEVER_IN_PLACE,
    PLACES,
    REDUCING,
    ROOTED,
    WITHOUT_ALGORITHMS,
    BenchPlan,
)


def bench(
    collective: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(COLLECTIVES)}.", autocompletion=complete(*COLLECTIVES)
        ),
    ],
    rank_count: JobRanks = None,
    begin: Begin = 4,
    end: Annotated[int, size_option("-e", "--end", default="64MiB", help="Largest size.")] = 64
    << 20,
    factor: Factor = 4,
    in_place: Annotated[
        bool | None, typer.Option("--in-place/--out-of-place", help="One of them only.")
    ] = None,
    owned: Annotated[
        bool, typer.Option("--owned", help="Arrays in library-owned memory: farandole.empty().")
    ] = False,
    transport: Transport = None,
    algorithm: Annotated[
        str,
        typer.Option(help="As in `farandole algorithms`, with options: hierarchical:layers=4/2."),
    ] = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Reduce in one fixed order of operands.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="Type of the elements.")] = "float32",
    op: Annotated[str, typer.Option(help="Reduction.")] = "sum",
    root: Root = 0,
    iters: Annotated[
        int | None,
        typer.Option(min=1, max=COUNT_MAX, help="Iterations per row; else as many as 0.5 s hold."),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(min=0, max=COUNT_MAX, help="Iterations before; else up to 0.1 s of them."),
    ] = None,
    json: Json = None,
    oversubscribe: Oversubscribe = False,
) -> None:
    """Measure a collective, size by size.

    As the command of a job, with `farandole run -n 8 -H node1:4,node2:4 farandole bench ...`, it
    measures between the ranks of that job; by itself it starts ranks on this machine. Columns and
    bus factors are those of nccl-tests. The time is the median over iterations of the slowest
    rank's; every row is checked, and a row with wrong elements is void. Sizes are like 4, 8K or
    256M; where ranks have blocks of a message, the size is that of all blocks. In a sendrecv each
    rank sends to the next one. JSON is a line for each row and place.
    """
    _check_names(collective, dtype, op)
    if not is_in_job():
        _check_root(root, rank_count or RANKS_BY_DEFAULT)
    chosen = "" if algorithm == "auto" else algorithm
    if chosen and collective in WITHOUT_ALGORITHMS:
        raise typer.BadParameter(f"--algorithm is {chosen}, but {collective} has no algorithms")
    _check_algorithm(collective, chosen)
    if deterministic and collective not in REDUCING:
        raise typer.BadParameter(f"--deterministic is for {', '.join(REDUCING)}")
    try:
        sizes = size_steps(begin, end, factor)
    except ValueError as error:
        raise typer.BadParameter(f"--begin, --end: {error}") from error
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
    )
    # Input and output, in-place or not.
    ranks = Ranks(rank_count, 1, transport, oversubscribe, [json], 2 * plan.sizes[-1])
    measure(ranks, lambda: _run(plan, json))


def _run(plan: BenchPlan, json: Path | None) -> int:
    """Of one rank; rank 0 prints and writes."""
    import farandole
    from farandole.measure.bench_worker import Bench

    _check_root(plan.root, farandole.size())
    with contextlib.ExitStack() as files:
        output = None
        if json is not None and not printed(json) and farandole.rank() == 0:
            output = files.enter_context(json.open("w", encoding="utf-8"))
        return 1 if Bench(plan, output, only_json=printed(json)).run() else 0


def _check_root(root: int, rank_count: int) -> None:
    from farandole.errors import InvalidArgumentError

    if root >= rank_count:
        raise InvalidArgumentError(
            f"--root is {root}, allowed is a rank from 0 to {rank_count - 1}"
        )


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


def _check_algorithm(collective: str, spec: str) -> None:
    """That there is one of this name; its options are for the ranks to judge."""
    from farandole import _native

    names = [row["name"] for row in _native.algorithms() if row["collective"] == collective]
    if spec and spec.partition(":")[0] not in names:
        raise typer.BadParameter(
            f"--algorithm is {spec!r}, {collective} has {', '.join(names)}, with or without options"
        )


def _places(collective: str, in_place: bool | None) -> tuple[str, ...]:
    if in_place and collective in NEVER_IN_PLACE:
        raise typer.BadParameter(f"--in-place: {collective} works out of place only")
    if in_place is None:
        return PLACES[:1] if collective == "barrier" else PLACES
    return PLACES[1:] if in_place else PLACES[:1]
