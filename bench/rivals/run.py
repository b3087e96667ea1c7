# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Farandole beside other libraries on this machine, and what the machine could do.

    python bench/rivals/run.py [--ranks 2,4] [--transports shm,tcp] [--collectives allreduce]
                               [--bytes 4,16M] [--rounds 3] [--only ours,gloo] [--bound]
                               [--before COMMIT] [--keep-far] [--json FILE.json] [--plot FILE.svg]

Runs with a Python that has farandole, torch if Gloo is to be compared, and matplotlib for --plot.
Needs a C++ compiler, CMake, Ninja, and pip with an index that has the libraries; Debian's Open MPI
4.1 is installed with apt-get where we may. Installs and builds in build/rivals.

In a round every program runs once, one after the other on the same cores, so that what disturbs
the machine disturbs all; the JSON has each round's median burst, the table medians over the rounds
and ratios of medians. A virtual machine's cores may be far from each other for some seconds, in
which all exchange takes two or three times as long: a run before or after which a line of cache
took twice as long as it does while they are near is repeated, up to three times, but not with
--keep-far. No run has more than four sizes, so that it is short beside such times. With --before an
earlier version of Farandole takes part, and at the end stands how many times as fast this one is.
`reference` is
shared_memory.cpp over shm: collectives over buffers that all ranks map, which no library can beat
by much. `limit` is what limits.py says by the best of the probes that are taken after each case.
What a program has not done in ten minutes is missing.
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
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from libraries import HOME, LIBRARIES, ROOT, Library, before, build, run
from limits import better, cache_bytes, limit_us

sys.path.insert(0, str(ROOT / "tools"))
import performance

