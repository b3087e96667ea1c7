# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/predictions.md and its pictures.

    pip install . --group docs && python tools/predictions.py

It takes some minutes and 5 GB of memory: most of it is for the controllers of 27,600 ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pictures
from farandole import _native, machines
from farandole.cli.sizes import size_steps
from farandole.planning import scaling, sweeps
from farandole.report.page import colour
from farandole.report.scaling import BASIS
from farandole.report.sweep import hierarchy_rows
from farandole.report.tables import as_markdown
from farandole.report.units import seconds_text, size_text

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "predictions.md"
PICTURES = DOCUMENT.with_suffix("")

MACHINES = ("abci", "sierra", "summit", "blueconnect-p100", "k80-dense", "p100-sparse")
BROADCAST_MACHINES = ("k80-dense", "p100-sparse")
SIZES = size_steps(4, 2**30, 4)
SHOWN_SIZES = (4, 2**16, 2**20, 2**26)
RANKS_MAX = 27600
HIERARCHY_RANKS, HIERARCHY_BYTES, HIERARCHIES = 2048, 2**27, 10
SCALING_MACHINE = "summit"
SCALING_RANKS = (6, 24, 96, 384, 1536, 6144, 27600)
TRAININGS = (
    scaling.Training(model="resnet50"),
    scaling.Training(model="fcn-220m", batch=1.0),
)

INTRODUCTION = """\
<!-- Copyright The Farandole Authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
# What it predicts

Made by `python tools/predictions.py`; do not edit.

What the planner predicts and the simulator says for machines that papers describe. None of it was
measured: [machines.md](machines.md) has the machines, what their papers print and what had to be
assumed. Each picture stands under the command that shows the same in a terminal, and with
`--html FILE` as an interactive plot.

What all of it assumes:

- Ranks fill the hosts one after the other, one rank per device, and nobody else uses the network.
- *Predicted* times are closed forms: start-up costs, bytes over the slowest shared link, calls.
  Messages of one round start together, so an algorithm in which a rank sends to many at once pays
  one start-up for all of them. Uplinks of a rack share their load evenly.
- *Simulated* steps take predicted times for each allreduce, and add what the coordinator does.
- Reductions and copies are free where the machine's file gives no rate for them.
"""


def ranks_of(machine: _native.Machine) -> list[int]:
    return sweeps.rank_counts(machine, RANKS_MAX)


def picture(name: str, text: str) -> str:
    return f"![{text}](predictions/{name}.svg)"


def shell(command: str) -> str:
    return f"```sh\n{command}\n```"


# Predicted


def map_section(cells: Mapping[str, Sequence[sweeps.Fastest]]) -> str:
    """`cells`: of each machine, as fastest_cells() gives them."""
    parts = [
        "## The fastest allreduce",
        "Predicted. Of hierarchies the number of layers is shown; the command's JSON and HTML "
        "have all of it. Of algorithms at most 7% slower than the fastest, the one that asks least "
        "of the network is taken.",
    ]
    rows = []
    for name, found in cells.items():
        most = max(cell.ranks for cell in found)
        shown = {cell.size_bytes: cell for cell in found if cell.ranks == most}
        row = {"machine": name, "ranks": f"{most:,}"}
        for size in SHOWN_SIZES:
            cell = shown[size]
            row[size_text(size)] = f"`{cell.algorithm}` {seconds_text(cell.seconds)}"
        rows.append(row)
    parts.append("On all devices of each machine:\n\n" + as_markdown(rows, list(rows[0])))
    for name in cells:
        command = shell(f"farandole sweep map --machine {name}")
        alt = f"{name}: the predicted fastest allreduce by bytes and ranks"
        parts.append(f"{command}\n\n{picture(f'map-{name}', alt)}")
    return "\n\n".join(parts)


def fastest_cells(name: str) -> list[sweeps.Fastest]:
    machine = machines.load(name).machine()
    return list(sweeps.fastest(machine, "allreduce", ranks_of(machine), SIZES))


def hierarchies() -> list[sweeps.Hierarchy]:
    machine = machines.load("abci").machine()
    times = sweeps.HierarchyTimes(machine, HIERARCHY_RANKS, HIERARCHY_BYTES)
    layers = sweeps.ring_hierarchies(HIERARCHY_RANKS)
    return sorted(map(times, layers), key=lambda one: (one.seconds, one.layers))


