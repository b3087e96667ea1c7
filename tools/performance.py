# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md and its pictures from the measurements in docs/performance/*.json.

    pip install . --group docs && python tools/performance.py [--from FILE.json ...]

`--from` first puts these files, which bench/rivals/run.py --json wrote, in place of those there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pictures
from farandole.report.page import colour
from farandole.report.tables import as_markdown
from farandole.report.units import seconds_text, size_text

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
FOLDER = DOCUMENT.with_suffix("")

Results = Mapping[str, Any]
# Of one collective, number of ranks, transport and size: `us` has the rounds of each library.
Row = dict[str, Any]
OURS, OURS_BUFFERS, REFERENCE = "ours", "ours, library buffers", "reference"
ABSENT = "-"
LIMIT_MIN_US = 0.01

INTRODUCTION = """\
<!-- Copyright The Farandole Authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
# How fast it is

Made by `python tools/performance.py`; do not edit.

Farandole beside other libraries, measured in turns on the same cores of one machine: in a round
every library runs once, and shown are medians over the rounds, and ratios of these medians. A time
is the slowest rank's for one call among many that follow each other. Float32, sums where there is a
reduction; all results were checked. Ranks are processes of one host. The settings of the others are
the best that we found, and are in `bench/rivals/libraries.py`.

- *ours* is given ordinary memory, as the others are. *ours, library buffers* uses arrays of
  `farandole.empty`, which peers read in place.
- A *ratio* is the time of the fastest of the other libraries over ours: above 1, ours is faster.
- *reference* is no library: collectives over buffers that all ranks map, with nothing beside.
- *limit* is what the bytes that must move need at least at the rates that this machine reached in
  the same run. The formula is at the top of `bench/rivals/limits.py`. With more ranks than cores it
  is far away for small sizes, since ranks take turns and that is not counted. Below 0.01 us it says
  nothing and is left out.
- Gloo has no shared memory: under *shm* it uses TCP. `-` means that a library has no such
  transport, or failed.
"""


def medians(row: Row) -> dict[str, float]:
    """Microseconds by library."""
    return {name: statistics.median(rounds) for name, rounds in row["us"].items()}


def rivals(us: Mapping[str, float]) -> dict[str, float]:
    return {name: t for name, t in us.items() if name not in (OURS, OURS_BUFFERS, REFERENCE)}


def losses(rows: Sequence[Row]) -> list[tuple[Row, dict[str, float]]]:
    """Where a rival takes less time than ours with ordinary memory: how many times less, of each
    that does, the largest first."""
    found = []
    for row in rows:
        us = medians(row)
        ratios = {name: us[OURS] / t for name, t in rivals(us).items() if t < us.get(OURS, 0)}
        if ratios:
            best_first = sorted(ratios.items(), key=lambda item: -item[1])
            found.append((row, dict(best_first)))
    return sorted(found, key=lambda loss: -max(loss[1].values()))


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
    machine, probe = results["machine"], results["probe"]
    load = (
        f"In the minute before it began {machine['load']} processes wanted to run on average, what "
        "was measured in that minute included"
    )
    if repeated := results.get("repeated_runs", 0):
        load += f". {repeated} runs were repeated, since the cores were far from each other"
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
            "What the machine reaches. A line takes "
            f"{time_text(probe['line_hop_us'])} from core to core, a byte "
            f"{time_text(probe['socket_hop_us'])} through a socket.",
            as_markdown(rates, list(rates[0])),
        ]
    )


def loss_section(rows: Sequence[Row]) -> str:
    compared = [row for row in rows if OURS in row["us"] and rivals(medians(row))]
    found = losses(compared)
    count = f"Of {len(compared):,} cases a rival is faster in {len(found):,}."
    if not found:
        return count
    table = [
        {
            "collective": row["collective"],
            "ranks": str(row["ranks"]),
            "transport": row["transport"],
            "bytes": size_text(row["bytes"]),
            "ours": time_text(medians(row)[OURS]),
            "library buffers": cell(medians(row), OURS_BUFFERS),
            "faster, and how many times": ", ".join(f"{n} {r:.2f}" for n, r in ratios.items()),
        }
        for row, ratios in found
    ]
    return f"{count}\n\n{as_markdown(table, list(table[0]))}"


