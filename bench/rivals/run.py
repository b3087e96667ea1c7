# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Farandole beside other libraries on this machine, and what the machine could do.

    python bench/rivals/run.py [--ranks 2,4] [--transports shm,tcp] [--collectives allreduce]
                               [--bytes 4,16M] [--rounds 3] [--only ours,gloo]
                               [--bindings unbound,bound] [--before COMMIT]
                               [--json FILE.json] [--plot FILE.svg]

Runs with a Python that has farandole, torch if Gloo is to be compared, and matplotlib for --plot.
Needs a C++ compiler, CMake, Ninja, and pip with an index that has the libraries; Debian's Open MPI
4.1 is installed with apt-get where we may. Installs and builds in build/rivals.

A unit is one library, one collective and up to four sizes, about two seconds. In a round every
library has its unit, one after the other on the same cores, so that what disturbs the machine
disturbs all. Between two units the time of a cache line from core to core is taken. A virtual
machine's cores may be near each other for a while and then far, so each unit has a state: near or
far if both times beside it say so, else mixed. No unit is repeated or left out. The JSON has each
unit's median burst by state; ratios are of medians within a state. `reference` is
shared_memory.cpp over shm: collectives over buffers that all ranks map, which no library can beat
by much. `limit` is what limits.py says by the best of the probes that are taken after each case.
With --before an earlier version of Farandole takes part, and at the end stands how many times as
fast this one is. A unit that takes ten times as long as it should is missing: a library that spins
while its ranks wait for a core may take minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from libraries import HOME, LIBRARIES, ROOT, Library, before, build, run
from limits import better, cache_bytes, limit_us

sys.path.insert(0, str(ROOT / "tools"))
import performance

COLLECTIVES = ("allreduce", "allreduce_apart", "reducescatter", "allgather", "broadcast")
SECONDS_PER_SIZE = 0.25
SECONDS_MAX = 20  # of a unit that should take two
SIZES_PER_UNIT = 4
# A line takes 0.02 to 0.07 us between cores that share a cache, and 0.1 to 0.25 us between others,
# on the processors that were at hand.
NEAR_US_MAX = 0.09
FLAGS = ("json", "plot")  # not among the options that are repeated as they are


def machine() -> dict[str, Any]:
    """`load`: processes that wanted to run in the last minute, those of an earlier measurement
    included."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
    }


class Cores:
    """How far from each other the cores are, by the time of a line from one to the other."""

    def __init__(self, limits: Path) -> None:
        self._limits = limits
        self.lines_us = [self._line_us()]  # one more than there were units

    def _line_us(self) -> float:
        return float(json.loads(run(self._limits, "line"))["line_hop_us"])

    def state_of(self, unit: Callable[[], dict[int, float]]) -> tuple[str, dict[int, float]]:
        """What `unit` gives, and the state of the cores beside it."""
        found = unit()
        self.lines_us.append(self._line_us())
        near = {us <= NEAR_US_MAX for us in self.lines_us[-2:]}
        return ("mixed" if len(near) == 2 else "near" if near == {True} else "far"), found


def measured(
    library: Library, ranks: int, transport: str, bound: bool, arguments: list[str]
) -> dict[int, float]:
    """Median microseconds by size; those are missing for which it has no transport or no time."""
    started = library.start(ranks, transport)
    if started is None:
        return {}
    environment, launcher = started
    try:
        command = [*launcher, *library.program, *arguments]
        environment = environment | ({"RIVALS_BOUND": "1"} if bound else {})
        output = run(*command, seconds_max=SECONDS_MAX, **environment)
    except RuntimeError as error:
        print(f"  {library.name}: {error}", file=sys.stderr)
        return {}
    found = {}
    for line in output.splitlines():
        if line.startswith("{") and line.endswith("}"):
            row = json.loads(line)
            if not row["right"]:
                raise SystemExit(f"{library.name} is wrong: {line}")
            found[int(row["bytes"])] = round(statistics.median(row["us"]), 3)
    return found


def parts(smallest: int, largest: int, factor: int) -> Iterator[tuple[int, int, int]]:
    """The sizes of one run each: smallest, largest and factor."""
    while smallest <= largest:
        following = smallest * factor**SIZES_PER_UNIT
        yield smallest, min(largest, following // factor), factor
        smallest = following


def compare(libraries: list[Library], case: performance.Row, sizes: tuple[int, int, int],
            rounds: int, cores: Cores) -> list[performance.Row]:  # fmt: skip
    """One row for each size of a case: a collective, a number of ranks, a transport and whether
    ranks are bound; without limits."""
    times: defaultdict[int, dict[str, dict[str, list[float]]]] = defaultdict(dict)
    for part, number, library in itertools.product(parts(*sizes), range(rounds), libraries):
        print(*case.values(), f"{part[0]:,} B on, round {number}: {library.name}", file=sys.stderr)
        arguments = [case["collective"], *map(str, part), str(SECONDS_PER_SIZE)]
        where = (case["ranks"], case["transport"], case["binding"] == "bound")
        state, found = cores.state_of(partial(measured, library, *where, arguments))
        for size, us in found.items():
            times[size].setdefault(library.name, {}).setdefault(state, []).append(us)
    return [case | {"bytes": size, "us": us} for size, us in times.items()]


def set_limits(results: dict[str, Any]) -> None:
    for row in results["rows"]:
        case = (row["collective"], row["ranks"], row["transport"], row["bytes"])
        row["limit_us"] = round(limit_us(results["probe"], *case), 3)


def show(row: performance.Row, results: dict[str, Any]) -> None:
    case = f"{row['collective']} p={row['ranks']} {row['transport']} {row['binding']}"
    for state in performance.states([row]):
        us = performance.medians(row, state)
        others = performance.rivals(us, results)
        parts = [f"{case} {row['bytes']:>11,} B {state}"]
        if others:
            fastest = min(others, key=others.__getitem__)
            parts.append(f"fastest rival {fastest} {others[fastest]:.2f} us")
        for name in (performance.OURS, performance.OURS_BUFFERS):
            if name in us:
                ratio = f", {min(others.values()) / us[name]:.2f} times as fast" if others else ""
                parts.append(f"{name} {us[name]:.2f} us{ratio}")
        if performance.REFERENCE in us:
            parts.append(f"reference {us[performance.REFERENCE]:.2f} us")
        print("; ".join(parts), flush=True)


def show_progress(rows: list[performance.Row], commit: str) -> None:
    """By memory and state: the geometric mean of all cases, and those in which a tenth is lost."""
    for memory, state in itertools.product(("", ", library buffers"), performance.states(rows)):
        ratios = {}
        for row in rows:
            us = performance.medians(row, state)
            if {f"ours{memory}", commit + memory} <= us.keys():
                case = f"{row['collective']} p={row['ranks']} {row['transport']} {row['binding']}"
                ratios[f"{case} {row['bytes']:,} B"] = us[commit + memory] / us[f"ours{memory}"]
        if not ratios:
            continue
        mean = statistics.geometric_mean(ratios.values())
        print(f"\n{len(ratios)} cases{memory}, {state}: {mean:.3f} times as fast as {commit}")
        for case, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            if ratio < 0.9:
                print(f"  {ratio:.2f} {case}")


def write(path: Path, results: dict[str, Any]) -> None:
    """As JSON, one row a line."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in results["rows"])
    head = json.dumps(results | {"rows": []}, indent=1).removesuffix("[]\n}")
    path.write_text(f"{head}[\n{rows}\n ]\n}}\n", encoding="utf-8")