def hierarchy_section(found: Sequence[sweeps.Hierarchy]) -> str:
    flat = next(one for one in found if len(one.layers) == 1)
    rows = hierarchy_rows(found, flat, "predicted", HIERARCHY_BYTES, HIERARCHIES)
    size = size_text(HIERARCHY_BYTES)
    command = (
        f"farandole sweep factorizations --machine abci -n {HIERARCHY_RANKS} "
        f"--bytes {size.replace(' ', '')} --top {HIERARCHIES}"
    )
    return "\n\n".join(
        [
            f"## The best hierarchies of ABCI at {HIERARCHY_RANKS:,} ranks",
            f"Predicted: an allreduce of {size} by rings in layers, the first among the devices of "
            f"a host, for all {len(found):,} ordered factorizations. The last row is one ring.",
            shell(command),
            picture("hierarchies-abci", "Predicted time by layer, the ten best hierarchies"),
            as_markdown(rows, list(rows[0])),
        ]
    )


def broadcast_times(name: str) -> dict[str, list[float]]:
    """[size] of each algorithm with its best options, on all devices."""
    machine = machines.load(name).machine()
    ranks = ranks_of(machine)[-1]
    found: dict[str, list[float]] = {}
    for index, size in enumerate(SIZES):
        for candidate in _native.plan(machine, "broadcast", size, ranks):
            times = found.setdefault(candidate["algorithm"].partition(":")[0], [])
            if len(times) == index:  # the first is the fastest
                times.append(candidate["seconds"])
    return found


