# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What the simulator says of one call, over one or several seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from farandole import _native
from farandole.report.tables import print_table
from farandole.report.units import seconds_text


@dataclass(frozen=True)
class Run:
    """One simulation, and how long this machine took for it."""

    result: dict[str, Any]  # of Simulator.run()
    wall_seconds: float


def timed(
    simulator: _native.Simulator, call: _native.SimulatedCall, options: Mapping[str, Any]
) -> Run:
    begin = time.perf_counter()
    result = simulator.run([call], **options)
    return Run(result, time.perf_counter() - begin)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Median and range of the simulated time; all else of the run at the median."""
    times = sorted(run.result["seconds"] for run in runs)
    wall = sum(run.wall_seconds for run in runs)
    messages = sum(run.result["messages"] for run in runs)
    return {
        **middle(runs).result,
        "kind": "simulated",
        "seeds": len(runs),
        "seconds": median(times),
        "seconds_min": times[0],
        "seconds_max": times[-1],
        "wall_seconds": wall,
        "messages_per_wall_second": messages / wall,
    }


def middle(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: float(run.result["seconds"]))[(len(runs) - 1) // 2]


def print_simulation(runs: Sequence[Run], title: str) -> None:
    facts = summary(runs)
    spread = ""
    if len(runs) > 1:
        low, high = seconds_text(facts["seconds_min"]), seconds_text(facts["seconds_max"])
        spread = f", the median of {len(runs)} seeds from {low} to {high}"
    print(f"{title}\nsimulated time {seconds_text(facts['seconds'])}{spread}")
    print(
        f"{facts['messages']:,} messages by path {facts['path']}"
        + (", exact under the model" if facts["exact"] else ", a bulk-synchronous estimate")
        + f"; the simulator took {seconds_text(facts['wall_seconds'])}, "
        f"{facts['messages_per_wall_second']:,.0f} messages/s"
    )
    whole = sum(stage["seconds"] for stage in facts["stages"]) or 1.0
    stages = [
        {
            "stage": stage["name"],
            "simulated time": seconds_text(stage["seconds"]),
            "share": f"{stage['seconds'] / whole:.1%}",
        }
        for stage in facts["stages"]
    ]
    if stages:
        print_table(stages, list(stages[0]), wrapped=())
    links = [
        {
            "busiest links": link["name"],
            "simulated GB": f"{link['bytes'] / 1e9:,.3f}",
            "used": f"{link['utilization']:.1%}",
        }
        for link in facts["busiest"]
    ]
    if links:
        print_table(links, list(links[0]), wrapped=())
