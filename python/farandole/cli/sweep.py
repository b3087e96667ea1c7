# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole sweep`: all hierarchies, all sizes, all scales."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from farandole.cli.arguments import (
    BYTES_BY_DEFAULT,
    COUNT_MAX,
    RANKS_MAX,
    Begin,
    Bytes,
    Collective,
    Factor,
    FactorMax,
    Html,
    Json,
    Machine,
    RankCount,
    RankCountsIfGiven,
    check_factor_max,
    choice,
    require_plotly,
    size_option,
    write,
    write_json,
)
from farandole.cli.command import Command
from farandole.cli.sizes import size_steps
from farandole.cli.training_options import (
    BATCH_MAX,
    GROUPS_MAX,
    Batch,
    CycleTime,
    DeviceTflops,
    FusionThreshold,
    Model,
)
from farandole.planning.sweeps import ROUTINGS, SOURCES
from farandole.report.tables import print_table
from farandole.report.units import size_text

app = typer.Typer(help="Ask the planner or the simulator many questions.", no_args_is_help=True)

_T = TypeVar("_T")
RanksMax = Annotated[
    int, typer.Option(min=2, max=RANKS_MAX, help="Without --ranks: as many at most.")
]


@app.callback()
def sweep() -> None:
    """Ask the planner or the simulator many questions."""


@app.command(cls=Command)
def factorizations(
    machine: Machine,
    ranks: RankCount,
    size_bytes: Bytes = BYTES_BY_DEFAULT,
    powers_of_two: Annotated[
        bool, typer.Option("--powers-of-two", help="Layers of 2, 4, 8, ... ranks only.")
    ] = False,
    factor_max: FactorMax = 0,
    source: Annotated[
        str, choice("--by", words=SOURCES, help="Closed forms, or the simulator.")
    ] = "predicted",
    routing: Annotated[
        str, choice("--routing", words=ROUTINGS, help="Over a rack's uplinks, simulated.")
    ] = "ideal",
    top: Annotated[int, typer.Option(min=1, max=COUNT_MAX, help="Rows to print.")] = 20,
    json: Json = None,
    html: Html = None,
) -> None:
    """Time an allreduce by rings in layers, for every ordered factorization of the ranks.

    The first layer joins neighbours, which share a host. Each layer's time is that of its ring on
    the way in, reducing, and on the way out.
    """
    from farandole import machines
    from farandole.planning import sweeps
    from farandole.report import sweep as report

    check_factor_max(factor_max)
    require_plotly(html)
    described = machines.load(machine).machine()
    chosen = sweeps.ring_hierarchies(ranks, factor_max, powers_of_two)
    times = sweeps.HierarchyTimes(described, ranks, size_bytes, source, routing)
    timed = _tracked(times.all(chosen), len(chosen))
    found = sorted(timed, key=lambda one: (one.seconds, one.layers))
    about = f"allreduce of {size_text(size_bytes)} by rings in layers, {ranks:,} ranks of {machine}"
    facts = {"machine": machine, "ranks": ranks, "bytes": size_bytes}
    rows = [{"name": one.name, **asdict(one)} for one in found]
    if not write_json(json, {"kind": source, **facts, "rows": rows}):
        print(f"{about}: {len(found):,} ordered factorizations, {source}")
        _print(report.hierarchy_rows(found, times([ranks]), source, size_bytes, top))
    if html is not None:
        write(html, report.hierarchy_html(found, source, about))


@app.command("map", cls=Command)
def fastest_map(
    machine: Machine,
    collective: Collective = "allreduce",
    ranks: RankCountsIfGiven = None,
    ranks_max: RanksMax = RANKS_MAX,
    begin: Begin = 4,
    end: Annotated[int, size_option("-e", "--end", default="1GiB", help="Largest size.")] = 1 << 30,
    factor: Factor = 4,
    json: Json = None,
    html: Html = None,
) -> None:
    """Show which algorithm is predicted to be the fastest, by size and number of ranks.

    Without --ranks these are 2, 4, 8, ... and all devices.
    """
    from farandole import machines
    from farandole.planning import sweeps
    from farandole.report import sweep as report

    require_plotly(html)
    described = machines.load(machine).machine()
    counts = ranks.values if ranks else sweeps.rank_counts(described, ranks_max)
    try:
        sizes = size_steps(begin, end, factor)
    except ValueError as error:
        raise typer.BadParameter(f"--begin, --end: {error}") from error
    found = [
        cell
        for count in _tracked(counts, len(counts))
        for cell in sweeps.fastest(described, collective, [count], sizes)
    ]
    about = f"{collective} on {machine}: the fastest algorithm by size and scale"
    facts = {"machine": machine, "collective": collective}
    rows = [asdict(cell) for cell in found]
    if not write_json(json, {"kind": "predicted", **facts, "rows": rows}):
        print(f"{about}, predicted")
        _print(report.map_rows(found), wrapped=("predicted fastest, by bytes",))
    if html is not None:
        write(html, report.map_html(found, about))


@app.command(cls=Command)
def scaling(
    machine: Machine,
    model: Model = "resnet50",
    ranks: RankCountsIfGiven = None,
    ranks_max: RanksMax = RANKS_MAX,
    batch: Batch = 32.0,
    global_batch: Annotated[
        float,
        typer.Option(min=1.0, max=BATCH_MAX, help="Samples of all ranks, strong scaling."),
    ] = 8192.0,
    device_tflops: DeviceTflops = 7.0,
    fusion_threshold: FusionThreshold = BYTES_BY_DEFAULT,
    cycle_time_ms: CycleTime = 1.0,
    groups: Annotated[
        int,
        typer.Option(
            min=1, max=GROUPS_MAX, help="Groups of gradients of the variant that has some."
        ),
    ] = 4,
    json: Json = None,
    html: Html = None,
) -> None:
    """Simulate training steps, weak and strong scaling, with and without overlap, cache, groups.

    The first variant has overlap and cache; each other one changes one thing. Efficiency is
    samples per second over those of as many ranks that need not communicate. Without --ranks
    these are 4, 16, 64, ... and all devices.
    """
    from farandole import machines
    from farandole.planning import scaling as steps
    from farandole.planning.sweeps import rank_counts
    from farandole.report import scaling as report

    require_plotly(html)
    described = machines.load(machine).machine()
    counts = ranks.values if ranks else rank_counts(described, ranks_max, 4)
    training = steps.Training(
        model=model,
        batch=batch,
        device_tflops=device_tflops,
        fusion_threshold_bytes=fusion_threshold,
        cycle_seconds=cycle_time_ms * 1e-3,
    )
    chosen = steps.variants(training, groups)
    found = [
        point
        for count in _tracked(counts, len(counts))
        for point in steps.scale(described, chosen, [count], global_batch)
    ]
    about = f"{model} on {machine}: weak and strong scaling"
    facts = {"machine": machine, "global_batch": global_batch, "training": asdict(training)}
    rows = [point.fields() for point in found]
    if not write_json(json, {"kind": "simulated", **facts, "rows": rows}):
        print(f"{about}, simulated")
        _print(report.scaling_rows(found))
        print(report.BASIS)
    if html is not None:
        write(html, report.scaling_html(found, training, global_batch, about))


def _tracked(items: Iterable[_T], total: int) -> Iterator[_T]:
    from rich.console import Console
    from rich.progress import track

    yield from track(items, "Sweeping", total, console=Console(stderr=True), transient=True)


def _print(rows: Sequence[Mapping[str, str]], wrapped: Iterable[str] = ()) -> None:
    print_table(rows, list(rows[0]), wrapped=tuple(wrapped))
