# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole sweep`: all hierarchies, all sizes, all scales."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from farandole.cli.arguments import choice, numbers, require_plotly, size, write
from farandole.cli.sizes import size_steps
from farandole.report.tables import print_table

app = typer.Typer(help="Ask the planner or the simulator many questions.", no_args_is_help=True)

_T = TypeVar("_T")
MachineOption = Annotated[
    str, typer.Option("--machine", "-m", help="A machine's name, or a file of one.")
]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write all numbers here.")]
HtmlOption = Annotated[Path | None, typer.Option(help="Write plots here; needs farandole[report].")]


@app.callback()
def sweep() -> None:
    """Ask the planner or the simulator many questions."""


@app.command()
def factorizations(
    machine: MachineOption,
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=2, help="Number of ranks.")],
    size_bytes: Annotated[str, typer.Option("--bytes", help="Of the allreduce.")] = "128MiB",
    powers_of_two: Annotated[
        bool, typer.Option("--powers-of-two", help="Layers of 2, 4, 8, ... ranks only.")
    ] = False,
    factor_max: Annotated[int, typer.Option(min=0, help="Ranks of a layer; 0: any.")] = 0,
    source: Annotated[
        str, typer.Option("--by", help="predicted, by closed forms, or simulated.")
    ] = "predicted",
    routing: Annotated[
        str, typer.Option(help="Of simulated ones: ideal, destination or static_hash.")
    ] = "ideal",
    top: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 20,
    json_file: JsonOption = None,
    html: HtmlOption = None,
) -> None:
    """Time an allreduce by rings in layers, for every ordered factorization of the ranks.

    The first layer joins neighbours, which share a host. Each layer's time is that of its ring on
    the way in, reducing, and on the way out.
    """
    from farandole import machines, sweeps
    from farandole.report import sweep as report

    choice(source, sweeps.SOURCES, "by")
    choice(routing, sweeps.ROUTINGS, "routing")
    _check_html(html)
    given = size(size_bytes, "bytes")
    described = machines.load(machine).machine()
    chosen = sweeps.ring_hierarchies(ranks, factor_max, powers_of_two)
    times = sweeps.HierarchyTimes(described, ranks, given, source, routing)
    timed = _tracked(times.all(chosen), len(chosen))
    found = sorted(timed, key=lambda one: (one.seconds, one.layers))
    about = f"allreduce of {size_bytes} by rings in layers, {ranks:,} ranks of {machine}"
    print(f"{about}: {len(found):,} ordered factorizations, {source}")
    _print(report.hierarchy_rows(found, times([ranks]), source, given, top))
    facts = {"machine": machine, "ranks": ranks, "bytes": given}
    _save(json_file, source, facts, [{"name": one.name, **asdict(one)} for one in found])
    if html is not None:
        write(html, report.hierarchy_html(found, source, about))


@app.command("map")
def fastest_map(
    machine: MachineOption,
    collective: Annotated[str, typer.Option(help="As in `farandole algorithms`.")] = "allreduce",
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks; else 2, 4, 8, ... and all devices.")
    ] = None,
    ranks_max: Annotated[
        int, typer.Option(min=2, help="Without --ranks: as many at most.")
    ] = 27600,
    begin: Annotated[str, typer.Option("-b", "--begin", help="The smallest size.")] = "4",
    end: Annotated[str, typer.Option("-e", "--end", help="The largest size.")] = "1GiB",
    factor: Annotated[int, typer.Option(min=2, help="From one size to the next.")] = 4,
    json_file: JsonOption = None,
    html: HtmlOption = None,
) -> None:
    """Show which algorithm is predicted to be the fastest, by size and number of ranks."""
    from farandole import machines, sweeps
    from farandole.report import sweep as report

    _check_html(html)
    described = machines.load(machine).machine()
    counts = numbers(ranks, "ranks") if ranks else sweeps.rank_counts(described, ranks_max)
    sizes = size_steps(size(begin, "begin"), size(end, "end"), factor)
    if not sizes:
        raise typer.BadParameter(f"sizes begin at {begin}, above {end}", param_hint="end")
    found = [
        cell
        for count in _tracked(counts, len(counts))
        for cell in sweeps.fastest(described, collective, [count], sizes)
    ]
    about = f"{collective} on {machine}: the fastest algorithm by size and scale"
    print(f"{about}, predicted")
    _print(report.map_rows(found), wrapped=("predicted fastest, by bytes",))
    facts = {"machine": machine, "collective": collective}
    _save(json_file, "predicted", facts, [asdict(cell) for cell in found])
    if html is not None:
        write(html, report.map_html(found, about))


