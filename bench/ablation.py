# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What each way of messages through shared memory gains: it is switched off, and measured so.

    python bench/ablation.py [--ranks 2,4] [--ways puts,shares] [--collectives allreduce]
                             [--bytes 4,64M] [--rounds 3] [--json FILE.json] [--table FILE.md]

Each way has one switch (FARANDOLE_SHM_WITHOUT, src/transport/shm/copy_policy.hpp). In a round each
way is measured twice, one after the other on the same cores: with all ways, and without this one.
A measurement runs every collective, on ordinary and on library-owned memory; a burst takes what its
slowest rank takes. Before and after it the time of a cache line from core to core is taken: the
cores were near or far if both say so, else mixed; nothing is repeated or left out. What a way gains
is the median over the rounds without it, over the median with it, of one state: 1.25 means that a
call takes a quarter longer without it. A way earns its code where it gains a tenth in some case of
several rounds in which even its slowest measurement is faster than the fastest without it; one that
does so nowhere is to go. Compare on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import farandole
from farandole import _native

SWITCHES = Path(__file__).parent.parent / "src/transport/shm/copy_policy.cpp"
COLLECTIVES = ("allreduce", "allreduce_apart", "broadcast", "allgather", "reducescatter")
MEMORIES = ("ordinary", "library")
EARNS = 1.10
BURSTS = 5
CALLS_MAX = 20_000
NEAR_SECONDS_MAX = 0.09e-6  # for a cache line, see src/device/cpu/line_time.hpp
LOOKS = 5
STATES = ("near", "far", "mixed")

Case = tuple[str, str, str, int, int]  # state, collective, memory, ranks, bytes
Times = dict[Case, list[float]]  # microseconds, one a measurement


# On a rank


def array_of(memory: str, count: int) -> np.ndarray[Any, Any]:
    if memory == "library":
        return farandole.empty(count, np.float32)
    return np.zeros(count, np.float32)


