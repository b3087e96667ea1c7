# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole explain`: what an algorithm does, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from farandole.cli.arguments import Root, Svg, complete, write
from farandole.measure.bench_plan import WITH_ALGORITHMS

RANKS_MAX = 256


def explain(
    collective: Annotated[
        str,
        typer.Argument(
            help="As in `farandole algorithms`.", autocompletion=complete(*WITH_ALGORITHMS)
        ),
    ],
    algorithm: Annotated[
        str, typer.Option(help="As in `farandole algorithms`, with options: knomial:radix=4.")
    ],
    rank_count: Annotated[
        int, typer.Option("-n", "--ranks", min=1, max=RANKS_MAX, help="Number of ranks.")
    ] = 4,
    root: Root = 0,
    svg: Svg = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the schedule in its own file format.")
    ] = False,
) -> None:
    """Draw an algorithm round by round.

    Shows what every rank receives, from whom. "in" is what a rank gives, "out" what it gets,
    "scratch" the library's own memory; numbers in brackets are chunks.
    """
    from farandole import _native
    from farandole.report.rounds import drawing_of

    schedule = _native.Schedule.build(collective, algorithm, rank_count, root)
    if text:
        print(schedule.text(), end="")
        return
    proof = schedule.verify()
    title = f"{collective} · {algorithm} · {rank_count} ranks"
    facts = f"{proof['rounds']} rounds, {proof['transfers']} messages, " + (
        f"{proof['reductions']} reductions, {schedule.chunk_count} chunks"
    )
    drawing = drawing_of(schedule.expand())
    if svg is not None:
        _write_svg(svg, drawing, title, facts)
        return
    _print(drawing, title, facts, _about(_native.algorithms(), collective, algorithm))


def _write_svg(path: Path, drawing: Any, title: str, facts: str) -> None:
    from farandole.report.schedule_svg import schedule_svg

    try:
        picture = schedule_svg(drawing, title, facts)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    write(path, picture)


def _about(table: list[dict[str, str]], collective: str, algorithm: str) -> str:
    for row in table:
        if (row["collective"], row["name"]) == (collective, algorithm.partition(":")[0]):
            return f"{row['summary']}\ntime {row['cost']}   {row['source']}"
    return ""


def _print(drawing: Any, title: str, facts: str, about: str) -> None:
    from rich.text import Text

    from farandole.report.schedule_text import (
        DETAILED_RANKS_MAX,
        LEGEND,
        rounds_table,
        summary_table,
    )
    from farandole.report.tables import console_of_stdout

    console = console_of_stdout()
    console.print(Text(title, style="bold"))
    console.print(Text(f"{about}\n{facts}"))
    if drawing.rank_count <= DETAILED_RANKS_MAX:
        console.print(rounds_table(drawing))
        console.print(Text(LEGEND, style="dim"))
    else:
        console.print(summary_table(drawing))