def broadcast_section(found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    parts = [
        "## Broadcast by size",
        "Predicted, each algorithm with its best radix or number of pieces, on all devices. "
        "`k80-dense` has eight devices per host behind PCIe switches, `p100-sparse` has one.",
    ]
    for name, times in found.items():
        ranks = ranks_of(machines.load(name).machine())[-1]
        rows = [
            {"bytes": size_text(size)}
            | {algorithm: seconds_text(seconds[index]) for algorithm, seconds in times.items()}
            for index, size in enumerate(SIZES)
            if index % 2 == 0
        ]
        command = f"farandole sweep map --machine {name} --collective broadcast --ranks {ranks}"
        alt = f"{name}: predicted time of broadcasts by bytes"
        parts += [
            f"### {name}, {ranks} ranks",
            shell(command),
            picture(f"broadcast-{name}", alt),
            as_markdown(rows, list(rows[0])),
        ]
    return "\n\n".join(parts)


# Simulated


def weak_scaling(training: scaling.Training) -> dict[str, list[scaling.Step]]:
    """[ranks] of each design of the coordinator."""
    machine = machines.load(SCALING_MACHINE).machine()
    found: dict[str, list[scaling.Step]] = {design: [] for design in scaling.DESIGNS}
    for ranks in SCALING_RANKS:
        times = scaling.AllreduceTimes(machine, ranks)
        for design, steps in found.items():
            steps.append(scaling.train(replace(training, design=design), ranks, times))
    return found


def scaling_section(found: Mapping[str, Mapping[str, Sequence[scaling.Step]]]) -> str:
    """`found`: weak_scaling() of each model."""
    parts = [
        "## Weak scaling with three coordinators",
        BASIS,
        "A rank reaches 7 TFLOP/s in float32, about half of what a V100 has (assumed), and all "
        "ranks are equally fast. *flat*: rank 0 hears every rank itself; *tree*: reports are "
        "merged on the way; *cached*: known tensors are bits of one allreduce. A cycle costs as "
        "much as one that agrees on all tensors, which overstates those of few tensors in *flat* "
        "and *tree*.",
    ]
    for training in TRAININGS:
        curves = found[training.model]
        rows = [
            {"ranks": f"{ranks:,}"}
            | {
                f"{design}: {what}": text
                for design, steps in curves.items()
                for what, text in (
                    ("exposed", seconds_text(steps[index].exposed_seconds)),
                    ("efficiency", f"{steps[index].efficiency:.1%}"),
                )
            }
            for index, ranks in enumerate(SCALING_RANKS)
        ]
        command = (
            f"farandole sweep scaling --machine {SCALING_MACHINE} --model {training.model} "
            f"--batch {training.batch:g} --ranks {','.join(map(str, SCALING_RANKS))}"
        )
        alt = f"{training.model} on {SCALING_MACHINE}: simulated efficiency by ranks"
        samples = "sample" if training.batch == 1 else "samples"
        parts += [
            f"### {training.model} on {SCALING_MACHINE}, {training.batch:g} {samples} per rank",
            shell(command),
            picture(f"scaling-{training.model}", alt),
            as_markdown(rows, list(rows[0])),
        ]
    return "\n\n".join(parts)


# Pictures


def draw_map(name: str, found: Sequence[sweeps.Fastest]) -> None:
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    families = sorted({cell.family for cell in found})
    ranks = list(dict.fromkeys(cell.ranks for cell in found))
    numbers = [families.index(cell.family) for cell in found]
    table = [numbers[i : i + len(SIZES)] for i in range(0, len(numbers), len(SIZES))]
    figure, axes = pyplot.subplots(figsize=(7.5, 0.6 + 0.28 * len(ranks)))
    colours = ListedColormap([colour(index) for index in range(len(families))])
    axes.pcolormesh(table, cmap=colours, vmin=0, vmax=len(families), edgecolors="w", linewidth=0.8)
    axes.set_xticks([i + 0.5 for i in range(len(SIZES))], map(size_text, SIZES), rotation=60)
    axes.set_yticks([i + 0.5 for i in range(len(ranks))], [f"{n:,}" for n in ranks])
    axes.set(ylabel="ranks", title=f"{name}: predicted fastest allreduce")
    patches = [Patch(color=colour(i), label=family) for i, family in enumerate(families)]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    pictures.save(figure, PICTURES / f"map-{name}.svg")


def draw_hierarchies(found: Sequence[sweeps.Hierarchy]) -> None:
    from matplotlib import pyplot

    best = found[:HIERARCHIES]
    names = [one.name for one in best]
    figure, axes = pyplot.subplots(figsize=(7.5, 3.2))
    bottom = [0.0] * len(best)
    for layer in range(max(len(one.layers) for one in best)):
        tall = [1e3 * dict(enumerate(one.layer_seconds)).get(layer, 0.0) for one in best]
        axes.bar(names, tall, bottom=bottom, color=colour(layer), label=f"layer {layer + 1}")
        bottom = [below + height for below, height in zip(bottom, tall, strict=True)]
    axes.tick_params(axis="x", rotation=45)
    axes.set_ylim(0, 1.1 * max(bottom))
    axes.set(ylabel="predicted time, ms", title=f"abci, {HIERARCHY_RANKS:,} ranks, 128 MiB")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    pictures.save(figure, PICTURES / "hierarchies-abci.svg")


def draw_lines(
    name: str,
    title: str,
    axis: tuple[str, str],
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    log_y: bool,
) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.6))
    for index, (label, y) in enumerate(curves.items()):
        style = ("-", "--", ":")[index % 3]  # curves may lie on one another
        axes.plot(x, y, style, marker=".", color=colour(index), label=label)
    axes.set_xscale("log", base=2 if log_y else 10)
    if log_y:
        axes.set_yscale("log")
        axes.set_xticks(x[::2], [size_text(int(size)) for size in x[::2]], rotation=60)
    else:
        axes.set_ylim(0, 104)
        axes.set_xticks(x, [f"{int(count):,}" for count in x])
    axes.minorticks_off()
    axes.set(xlabel=axis[0], ylabel=axis[1], title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    pictures.save(figure, PICTURES / f"{name}.svg")


def main() -> None:
    pictures.prepare()
    PICTURES.mkdir(exist_ok=True)
    cells = {name: fastest_cells(name) for name in MACHINES}
    found = hierarchies()
    broadcasts = {name: broadcast_times(name) for name in BROADCAST_MACHINES}
    curves = {training.model: weak_scaling(training) for training in TRAININGS}
    sections = [
        map_section(cells),
        hierarchy_section(found),
        scaling_section(curves),
        broadcast_section(broadcasts),
    ]
    DOCUMENT.write_text("\n".join([INTRODUCTION, "\n\n".join(sections), ""]), encoding="utf-8")
    for name in MACHINES:
        draw_map(name, cells[name])
    draw_hierarchies(found)
    for name, times in broadcasts.items():
        axis = ("bytes", "predicted time, s")
        draw_lines(f"broadcast-{name}", f"{name}: broadcast", axis, SIZES, times, True)
    for model, designs in curves.items():
        efficiencies = {d: [100 * step.efficiency for step in s] for d, s in designs.items()}
        title = f"{model} on {SCALING_MACHINE}: weak scaling by coordinator"
        axis = ("ranks", "simulated efficiency, %")
        draw_lines(f"scaling-{model}", title, axis, SCALING_RANKS, efficiencies, False)


if __name__ == "__main__":
    main()