@app.command()
def scaling(
    machine: MachineOption,
    model: Annotated[
        str, typer.Option(help="alexnet, vgg16, vgg19, resnet50, fcn-220m, gpt2, ...")
    ] = "resnet50",
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks; else 4, 16, 64, ... and all devices.")
    ] = None,
    ranks_max: Annotated[
        int, typer.Option(min=2, help="Without --ranks: as many at most.")
    ] = 27600,
    batch: Annotated[float, typer.Option(help="Samples of a rank, weak scaling.")] = 32.0,
    global_batch: Annotated[
        float, typer.Option(min=1.0, help="Samples of all ranks, strong scaling.")
    ] = 8192.0,
    device_tflops: Annotated[
        float, typer.Option(help="10^12 operations per second that a device reaches.")
    ] = 7.0,
    fusion_threshold: Annotated[str, typer.Option(help="Bytes fused at most.")] = "128MiB",
    cycle_time_ms: Annotated[float, typer.Option(min=0.0, help="The coordinator's.")] = 1.0,
    groups: Annotated[
        int, typer.Option(min=1, help="Groups of gradients of the variant that has some.")
    ] = 4,
    json_file: JsonOption = None,
    html: HtmlOption = None,
) -> None:
    """Simulate training steps, weak and strong scaling, with and without overlap, cache, groups.

    The first variant has overlap and cache; each other one changes one thing. Efficiency is
    samples per second over those of as many ranks that need not communicate.
    """
    from farandole import machines
    from farandole import scaling as steps
    from farandole.report import scaling as report
    from farandole.sweeps import rank_counts

    _check_html(html)
    described = machines.load(machine).machine()
    counts = numbers(ranks, "ranks") if ranks else rank_counts(described, ranks_max, 4)
    training = steps.Training(
        model=model,
        batch=batch,
        device_tflops=device_tflops,
        fusion_threshold_bytes=size(fusion_threshold, "fusion-threshold"),
        cycle_seconds=cycle_time_ms * 1e-3,
    )
    chosen = steps.variants(training, groups)
    found = [
        point
        for count in _tracked(counts, len(counts))
        for point in steps.scale(described, chosen, [count], global_batch)
    ]
    about = f"{model} on {machine}: weak and strong scaling"
    print(f"{about}, simulated")
    _print(report.scaling_rows(found))
    print(report.BASIS)
    facts = {"machine": machine, "global_batch": global_batch, "training": asdict(training)}
    _save(json_file, "simulated", facts, [point.fields() for point in found])
    if html is not None:
        write(html, report.scaling_html(found, training, global_batch, about))


def _check_html(html: Path | None) -> None:
    if html is not None:
        require_plotly()


def _tracked(items: Iterable[_T], total: int) -> Iterator[_T]:
    from rich.console import Console
    from rich.progress import track

    yield from track(items, "Sweeping", total, console=Console(stderr=True), transient=True)


def _print(rows: Sequence[Mapping[str, str]], wrapped: Iterable[str] = ()) -> None:
    print_table(rows, list(rows[0]), wrapped=tuple(wrapped))


def _save(
    path: Path | None, kind: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> None:
    """`kind`: predicted or simulated, which all numbers of the file are."""
    if path is not None:
        write(path, json.dumps({"kind": kind, **facts, "rows": rows}, indent=1) + "\n")
