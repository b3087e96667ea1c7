# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate`: many ranks in one process."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from farandole.cli.arguments import (
    COUNT_MAX,
    Counts,
    Html,
    Json,
    RankCounts,
    check_memory,
    require_plotly,
    write,
    write_json,
)
from farandole.cli.command import Command
from farandole.cli.simulate_collective import collective
from farandole.cli.simulate_training import training
from farandole.report.coordination import DESIGNS, Cycle, as_html, as_rows
from farandole.report.tables import print_table

app = typer.Typer(help="Run many ranks in one process, in simulated time.", no_args_is_help=True)

_RANKS = Counts((1000, 6000, 27600))
_US_MAX = 1e9
# What the simulated controllers take, found with 27,600 ranks: 2.2 GB for 161 tensors, 8 for 1000.
_RANK_BYTES, _TENSOR_BYTES = 35_000, 250
FIRST_AND_STEADY = 2  # steps: one in which every tensor is new, one in which none is


@app.callback()
def simulate() -> None:
    """Run many ranks in one process, in simulated time."""


@app.command(cls=Command)
def coordinator(
    ranks: RankCounts = _RANKS,
    tensors: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="Tensors per step.")] = 161,
    cache_capacity: Annotated[
        int, typer.Option(min=1, max=65536, help="Entries of the cache.")
    ] = 1024,
    latency_us: Annotated[
        float, typer.Option(min=0.0, max=_US_MAX, help="A message is on its way for so long.")
    ] = 2.0,
    overhead_us: Annotated[
        float,
        typer.Option(min=0.0, max=_US_MAX, help="Sender and receiver are each busy for so long."),
    ] = 1.0,
    bandwidth_gb: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="GB/s (10^9 bytes) of a rank's link.")
    ] = 10.0,
    json: Json = None,
    html: Html = None,
) -> None:
    """What it costs to agree on the order of a step's tensors, by number of ranks.

    Runs the controllers of all ranks, the code that training runs, over a simulated network
    (LogGP), for three designs: flat, where every rank reports to rank 0; tree, where reports are
    merged on the way; cached, where known tensors are bits of one allreduce. Each design agrees on
    a first step, in which every tensor is new, and on a later one. All times are simulated.
    """
    from rich.progress import track

    from farandole import _native

    require_plotly(html)
    counts = ranks.values
    most = max(counts)
    check_memory(
        most * (_RANK_BYTES + _TENSOR_BYTES * tensors),
        f"--ranks {most} with --tensors {tensors} need",
    )
    cycles: list[Cycle] = []
    cases = [(design, count) for count in counts for design in DESIGNS]
    for design, count in track(cases, description="Simulating", transient=True):
        network: dict[str, Any] = {
            "latency_us": latency_us,
            "overhead_us": overhead_us,
            "bytes_per_us": bandwidth_gb * 1e3,
        }
        costs = _native.simulate_coordination(
            design,
            rank_count=count,
            tensor_count=tensors,
            cache_capacity=cache_capacity,
            step_count=FIRST_AND_STEADY,
            **network,
        )
        for step, cost in zip(("first", "later"), costs, strict=True):
            cycles.append(Cycle(design=design, ranks=count, step=step, **cost))
    rows = as_rows(cycles)
    if not write_json(json, rows):
        print_table(rows, list(rows[0]), wrapped=())
    if html is not None:
        write(html, as_html(cycles, tensors))


app.command(cls=Command)(collective)
app.command(cls=Command)(training)