def size_of(text: str) -> int:
    factors = {"K": 10, "M": 20}
    return int(text[:-1]) << factors[text[-1]] if text[-1] in factors else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--bytes", default="4,256M", help="smallest and largest")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(LIBRARIES))
    parser.add_argument("--bindings", default="unbound", help="of ranks to cores: unbound,bound")
    parser.add_argument("--before", metavar="COMMIT", help="compare with Farandole of this commit")
    parser.add_argument("--json", type=Path, help="what was measured, written after each case")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    options = [
        f"--{name}={value}"
        for name, value in vars(arguments).items()
        if name not in FLAGS and value is not None
    ]
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in LIBRARIES]:
        parser.error(f"no library {unknown[0]!r}; there are {', '.join(LIBRARIES)}")

    here = machine()
    bindings = arguments.bindings.split(",")
    if unknown := [name for name in bindings if name not in ("unbound", "bound")]:
        parser.error(f"--bindings has {unknown[0]!r}, allowed are unbound and bound")
    HOME.mkdir(parents=True, exist_ok=True)
    programs = build()
    libraries = [library for name in names for library in LIBRARIES[name](programs)]
    if arguments.before is not None:
        libraries += before(arguments.before)
    cores = Cores(programs / "limits")

    def probe() -> dict[str, Any]:
        return json.loads(run(programs / "limits")) | {"cache_bytes": cache_bytes()}

    results: dict[str, Any] = {
        "machine": here,
        "command": shlex.join(["python", "bench/rivals/run.py", *options]),
        "versions": {one.name: one.version for one in libraries if one.version},
        "probe": probe(),
        "before": arguments.before,
        "lines_us": [],
        "rows": [],
    }
    smallest, largest = (size_of(text) for text in arguments.bytes.split(","))
    sizes = (smallest, largest, arguments.factor)
    asked = (arguments.transports.split(","), map(int, arguments.ranks.split(",")),
             bindings, arguments.collectives.split(","))  # fmt: skip
    for transport, ranks, binding, collective in itertools.product(*asked):
        case = {
            "collective": collective,
            "ranks": ranks,
            "transport": transport,
            "binding": binding,
        }
        rows = compare(libraries, case, sizes, arguments.rounds, cores)
        results["rows"] += rows
        results["probe"] = better(results["probe"], probe())
        results["lines_us"] = cores.lines_us
        set_limits(results)
        for row in rows:
            show(row, results)
        if arguments.json is not None:
            write(arguments.json, results)
    if arguments.before is not None:
        show_progress(results["rows"], arguments.before)
    if arguments.plot is not None:
        rows = results["rows"]
        most = max(performance.STATES, key=lambda state: sum(
            len(by_state.get(state, ())) for row in rows for by_state in row["us"].values()
        ))  # fmt: skip
        performance.draw(rows, arguments.plot, most)


if __name__ == "__main__":
    main()
