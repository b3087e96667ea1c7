# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md and its pictures from the measurements in docs/performance/*.json.

    pip install . --group docs && python tools/performance.py [--from FILE.json ...]

`--from` first puts these files, which bench/rivals/run.py --json wrote, in place of those there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pictures
from farandole.report.page import colour
from farandole.report.tables import as_markdown
from farandole.report.units import seconds_text, size_text

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
FOLDER = DOCUMENT.with_suffix("")

Results = Mapping[str, Any]
# Of one collective, number of ranks, transport, binding and size: `us` has the units of each
# library by the state of the cores.
Row = dict[str, Any]
MEMORY = ", library buffers"
OURS, REFERENCE = "ours", "reference"
OURS_BUFFERS = OURS + MEMORY
STATES = ("near", "far", "mixed")
UNITS_MIN = 3  # fewer are said to be few
ABSENT = "-"
GROUP = ("transport", "ranks", "binding")
LIMIT_MIN_US = 0.01
AIM = 0.85
# Largest size of each, in bytes.
BANDS = {"to 4 KiB": 4 << 10, "16 to 256 KiB": 256 << 10, "1 MiB and more": 1 << 62}

INTRODUCTION = """\
<!-- Copyright The Farandole Authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
# How fast it is

Made by `python tools/performance.py`; do not edit.

Farandole beside other libraries, measured in turns on the same cores of one machine. A *unit* is
one library and one collective for about two seconds; shown are medians over units, and ratios of
these medians. A time is the slowest rank's for one call among many that follow each other. Float32,
sums where there is a reduction; all results were checked. Ranks are processes of one host. The
settings of the others are the best that we found, and are in `bench/rivals/libraries.py`.

**Near and far.** A cache line takes 0.02 to 0.07 us between cores that share a cache, and 0.1 to
0.25 us between others. On a virtual machine this changes within minutes. It is measured before and
after each unit, and a unit is *near* or *far* if both say so, else *mixed*. Nothing is repeated or
left out; ratios compare units of one state. `farandole probe` prints the time of your machine.

- *bound* ranks have a core each, or share one where there are more ranks than cores; *unbound*
  ranks run where the system puts them.
- *allreduce_apart* is an allreduce whose result goes to another buffer.
- Our *broadcast* ends on no rank before every rank has called it, so that ranks which call unlike
  things hear of it. The others' roots may be many calls ahead, which small broadcasts show.
- *ours* is given ordinary memory, as the others are. *ours, library buffers* uses arrays of
  `farandole.empty`, which peers read in place.
- A *ratio* is the time of the fastest of the other libraries over ours: above 1, ours is faster.
  `(2)` behind it says that only two units, of ours or of that library, were in this state.
- *reference* is no library: collectives over buffers that all ranks map, with nothing beside.
- *limit* is what the bytes that must move need at least at the rates that this machine reached in
  the same run. The formula is at the top of `bench/rivals/limits.py`. With more ranks than cores it
  is far away for small sizes, since ranks take turns and that is not counted. Below 0.01 us it says
  nothing and is left out.
- Gloo has no shared memory: under *shm* it uses TCP. `-` means that a library has no such
  transport, or failed.
"""


def medians(row: Row, state: str) -> dict[str, float]:
    """Microseconds by library."""
    return {
        name: statistics.median(by_state[state])
        for name, by_state in row["us"].items()
        if state in by_state
    }


def states(rows: Sequence[Row]) -> list[str]:
    found = {state for row in rows for by_state in row["us"].values() for state in by_state}
    return [state for state in STATES if state in found]


def units(row: Row, state: str, *names: str) -> int:
    """Of the library that has the fewest."""
    return min(len(row["us"][name][state]) for name in names)


def own(results: Results) -> list[str]:
    """Farandole with either memory, now and before."""
    before = results.get("before")
    return [OURS, OURS_BUFFERS, *([before, before + MEMORY] if before else [])]


def rivals(us: Mapping[str, float], results: Results) -> dict[str, float]:
    no_rivals = {*own(results), REFERENCE}
    return {name: t for name, t in us.items() if name not in no_rivals}


@dataclass(frozen=True)
class Comparison:
    """Of one case in one state: the fastest rival, and how many times its time one of ours is."""

    row: Row
    state: str
    rival: str
    ratio: float
    units: int

    def __str__(self) -> str:
        few = f" ({self.units})" if self.units < UNITS_MIN else ""
        return f"{self.ratio:.2f}{few}"