COLLECTIVES = ("allreduce", "reducescatter", "allgather", "broadcast")
SECONDS_PER_SIZE = 0.25
SECONDS_MAX = 600
REPEATS_MAX = 3
SIZES_PER_RUN = 4
# Times as long as a line takes in the fastest quarter of all looks. On an AMD EPYC that is 0.044 to
# 0.053 us, far 0.16 to 0.21, now for a few seconds, now for most of an hour; and now and then much
# less, which says nothing about the usual.
FAR = 2.0
FIRST_LOOKS = 20
FIRST_LOOKS_APART_SECONDS = 0.5
FAR_SECONDS_MAX = 20.0  # to wait for it to pass
FLAGS = ("json", "plot", "bound", "keep_far")  # not among the options that are repeated as they are


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

    def __init__(self, limits: Path, keep_far: bool = False) -> None:
        self._limits = limits
        self.keep_far = keep_far
        self.repeated = 0  # runs beside which they were far
        self._seen_us: list[float] = []
        for _ in range(FIRST_LOOKS):
            self._seen_us.append(self._line_us())
            time.sleep(FIRST_LOOKS_APART_SECONDS)

    def _line_us(self) -> float:
        return float(json.loads(run(self._limits, "line"))["line_hop_us"])

    def are_near(self) -> bool:
        self._seen_us.append(self._line_us())
        usual_us = sorted(self._seen_us)[len(self._seen_us) // 4]
        return self._seen_us[-1] <= FAR * usual_us

    def far_looks(self) -> str:
        """Of all so far; one is taken before each run."""
        usual_us = sorted(self._seen_us)[len(self._seen_us) // 4]
        far = sum(us > FAR * usual_us for us in self._seen_us)
        return f"{far} of {len(self._seen_us)}"

    def wait_until_near(self) -> None:
        deadline = time.monotonic() + FAR_SECONDS_MAX
        while not self.are_near() and time.monotonic() < deadline:
            time.sleep(0.5)


def undisturbed(measure: Callable[[], dict[int, float]], cores: Cores) -> dict[int, float]:
    """What `measure` gives while the cores are near, or at last whatever it gives."""
    if cores.keep_far:
        cores.are_near()
        return measure()
    for _ in range(REPEATS_MAX):
        cores.wait_until_near()
        found = measure()
        if cores.are_near():
            return found
        cores.repeated += 1
        print("  again: the cores were far from each other", file=sys.stderr)
    cores.wait_until_near()
    return measure()


def measured(
    library: Library, ranks: int, transport: str, bound: bool, arguments: list[str]
) -> dict[int, float]:
    """Median microseconds by size; those are missing for which it has no transport or no time."""
    started = library.start(ranks, transport, bound)
    if started is None:
        return {}
    environment, launcher = started
    try:
        command = [*launcher, *library.program, *arguments]
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
        following = smallest * factor**SIZES_PER_RUN
        yield smallest, min(largest, following // factor), factor
        smallest = following


def compare(libraries: list[Library], case: tuple[str, int, str], sizes: tuple[int, int, int],
            rounds: int, bound: bool, cores: Cores) -> list[performance.Row]:  # fmt: skip
    """One row for each size of a collective, number of ranks and transport, without limits."""
    collective, ranks, transport = case
    times: defaultdict[int, dict[str, list[float]]] = defaultdict(dict)
    for part, number, library in itertools.product(parts(*sizes), range(rounds), libraries):
        print(f"{collective}, {ranks} ranks, {transport}, {part[0]:,} B on, round {number}: "
              f"{library.name}", file=sys.stderr)  # fmt: skip
        arguments = [collective, *map(str, part), str(SECONDS_PER_SIZE)]
        once = partial(measured, library, ranks, transport, bound, arguments)
        for size, us in undisturbed(once, cores).items():
            times[size].setdefault(library.name, []).append(us)
    return [
        {
            "collective": collective,
            "ranks": ranks,
            "transport": transport,
            "bytes": size,
            "us": us,
        }
        for size, us in times.items()
    ]


def set_limits(results: dict[str, Any]) -> None:
    for row in results["rows"]:
        case = (row["collective"], row["ranks"], row["transport"], row["bytes"])
        row["limit_us"] = round(limit_us(results["probe"], *case), 3)


def show(row: performance.Row) -> None:
    us = performance.medians(row)
    others = performance.rivals(us)
    parts = [f"{row['collective']} p={row['ranks']} {row['transport']} {row['bytes']:>11,} B"]
    if others:
        fastest = min(others, key=others.__getitem__)
        parts.append(f"fastest rival {fastest} {others[fastest]:.2f} us")
    for name in ("ours", "ours, library buffers"):
        if name in us:
            ratio = f", {min(others.values()) / us[name]:.2f} times as fast" if others else ""
            parts.append(f"{name} {us[name]:.2f} us{ratio}")
    if "reference" in us:
        parts.append(f"reference {us['reference']:.2f} us")
    parts.append(f"limit {row['limit_us']:.2f} us")
    print("; ".join(parts), flush=True)


def show_progress(rows: list[performance.Row], commit: str) -> None:
    """Of both memories: the geometric mean of all cases, and those in which a tenth is lost."""
    for memory in ("", ", library buffers"):
        ratios = {}
        for row in rows:
            us = performance.medians(row)
            if {f"ours{memory}", commit + memory} <= us.keys():
                case = f"{row['collective']} p={row['ranks']} {row['transport']} {row['bytes']:,} B"
                ratios[case] = us[commit + memory] / us[f"ours{memory}"]
        if not ratios:
            continue
        mean = statistics.geometric_mean(ratios.values())
        print(f"\n{len(ratios)} cases{memory}: {mean:.3f} times as fast as {commit}")
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
    parser.add_argument("--bound", action="store_true", help="each rank to a core of its own")
    parser.add_argument("--before", metavar="COMMIT", help="compare with Farandole of this commit")
    parser.add_argument("--keep-far", action="store_true", help="repeat no run on far cores")
    parser.add_argument("--json", type=Path, help="what was measured, written after each case")
    parser.add_argument("--plot", type=Path, help="an SVG file")
    arguments = parser.parse_args()
    options = [
        f"--{name}={value}"
        for name, value in vars(arguments).items()
        if name not in FLAGS and value is not None
    ]
    options += ["--bound"] if arguments.bound else []
    options += ["--keep-far"] if arguments.keep_far else []
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in LIBRARIES]:
        parser.error(f"no library {unknown[0]!r}; there are {', '.join(LIBRARIES)}")

    here = machine()
    most = max(map(int, arguments.ranks.split(",")))
    if arguments.bound and most > here["cores"]:
        parser.error(f"--bound takes a core for each of {most} ranks, there are {here['cores']}")
    HOME.mkdir(parents=True, exist_ok=True)
    programs = build()
    libraries = [library for name in names for library in LIBRARIES[name](programs)]
    if arguments.before is not None:
        libraries += before(arguments.before)
    cores = Cores(programs / "limits", arguments.keep_far)

    def probe() -> dict[str, Any]:
        return json.loads(run(programs / "limits")) | {"cache_bytes": cache_bytes()}

    results: dict[str, Any] = {
        "machine": here,
        "command": shlex.join(["python", "bench/rivals/run.py", *options]),
        "versions": {one.name: one.version for one in libraries if one.version},
        "ranks_are": "bound" if arguments.bound else "unbound",
        "probe": probe(),
        "repeated_runs": 0,
        "far_looks": "",
        "rows": [],
    }
    print(f"ranks are {results['ranks_are']}", flush=True)
    smallest, largest = (size_of(text) for text in arguments.bytes.split(","))
    sizes = (smallest, largest, arguments.factor)
    for transport in arguments.transports.split(","):
        for ranks in arguments.ranks.split(","):
            for collective in arguments.collectives.split(","):
                case = (collective, int(ranks), transport)
                rows = compare(libraries, case, sizes, arguments.rounds, arguments.bound, cores)
                results["rows"] += rows
                results["probe"] = better(results["probe"], probe())
                results["repeated_runs"] = cores.repeated
                results["far_looks"] = cores.far_looks()
                set_limits(results)
                for row in rows:
                    show(row)
                if arguments.json is not None:
                    write(arguments.json, results)
    print(f"cores were far in {cores.far_looks()} looks")
    if arguments.before is not None:
        show_progress(results["rows"], arguments.before)
    if arguments.plot is not None:
        performance.draw(results["rows"], arguments.plot)


if __name__ == "__main__":
    main()
