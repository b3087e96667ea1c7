# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole trace`: timelines of a job's ranks, put together and summed up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli.arguments import Json, output_file, write_json
from farandole.cli.command import Command

if TYPE_CHECKING:
    from farandole.trace.summary import Summary

Files = Annotated[list[Path], typer.Argument(help="The timeline of each rank.", metavar="FILES")]
Partial = Annotated[bool, typer.Option("--partial", help="Do without the ranks not given.")]

trace = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Merge and summarize timelines that ranks recorded.",
)


@trace.command(cls=Command)
def merge(
    files: Files,
    output: Annotated[
        Path, output_file("-o", "--output", help="File to write; .gz is compressed.")
    ],
    partial: Partial = False,
) -> None:
    """Merge the timelines of all ranks.

    All are put on the clock of rank 0, and begin with the earliest event. https://ui.perfetto.dev
    opens the file, with one process per rank.
    """
    from farandole.trace.timeline import load_all, write_merged

    traces = load_all(files, partial)
    write_merged(traces, output)
    events = sum(len(one.spans) + len(one.samples) + len(one.marks) for one in traces)
    print(f"{output}: {len(traces)} of {traces[0].size} ranks, {events:,} events")


@trace.command(cls=Command)
def summary(
    files: Files,
    json: Json = None,
    partial: Partial = False,
) -> None:
    """Tell where the time of a job went.

    Shows the time in each phase, the ranks for which the others waited, the tensors that waited
    longest, the counters, and how many events were dropped. Times are of all ranks together;
    p50 and p99 are of single events.
    """
    from dataclasses import asdict

    from farandole.trace.summary import summarize
    from farandole.trace.timeline import load_all

    result = summarize(load_all(files, partial))
    if not write_json(json, asdict(result)):
        _print(result)


def _print(result: Summary) -> None:
    from farandole.report.tables import print_table

    print(
        f"{len(result.ranks)} of {result.size} ranks, {_ms(result.duration_ns)} ms, "
        f"{result.negotiations:,} negotiations"
    )
    for title, rows in _tables(result):
        if rows:
            print(f"\n{title}")
            print_table(rows, list(rows[0]), ("tensor", "host", "counter"))
    dropped = {rank: sum(counts.values()) for rank, counts in result.dropped.items()}
    if any(dropped.values()):
        print("\nEvents dropped, which are missing above:")
        for rank, counts in result.dropped.items():
            if dropped[rank]:
                print(
                    f"rank {rank}: {counts['queue_full']:,} as the queue was full, "
                    f"{counts['file_full']:,} as the file was"
                )
    else:
        print("\nNo events were dropped.")


def _tables(result: Summary) -> list[tuple[str, list[dict[str, str]]]]:
    phases = [
        {
            "phase": row.phase,
            "events": f"{row.count:,}",
            "total (ms)": _ms(row.total_ns),
            "share": f"{row.share:.1%}",
            "p50 (ms)": _ms(row.p50_ns),
            "p99 (ms)": _ms(row.p99_ns),
        }
        for row in result.phases
    ]
    arrivals = [
        {
            "rank": str(row.rank),
            "host": _printable(row.host),
            "last": f"{row.last:,}",
            "of all": f"{row.last / result.negotiations:.1%}",
            "others waited (ms)": _ms(row.others_waited_ns),
            "longest (ms)": _ms(row.longest_wait_ns),
        }
        for row in result.arrivals
        if row.last
    ]
    tensors = [
        {
            "tensor": _printable(row.tensor),
            "times": f"{row.count:,}",
            "waited (ms)": _ms(row.total_ns),
            "longest (ms)": _ms(row.longest_ns),
        }
        for row in result.tensors
    ]
    counters = [
        {
            "counter": _printable(row.name),
            "samples": f"{row.count:,}",
            "mean": f"{row.mean:,.6g}",
            "lowest": f"{row.low:,.6g}",
            "highest": f"{row.high:,.6g}",
        }
        for row in result.counters
    ]
    return [
        ("Where the time went", phases),
        ("Who came last to a negotiation, the slowest first", arrivals),
        ("Tensors that waited longest", tensors),
        ("Counters", counters),
    ]


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


def _printable(text: str) -> str:
    """Names come from files: nothing in them moves the cursor."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