def cell(us: Mapping[str, float], name: str) -> str:
    return time_text(us[name]) if name in us else ABSENT


def ratio_table(rows: Sequence[Row]) -> str:
    """By size and collective, for one transport and number of ranks."""
    collectives = [name for (name,) in cases(rows, "collective")]
    table = []
    for (size,), found in sorted(cases(rows, "bytes").items()):
        line = {"bytes": size_text(size)} | dict.fromkeys(collectives, ABSENT)
        for row in found:
            us = medians(row)
            others = rivals(us)
            if others and OURS in us:
                fastest = min(others, key=others.__getitem__)
                line[row["collective"]] = f"{others[fastest] / us[OURS]:.2f} ({fastest})"
        table.append(line)
    return as_markdown(table, list(table[0]))


def time_table(rows: Sequence[Row]) -> str:
    """All times of one case."""
    names = libraries(rows)
    table = []
    for row in rows:
        us = medians(row)
        limit = limit_of(row)
        distance = f"{us[OURS] / limit:.1f}" if limit and OURS in us else ABSENT
        table.append(
            {"bytes": size_text(row["bytes"])}
            | {name: cell(us, name) for name in names}
            | {"limit": time_text(limit) if limit else ABSENT, "ours / limit": distance}
        )
    return as_markdown(table, list(table[0]))


def picture_name(stem: str, transport: str, ranks: int) -> str:
    return f"{stem}-{transport}-{ranks}.svg"


def section(stem: str, results: Results) -> str:
    """Of one machine; `stem`: of its file."""
    rows = results["rows"]
    groups = cases(rows, "transport", "ranks")
    parts = [f"## {stem}", machine_section(results), "### Where we lose", loss_section(rows)]
    for (transport, ranks), found in groups.items():
        picture = picture_name(stem, transport, ranks)
        alt = f"{ranks} ranks over {transport}: time by bytes, a line per library"
        parts += [
            f"### {ranks} ranks over {transport}",
            f"![{alt}](performance/{picture})",
            "Ratios, and the fastest of the others:",
            ratio_table(found),
        ]
        for (collective,), one in cases(found, "collective").items():
            parts += [f"#### {collective}, {ranks} ranks over {transport}", time_table(one)]
    return "\n\n".join(parts)


def page(kept: Mapping[str, Results]) -> str:
    """The document; `kept`: results by the names of their files, without suffix."""
    return "\n".join(
        [INTRODUCTION, "\n\n".join(section(stem, one) for stem, one in kept.items()), ""]
    )


# Pictures


def draw(rows: Sequence[Row], path: Path, names: Sequence[str] = ()) -> None:
    """Time by bytes, one panel per collective, number of ranks and transport. `names`: libraries,
    also others than those of these rows, so that each has one colour in several pictures."""
    pictures.prepare()
    from matplotlib import pyplot

    groups = cases(rows, "transport", "ranks")
    collectives = [name for (name,) in cases(rows, "collective")]
    figure, grid = pyplot.subplots(
        len(groups),
        len(collectives),
        figsize=(0.6 + 2.7 * len(collectives), 0.4 + 2.6 * len(groups)),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for panels, ((transport, ranks), group) in zip(grid, groups.items(), strict=True):
        for axes, collective in zip(panels, collectives, strict=True):
            found = [row for row in group if row["collective"] == collective]
            draw_panel(axes, found, names or libraries(rows))
            axes.set(title=f"{collective}, {ranks} ranks, {transport}", xscale="log", yscale="log")
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


def draw_panel(axes: Any, rows: Sequence[Row], names: Sequence[str]) -> None:
    colours = {name: colour(index) for index, name in enumerate(names)} | {REFERENCE: "black"}
    if OURS in colours:
        colours[OURS_BUFFERS] = colours[OURS]
    styles = {REFERENCE: ":", OURS_BUFFERS: "--"}
    for name in names:
        found = [row for row in rows if name in row["us"]]
        if found:
            axes.plot(
                [row["bytes"] for row in found],
                [medians(row)[name] for row in found],
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
        for (transport, ranks), rows in cases(results["rows"], "transport", "ranks").items():
            name = picture_name(stem, transport, ranks)
            draw(rows, FOLDER / name, libraries(results["rows"]))


if __name__ == "__main__":
    main()