def call_of(collective: str, memory: str, size: int) -> Callable[[], object] | None:
    """None if the bytes, those of the longer side, do not divide by the ranks."""
    count, ranks = size // 4, farandole.size()
    world, data = farandole.world(), array_of(memory, count)
    data[:] = 0
    if collective == "allreduce":
        return lambda: world.allreduce(data, data)
    if collective == "allreduce_apart":
        result = array_of(memory, count)
        result[:] = 0
        return lambda: world.allreduce(data, result)
    if collective == "broadcast":
        return lambda: world.broadcast(data, data, root=0)
    if count % ranks != 0:
        return None
    block = array_of(memory, count // ranks)
    block[:] = 0
    if collective == "allgather":
        return lambda: world.allgather(block, data)
    return lambda: world.reducescatter(data, block)


def burst(call: Callable[[], object], calls: int) -> float:
    """Microseconds per call, of the slowest rank."""
    farandole.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    spent = np.array([(time.perf_counter() - start) / calls * 1e6])
    return float(farandole.allreduce(spent, op="max")[0])


def measured(call: Callable[[], object], seconds: float) -> float:
    first = min(burst(call, 2), burst(call, 2))
    calls = max(1, min(CALLS_MAX, int(seconds / BURSTS / (first * 1e-6))))
    return statistics.median(burst(call, calls) for _ in range(BURSTS))


def run_rank(collectives: list[str], sizes: list[int], seconds: float) -> None:
    farandole.init()
    rows = []
    for collective in collectives:
        for memory in MEMORIES:
            for size in sizes:
                call = call_of(collective, memory, size)
                if call is not None:
                    rows.append([collective, memory, size, measured(call, seconds)])
    if farandole.rank() == 0:
        print(json.dumps(rows))
    farandole.shutdown()


# Of all ranks


def is_near() -> bool:
    """Of the first two cores, by the shortest of some looks, since others may use them. A core is
    near itself."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return True
    looks = (_native.line_seconds(cores[0], cores[1]) for _ in range(LOOKS))
    found = [seconds for seconds in looks if seconds is not None]
    if not found:
        raise SystemExit("ablation: how far the cores are from each other cannot be measured")
    return min(found) <= NEAR_SECONDS_MAX


def measure(arguments: argparse.Namespace, ranks: int, without: str) -> dict[Case, float]:
    command = [sys.executable, "-m", "farandole.cli", "run", "-n", str(ranks)]
    command += ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
    command += [sys.executable, __file__, "--rank", f"--seconds={arguments.seconds}"]
    command += [f"--collectives={arguments.collectives}", f"--bytes={arguments.bytes}"]
    environment = os.environ | {"FARANDOLE_SHM_WITHOUT": without, "FARANDOLE_TRANSPORT": "shm"}
    before = is_near()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    state = "mixed" if is_near() != before else "near" if before else "far"
    if done.returncode != 0:
        raise SystemExit(f"without {without or 'nothing'}, {ranks} ranks: {done.stderr}")
    rows = json.loads(done.stdout[done.stdout.index("[") :])
    return {(state, collective, memory, ranks, size): us for collective, memory, size, us in rows}


def compare(arguments: argparse.Namespace, way: str) -> tuple[Times, Times]:
    """Times with and without the way, in turns."""
    present: defaultdict[Case, list[float]] = defaultdict(list)
    absent: defaultdict[Case, list[float]] = defaultdict(list)
    for ranks in map(int, arguments.ranks.split(",")):
        for number in range(arguments.rounds):
            print(f"{way}, {ranks} ranks, round {number}", file=sys.stderr)
            turns = [("", present), (way, absent)]
            for without, times in turns if number % 2 == 0 else reversed(turns):
                for case, us in measure(arguments, ranks, without).items():
                    times[case].append(us)
    return present, absent


def gains(present: Times, absent: Times) -> dict[Case, float]:
    return {
        case: statistics.median(absent[case]) / statistics.median(present[case])
        for case in present
        if case in absent
    }


def words(case: Case) -> str:
    _, collective, memory, ranks, size = case
    return f"{collective} of {in_units(size)}, {ranks} ranks, {memory} memory"


def in_units(size: int) -> str:
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def earns(row: dict[str, Any]) -> bool:
    rounds = min(len(row["us"]), len(row["us_without"]))
    return bool(rounds > 1 and row["gain"] >= EARNS and max(row["us"]) < min(row["us_without"]))


def table(results: dict[str, Any]) -> str:
    here = results["machine"]
    lines = [
        "<!-- Copyright The Farandole Authors -->",
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "# What each way through shared memory gains",
        "",
        f"{here['processor']}, {here['cores']} cores, load {here['load']}; {results['rounds']} "
        "rounds in turns. A number is the time of a call without the way over the time with it.",
        "",
        "| way | cores | most | where | least | where | mean | cases that earn it |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (way, all_rows), state in itertools.product(results["ways"].items(), STATES):
        rows = [row for row in all_rows if row["case"][0] == state]
        found = {tuple(row["case"]): row["gain"] for row in rows}
        if not found:
            continue
        best, worst = max(found, key=found.__getitem__), min(found, key=found.__getitem__)
        mean = math.exp(statistics.fmean(map(math.log, found.values())))
        earning = sum(earns(row) for row in rows)
        lines.append(
            f"| {way} | {state} | {found[best]:.2f} | {words(best)} "
            f"| {found[worst]:.2f} | {words(worst)} | {mean:.3f} | {earning} of {len(rows)} |"
        )
    return "\n".join(lines) + "\n"


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 1),
    }


def size_of(text: str) -> int:
    factors = {"K": 10, "M": 20}
    return int(text[:-1]) << factors[text[-1]] if text[-1] in factors else int(text)


def sizes_of(text: str) -> Iterator[int]:
    smallest, largest = (size_of(part) for part in text.split(","))
    while smallest <= largest:
        yield smallest
        smallest *= 4


def main() -> None:
    ways = re.findall(r'Switch{"(\w+)"', SWITCHES.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--ways", default=",".join(ways))
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--bytes", default="4,64M", help="smallest and largest; times 4 between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each case")
    parser.add_argument("--json", type=Path, help="every measurement")
    parser.add_argument("--table", type=Path, help="a table in Markdown")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        sizes = list(sizes_of(arguments.bytes))
        return run_rank(arguments.collectives.split(","), sizes, arguments.seconds)
    if unknown := [way for way in arguments.ways.split(",") if way not in ways]:
        parser.error(f"no way {unknown[0]!r}; there are {', '.join(ways)}")
    results: dict[str, Any] = {"machine": machine(), "rounds": arguments.rounds, "ways": {}}
    for way in arguments.ways.split(","):
        present, absent = compare(arguments, way)
        results["ways"][way] = [
            {"case": case, "gain": round(gain, 4), "us": present[case], "us_without": absent[case]}
            for case, gain in gains(present, absent).items()
        ]
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results) + "\n", encoding="utf-8")
    text = table(results)
    if arguments.table is not None:
        arguments.table.write_text(text, encoding="utf-8")
    print(text, end="")
    return None


if __name__ == "__main__":
    main()
