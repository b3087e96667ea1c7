# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate collective`: one call of all ranks on a described machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from farandole.cli.arguments import (
    BYTES_BY_DEFAULT,
    COUNT_MAX,
    RANKS_MAX,
    Bytes,
    Json,
    Machine,
    RankCountIfGiven,
    RootIfGiven,
    ScheduleFile,
    choice,
    load_schedule,
    write_json,
)
from farandole.measure.bench_plan import WITH_ALGORITHMS
from farandole.planning.sweeps import ROUTINGS

FACTOR_MAX = 1e6
PATHS = ("auto", "events", "rounds")


def collective(
    machine: Machine,
    ranks: RankCountIfGiven = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="As in `farandole algorithms`: hierarchical:layers=4ring/32ring."),
    ] = None,
    collective: Annotated[
        str | None,
        choice(
            "--collective",
            words=WITH_ALGORITHMS,
            help="As in `farandole algorithms`; else allreduce.",
        ),
    ] = None,
    size_bytes: Bytes = BYTES_BY_DEFAULT,
    root: RootIfGiven = None,
    schedule: ScheduleFile = None,
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
    given = {"--ranks": ranks, "--algorithm": algorithm, "--collective": collective}
    if schedule is not None:
        timed = load_schedule(schedule, given | {"--root": root}, RANKS_MAX).native
    elif ranks is None or algorithm is None:
        raise typer.BadParameter("give --ranks and --algorithm, or --schedule")
    else:
        timed = _native.Schedule.build(collective or "allreduce", algorithm, ranks, root or 0)
    ranks = timed.rank_count
    options: dict[str, Any] = {
        "path": path,
        "slow_down": _slow_down(straggler or [], ranks),
        "busiest_links": links,
    }
    call = _native.SimulatedCall(schedule=timed, bytes=size_bytes)
    runs = [
        report.timed(_native.Simulator(described, ranks, routing=routing, seed=seed), call, options)
        for seed in range(seeds)
    ]
    if write_json(json, report.summary(runs)):
        return
    title = f"{machine}, {ranks:,} ranks: {timed.collective} by {algorithm or timed.algorithm}"
    report.print_simulation(runs, title)


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
