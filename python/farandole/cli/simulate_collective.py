# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate collective`: one call of all ranks on a described machine."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from farandole.cli.arguments import choice, size
from farandole.sweeps import ROUTINGS

PATHS = ("auto", "events", "rounds")


def collective(
    machine: Annotated[
        str, typer.Option("--machine", "-m", help="A machine's name, or a file of one.")
    ],
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="Number of ranks.")],
    algorithm: Annotated[
        str, typer.Option(help="As in `farandole algorithms`: hierarchical:layers=4ring/32ring.")
    ],
    collective: Annotated[str, typer.Option(help="As in `farandole algorithms`.")] = "allreduce",
    size_bytes: Annotated[
        str, typer.Option("--bytes", help="Of a rank: the larger of its input and output.")
    ] = "128MiB",
    root: Annotated[int, typer.Option(min=0, help="The rank that has, or gets, all.")] = 0,
    routing: Annotated[
        str, typer.Option(help="Over a rack's uplinks: static_hash, destination or ideal.")
    ] = "static_hash",
    seeds: Annotated[
        int, typer.Option(min=1, help="Hashes to try; median and range are shown.")
    ] = 1,
    path: Annotated[str, typer.Option(help="Of the simulator: auto, events or rounds.")] = "auto",
    straggler: Annotated[
        list[str] | None,
        typer.Option(help="FACTOR@RANK: calls, copies and reductions of a rank take longer."),
    ] = None,
    links: Annotated[int, typer.Option(min=0, help="Busiest links to show.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time one call of a collective, round by round, as messages share the machine's links.

    Runs the schedule that the engine would run. With several seeds, each a different assignment
    of messages to the uplinks of racks, what is shown of stages and links is of the median run.
    """
    from farandole import _native, machines
    from farandole.report import simulation as report

    choice(routing, ROUTINGS, "routing")
    choice(path, PATHS, "path")
    if seeds > 1 and routing != "static_hash":
        raise typer.BadParameter("only static_hash has seeds", param_hint="seeds")
    described = machines.load(machine).machine()
    schedule = _native.Schedule.build(collective, algorithm, ranks, root)
    options: dict[str, Any] = {
        "path": path,
        "slow_down": _slow_down(straggler or [], ranks),
        "busiest_links": links,
    }
    call: report.Call = (schedule, size(size_bytes, "bytes"), [], [])
    runs = [
        report.timed(_native.Simulator(described, ranks, routing=routing, seed=seed), call, options)
        for seed in range(seeds)
    ]
    if as_json:
        print(json.dumps(report.summary(runs), indent=2))
        return
    report.print_simulation(runs, f"{machine}, {ranks:,} ranks: {collective} by {algorithm}")


def _slow_down(given: list[str], ranks: int) -> list[float]:
    """[ranks], or none at all where nobody is slow."""
    factors = [1.0] * ranks
    for text in given:
        factor, _, rank = text.partition("@")
        try:
            value, index = float(factor), int(rank)
        except ValueError:
            value, index = -1.0, -1
        if not (0 <= value < float("inf") and 0 <= index < ranks):
            raise typer.BadParameter(
                f"'{text}' is not FACTOR@RANK, with a rank from 0 to {ranks - 1}",
                param_hint="straggler",
            )
        factors[index] = value
    return factors if given else []
