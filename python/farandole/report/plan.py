# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences about candidates of the planner. All times here are predicted, but those of
simulated_rows()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farandole.report.tables import Row

Candidate = Mapping[str, Any]  # as _native.plan() gives them

# What a stage's time is made of, as _native.plan() names it, and in words.
PARTS = {
    "alpha": "start-up",
    "bytes": "wires",
    "call": "calls",
    "fill": "fill",
    "local": "local work",
}


def time_text(seconds: float) -> str:
    """Four digits, as "16.59 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def flat_ring_seconds(candidates: Sequence[Candidate]) -> float | None:
    """Of the algorithm `ring`, if the collective has it."""
    return next((one["seconds"] for one in candidates if one["algorithm"] == "ring"), None)


def candidate_rows(candidates: Sequence[Candidate], flat_seconds: float | None) -> list[Row]:
    """The chosen one comes first."""
    rows: list[Row] = []
    for candidate in candidates:
        seconds = candidate["seconds"]
        row = {
            "": "chosen" if candidate["chosen"] else "",
            "algorithm": candidate["algorithm"],
            "predicted": time_text(seconds),
        }
        if flat_seconds is not None:
            row["speed-up over the flat ring"] = f"{flat_seconds / seconds:.2f}" if seconds else ""
        rows.append(row)
    return rows


def stage_rows(candidate: Candidate) -> list[Row]:
    """Where the time goes, and the sum."""
    rows = []
    for stage in candidate["stages"]:
        parts = {word: time_text(stage[part]) for part, word in PARTS.items()}
        total = time_text(stage["seconds"])
        rows.append({"stage": stage["name"], "hop": stage["hop"], **parts, "predicted": total})
    sums = {word: time_text(part_seconds(candidate)[part]) for part, word in PARTS.items()}
    total = time_text(candidate["seconds"])
    return [*rows, {"stage": "all", "hop": "", **sums, "predicted": total}]


def part_seconds(candidate: Candidate) -> dict[str, float]:
    return {part: sum(stage[part] for stage in candidate["stages"]) for part in PARTS}


def reason(candidates: Sequence[Candidate]) -> str:
    """Why the first one wins over the next one: the part in which it gains most."""
    first, *others = candidates
    chosen = first["algorithm"]
    if not others:
        return f"{chosen} is the only candidate."
    second = others[0]
    if second["seconds"] < first["seconds"]:
        faster = f"{1 - second['seconds'] / first['seconds']:.1%}"
        return (
            f"{second['algorithm']} is predicted to be {faster} faster, which is less than a "
            f"prediction can tell; {chosen} needs no layers."
        )
    mine, theirs = part_seconds(first), part_seconds(second)
    gains = {part: theirs[part] - mine[part] for part in PARTS}
    best = max(gains, key=gains.__getitem__)
    if gains[best] <= 0:
        return (
            f"{second['algorithm']} is predicted to take as long; the order is that of the table."
        )
    lead, gain = time_text(second["seconds"] - first["seconds"]), time_text(gains[best])
    text = (
        f"{chosen} wins over {second['algorithm']} by {lead}: it takes {gain} less for "
        f"{PARTS[best]} ({time_text(mine[best])}, not {time_text(theirs[best])})"
    )
    worst = min(gains, key=gains.__getitem__)
    if gains[worst] < -0.01 * first["seconds"]:
        text += f", though {time_text(-gains[worst])} more for {PARTS[worst]}"
    return text + "."


def simulated_rows(simulated: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        {
            "algorithm": row["algorithm"],
            "simulated": "" if row["seconds"] is None else time_text(row["seconds"]),
            "note": row["note"],
        }
        for row in simulated
    ]
