# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Does the planner know the fastest algorithm of a network that it has probed?

    python bench/validation/network.py [--ranks 2,4,8] [--megabits 1000,500,100] [--json FILE]

Builds a network namespace per rank, joined by a bridge, with links of so many Mbit/s for each
number of ranks (tc tbf); needs root and Debian's iproute2. There `farandole probe` writes a machine
file, and `_native.plan` predicts from it what allreduce and broadcast take, from 4 B to 256 MiB.
Then all its candidates are measured. A prediction is right if the measured time of the algorithm
that it would choose is within 5 % of the fastest one's, since some are the same but for noise: at
two ranks most are. Above 1 MiB the predicted time of the choice is compared as well. Eight hosts on
two cores fill these with packets above 100 Mbit/s; then the cores are measured, not the network.

Exit status 1 if fewer than 8 of 10 choices are right, or a time above 1 MiB is off by over 25 %.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from farandole import _native, machines
from farandole.report.tables import print_table

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from namespaces import Hosts, why_not

SIZES = (4, 256, 4 << 10, 64 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
COLLECTIVES = ("allreduce", "broadcast")
AS_FAST = 1.05
TIMED_ABOVE = 1 << 20
TIME_LIMIT = 0.25
RIGHT_OF_TEN = 8
PROBE_SECONDS, MEASURE_SECONDS = 300.0, 3600.0
WORKER = Path(__file__).with_name("network_worker.py")


def run_on(hosts: Hosts, seconds: float, *command: str | Path) -> str:
    """What rank 0 writes."""
    # Hosts that share cores must not spin: who is waited for may need the core.
    crowded = hosts.count > (os.cpu_count() or 1)
    if crowded:
        hosts.start(*command, FARANDOLE_SPIN="0")
    else:
        hosts.start(*command)
    return hosts.finish(seconds)[0]


def validate(rank_count: int, megabits: int) -> list[dict[str, Any]]:
    hosts = Hosts(rank_count, megabits)
    try:
        hosts.build()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "probed.toml"
            run_on(hosts, PROBE_SECONDS, "-m", "farandole.cli", "probe", "-e", "32M", "-o", file)
            machine = machines.load(str(file)).machine()
        plans = {
            (collective, size): _native.plan(machine, collective, size, rank_count)
            for collective in COLLECTIVES
            for size in SIZES
        }
        task = [[*case, [row["algorithm"] for row in rows]] for case, rows in plans.items()]
        said = run_on(hosts, MEASURE_SECONDS, WORKER, json.dumps(task))
    finally:
        hosts.remove()
    measured: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for line in said.splitlines():
        row = json.loads(line)
        measured[row["collective"], row["bytes"]][row["algorithm"]] = row["seconds"]
    found = []
    for (collective, size), rows in plans.items():
        took = measured[collective, size]
        choice = _native.choose(machine, collective, size, rank_count)
        predicted = {row["algorithm"]: row["seconds"] for row in rows}
        fastest = min(took, key=took.__getitem__)
        found.append(
            {
                "ranks": rank_count,
                "megabits": megabits,
                "collective": collective,
                "bytes": size,
                "choice": choice,
                "predicted_seconds": predicted[choice],
                "measured_seconds": took.get(choice),
                "fastest": fastest,
                "fastest_seconds": took[fastest],
                "measured": took,
                "predicted": predicted,
            }
        )
    return found


def is_right(row: dict[str, Any]) -> bool:
    measured = row["measured_seconds"]
    return measured is not None and measured <= AS_FAST * row["fastest_seconds"]


def time_error(row: dict[str, Any]) -> float:
    if row["measured_seconds"] is None:
        return float("inf")
    return float(row["predicted_seconds"] / row["measured_seconds"] - 1.0)


def shown_row(row: dict[str, Any]) -> dict[str, str]:
    return {
        "bytes": f"{row['bytes']:,}",
        "choice": row["choice"],
        "predicted": f"{row['predicted_seconds'] * 1e3:.3f} ms",
        "measured": f"{(row['measured_seconds'] or float('nan')) * 1e3:.3f} ms",
        "error": f"{time_error(row):+.0%}",
        "measured fastest": row["fastest"],
        "its time": f"{row['fastest_seconds'] * 1e3:.3f} ms",
        "right": "yes" if is_right(row) else "no",
    }


def report(rows: list[dict[str, Any]]) -> bool:
    """Prints the tables; whether all limits hold."""
    good = True
    for case in dict.fromkeys((row["ranks"], row["collective"]) for row in rows):
        of_case = [row for row in rows if (row["ranks"], row["collective"]) == case]
        print(f"\n{case[1]}, {case[0]} ranks, {of_case[0]['megabits']} Mbit/s")
        shown = [shown_row(row) for row in of_case]
        print_table(shown, list(shown[0]), wrapped=("choice", "measured fastest"))
        right = sum(map(is_right, of_case))
        errors = [abs(time_error(row)) for row in of_case if row["bytes"] > TIMED_ABOVE]
        print(
            f"{case[0]} ranks, {case[1]}: {right} of {len(of_case)} choices right; above 1 MiB "
            f"times off by {max(errors):.0%} at most, {statistics.median(errors):.0%} in the median"
        )
        good &= right >= RIGHT_OF_TEN / 10 * len(of_case) and max(errors) <= TIME_LIMIT
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--megabits", default="1000,500,100", help="one for each number of ranks")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # removes the namespaces
    rows: list[dict[str, Any]] = []
    cases = zip(arguments.ranks.split(","), arguments.megabits.split(","), strict=True)
    for ranks, megabits in cases:
        rows += validate(int(ranks), int(megabits))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if report(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
