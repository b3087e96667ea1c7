# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole explain`: what an algorithm does, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from farandole.cli.arguments import (
    RootIfGiven,
    ScheduleFile,
    Svg,
    complete,
    load_schedule,
    write,
)
from farandole.measure.bench_plan import WITH_ALGORITHMS

RANKS_MAX = 256


def explain(
    collective: Annotated[
        str | None,
        typer.Argument(
            help="As in `farandole algorithms`.", autocompletion=complete(*WITH_ALGORITHMS)
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="As in `farandole algorithms`, with options: knomial:radix=4."),
    ] = None,
    rank_count: Annotated[
        int | None,
        typer.Option(
            "-n", "--ranks", min=1, max=RANKS_MAX, show_default="4", help="Number of ranks."
        ),
    ] = None,
    root: RootIfGiven = None,
    schedule: ScheduleFile = None,
    svg: Svg = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the schedule in its own file format.")
    ] = False,
) -> None:
    """Draw an algorithm, or a schedule from a file, round by round.

    Shows what every rank receives, from whom. "in" is what a rank gives, "out" what it gets,
    "scratch" the library's own memory; numbers in brackets are chunks.
    """
    from farandole import _native
    from farandole.report.rounds import drawing_of

    given = {"COLLECTIVE": collective, "--algorithm": algorithm, "--ranks": rank_count}
    if schedule is not None:
        shown = load_schedule(schedule, given | {"--root": root}, RANKS_MAX).native
    elif collective is None or algorithm is None:
        raise typer.BadParameter("give COLLECTIVE and --algorithm, or --schedule")
    elif row := _delegate(collective, algorithm, rank_count or 4):
        if text or svg is not None:
            raise typer.BadParameter(f"{algorithm} is a delegate, which has no schedule to show")
        _print_delegate(row, rank_count or 4)
        return
    else:
        shown = _native.Schedule.build(collective, algorithm, rank_count or 4, root or 0)
    if text:
        print(shown.text(), end="")
        return
    proof = shown.verify()
    title = f"{shown.collective} · {algorithm or shown.algorithm} · {shown.rank_count} ranks"
    facts = f"{proof['rounds']} rounds, {proof['transfers']} messages, " + (
        f"{proof['reductions']} reductions, {shown.chunk_count} chunks"
    )
    drawing = drawing_of(shown.expand())
    if svg is not None:
        _write_svg(svg, drawing, title, facts)
        return
    about = f"from {schedule}" if schedule is not None else ""
    if algorithm is not None:
        about = _about(_native.algorithms(), shown.collective, algorithm)
    _print(drawing, title, facts, about)


def _delegate(collective: str, algorithm: str, rank_count: int) -> dict[str, Any] | None:
    from farandole import _native

    for row in _native.delegates(rank_count):
        if (row["collective"], row["name"]) == (collective, algorithm):
            return row
    return None


def _print_delegate(row: dict[str, Any], rank_count: int) -> None:
    from farandole.report.units import seconds_text

    per_mib = seconds_text(row["seconds_per_byte"] * (1 << 20))
    print(f"{row['collective']} · {row['name']} · {rank_count} ranks")
    print(row["summary"])
    print("one step: a delegate runs the whole collective outside the engine")
    print(f"time on one host {seconds_text(row['seconds'])} + {per_mib} per MiB")


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