def comparisons(rows: Sequence[Row], state: str, name: str, results: Results) -> list[Comparison]:
    """Of the cases that `name` and a rival measured in this state."""
    found = []
    for row in rows:
        us = medians(row, state)
        others = rivals(us, results)
        if name in us and others:
            rival = min(others, key=others.__getitem__)
            counted = units(row, state, name, rival)
            found.append(Comparison(row, state, rival, others[rival] / us[name], counted))
    return found


def limit_of(row: Row) -> float | None:
    """Microseconds; None where it is too short to mean anything."""
    limit: float = row["limit_us"]
    return limit if limit >= LIMIT_MIN_US else None


def cases(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows that have these values in common, in the order in which they were measured."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def libraries(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["us"]))


def time_text(us: float) -> str:
    return seconds_text(us * 1e-6)


# The page


def machine_section(results: Results) -> str:
    machine, probe, lines = results["machine"], results["probe"], results["lines_us"]
    load = (
        f"In the minute before it began {machine['load']} processes wanted to run on average, what "
        "was measured in that minute included"
    )
    kinds = {
        "memory, read": probe["read"],
        "memory, write": probe["write"],
        "memory, copy": probe["copy"],
        "another core's cache": probe["lines"],
        "TCP on the loopback interface, two cores": probe["sockets"],
    }
    rates = [
        {
            "GB/s": kind,
            "one core": f"{rate['one']:.1f}",
            "all cores": f"{rate['all']:.1f}",
        }
        for kind, rate in kinds.items()
    ]
    versions = [
        {"library": name, "version": version} for name, version in results["versions"].items()
    ]
    return "\n\n".join(
        [
            f"{machine['cores']} cores of {machine['processor']}, "
            f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory, "
            f"{size_text(probe['cache_bytes'])} of caches, Linux {machine['kernel']}. {load}.",
            f"```sh\n{results['command']}\n```",
            as_markdown(versions, list(versions[0])),
            f"What the machine reaches. A line takes {time_text(min(lines))} to "
            f"{time_text(max(lines))} from core to core, in the median of {len(lines)} looks "
            f"{time_text(statistics.median(lines))}; a byte {time_text(probe['socket_hop_us'])} "
            "through a socket.",
            as_markdown(rates, list(rates[0])),
        ]
    )


def band_of(row: Row) -> str:
    return next(name for name, largest in BANDS.items() if row["bytes"] <= largest)


def band_table(results: Results) -> str:
    """Geometric means of the ratios."""
    rows, table = results["rows"], []
    for (transport, ranks, binding), group in cases(rows, *GROUP).items():
        for state, name in itertools.product(states(group), own(results)):
            found = comparisons(group, state, name, results)
            if not found:
                continue
            worst = min(found, key=lambda one: one.ratio)
            line = {
                "ranks": f"{ranks}, {binding}, {transport}",
                "cores": state,
                "what": name,
            }
            for band in BANDS:
                ratios = [one.ratio for one in found if band_of(one.row) == band]
                line[band] = f"{statistics.geometric_mean(ratios):.2f}" if ratios else ABSENT
            line["lowest"] = f"{worst} {worst.row['collective']} {size_text(worst.row['bytes'])}"
            line["cases"] = str(len(found))
            line["units, at least"] = str(min(one.units for one in found))
            table.append(line)
    return as_markdown(table, list(table[0])) if table else "No rival was measured."


def loss_section(results: Results) -> str:
    """Cases below the aim, with ordinary memory, the lowest first."""
    rows = results["rows"]
    compared = [one for state in states(rows) for one in comparisons(rows, state, OURS, results)]
    found = sorted((one for one in compared if one.ratio < AIM), key=lambda one: one.ratio)
    count = f"Of {len(compared):,} cases the ratio is below {AIM} in {len(found):,}."
    if not found:
        return count
    table = []
    for one in found:
        row, us = one.row, medians(one.row, one.state)
        table.append(
            {
                "collective": row["collective"],
                "ranks": f"{row['ranks']}, {row['binding']}, {row['transport']}",
                "bytes": size_text(row["bytes"]),
                "cores": one.state,
                "ours": time_text(us[OURS]),
                "library buffers": cell(us, OURS_BUFFERS),
                "ratio": f"{one} ({one.rival})",
            }
        )
    return f"{count}\n\n{as_markdown(table, list(table[0]))}"


def cell(us: Mapping[str, float], name: str) -> str:
    return time_text(us[name]) if name in us else ABSENT


def ratio_table(rows: Sequence[Row], state: str, results: Results) -> str:
    """By size and collective, for one transport, number of ranks, binding and state."""
    collectives = [name for (name,) in cases(rows, "collective")]
    table = []
    for (size,), found in sorted(cases(rows, "bytes").items()):
        line = {"bytes": size_text(size)} | dict.fromkeys(collectives, ABSENT)
        for one in comparisons(found, state, OURS, results):
            us = medians(one.row, state)
            line[one.row["collective"]] = f"{time_text(us[OURS])}, {one} ({one.rival})"
        table.append(line)
    return as_markdown(table, list(table[0]))


def picture_name(stem: str, transport: str, ranks: int, binding: str, state: str) -> str:
    return f"{stem}-{transport}-{ranks}-{binding}-{state}.svg"


def section(stem: str, results: Results) -> str:
    """Of one machine; `stem`: of its file."""
    parts = [f"## {stem}", machine_section(results)]
    parts += ["### Ratios by size", band_table(results)]
    parts += ["### Where we lose", loss_section(results)]
    for (transport, ranks, binding), group in cases(results["rows"], *GROUP).items():
        for state in states(group):
            picture = picture_name(stem, transport, ranks, binding, state)
            what = f"{ranks} {binding} ranks over {transport}, {state} cores"
            parts += [
                f"### {what}",
                f"![{what}: time by bytes, a line per library](performance/{picture})",
                "Time of ours with ordinary memory, ratio, and the fastest of the others:",
                ratio_table(group, state, results),
            ]
    return "\n\n".join(parts)


def page(kept: Mapping[str, Results]) -> str:
    """The document; `kept`: results by the names of their files, without suffix."""
    return "\n".join(
        [INTRODUCTION, "\n\n".join(section(stem, one) for stem, one in kept.items()), ""]
    )


# Pictures


def draw(rows: Sequence[Row], path: Path, state: str, names: Sequence[str] = ()) -> None:
    """Time by bytes, one panel per collective, number of ranks, transport and binding, of units of
    one state. `names`: libraries, also others than those of these rows, so that each has one colour
    in several pictures."""
    pictures.prepare()
    from matplotlib import pyplot

    groups = cases(rows, *GROUP)
    collectives = [name for (name,) in cases(rows, "collective")]
    figure, grid = pyplot.subplots(
        len(groups),
        len(collectives),
        figsize=(0.6 + 2.7 * len(collectives), 0.4 + 2.6 * len(groups)),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for panels, ((transport, ranks, binding), group) in zip(grid, groups.items(), strict=True):
        for axes, collective in zip(panels, collectives, strict=True):
            found = [row for row in group if row["collective"] == collective]
            draw_panel(axes, found, state, names or libraries(rows))
            title = f"{collective}, {ranks} {binding}, {transport}"
            axes.set(title=title, xscale="log", yscale="log")
            axes.grid(alpha=0.3)
            axes.minorticks_off()
        panels[0].set_ylabel("time, us")
    for axes in grid[-1]:
        axes.set_xlabel("bytes")
    lines = {
        label: line
        for axes in grid.flat
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = 1 + len(collectives)
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=columns, frameon=False
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures.save(figure, path)


def draw_panel(axes: Any, rows: Sequence[Row], state: str, names: Sequence[str]) -> None:
    colours = {name: colour(index) for index, name in enumerate(names)} | {REFERENCE: "black"}
    if OURS in colours:
        colours[OURS_BUFFERS] = colours[OURS]
    styles = {REFERENCE: ":", OURS_BUFFERS: "--"}
    for name in names:
        found = [row for row in rows if name in medians(row, state)]
        if found:
            axes.plot(
                [row["bytes"] for row in found],
                [medians(row, state)[name] for row in found],
                styles.get(name, "-"),
                color=colours[name],
                label=name,
                marker=".",
                markersize=3,
                linewidth=1,
            )
    limits = [(row["bytes"], limit) for row in rows if (limit := limit_of(row))]
    if limits:
        axes.plot(*zip(*limits, strict=True), "-.k", linewidth=1, label="limit")


# Files


def load() -> dict[str, Results]:
    files = sorted(FOLDER.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def keep(files: Sequence[Path]) -> None:
    """These instead of those that are there."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes docs/performance.md.")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    if arguments.files:
        keep(arguments.files)
    kept = load()
    DOCUMENT.write_text(page(kept), encoding="utf-8")
    for path in FOLDER.glob("*.svg"):
        path.unlink()
    for stem, results in kept.items():
        for (transport, ranks, binding), rows in cases(results["rows"], *GROUP).items():
            for state in states(rows):
                name = picture_name(stem, transport, ranks, binding, state)
                draw(rows, FOLDER / name, state, libraries(results["rows"]))


if __name__ == "__main__":
    main()
