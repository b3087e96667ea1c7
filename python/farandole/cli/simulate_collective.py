# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate collective`: one call of all ranks on a described machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from farandole.cli.arguments import (
    BYTES_BY_DEFAULT,
    COUNT_MAX,
    Bytes,
    Collective,
    Json,
    Machine,
    RankCount,
    Root,
    choice,
    write_json,
)
from farandole.planning.sweeps import ROUTINGS

FACTOR_MAX = 1e6
PATHS = ("auto", "events", "rounds")


def collective(
    machine: Machine,
    ranks: RankCount,
    algorithm: Annotated[
        str, typer.Option(help="As in `farandole algorithms`: hierarchical:layers=4ring/32ring.")
    ],
    collective: Collective = "allreduce",
    size_bytes: Bytes = BYTES_BY_DEFAULT,
    root: Root = 0,
    routing: Annotated[
        str, choice("--routing", words=ROUTINGS, help="Over a rack's uplinks.")
    ] = "static_hash",
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Hashes to try; median and range are shown.")
    ] = 1,
    path: Annotated[str, choice("--path", words=PATHS, help="Of the simulator.")] = "auto",
    straggler: Annotated[
        list[str] | None,
        typer.Option(help="FACTOR@RANK: calls, copies and reductions of a rank take longer."),
    ] = None,
    links: Annotated[int, typer.Option(min=0, max=COUNT_MAX, help="Busiest links to show.")] = 8,
    json: Json = None,
) -> None:
    """Time one call of a collective, round by round, as messages share the machine's links.

    Runs the schedule that the engine would run. With several seeds, each a different assignment
    of messages to the uplinks of racks, what is shown of stages and links is of the median run.
    """
    from farandole import _native, machines
    from farandole.report import simulation as report

    if seeds > 1 and routing != "static_hash":
        raise typer.BadParameter("only static_hash has seeds", param_hint="--seeds")
    described = machines.load(machine).machine()
    schedule = _native.Schedule.build(collective, algorithm, ranks, root)
    options: dict[str, Any] = {
        "path": path,
        "slow_down": _slow_down(straggler or [], ranks),
        "busiest_links": links,
    }
    call = _native.SimulatedCall(schedule=schedule, bytes=size_bytes)
    runs = [
        report.timed(_native.Simulator(described, ranks, routing=routing, seed=seed), call, options)
        for seed in range(seeds)
    ]
    if write_json(json, report.summary(runs)):
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
        if not (0 <= value <= FACTOR_MAX and 0 <= index < ranks):
            raise typer.BadParameter(
                f"'{text}' is not FACTOR@RANK, with a factor up to {FACTOR_MAX:g} and a rank from "
                f"0 to {ranks - 1}",
                param_hint="--straggler",
            )
        factors[index] = value
    return factors if given else []
