# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a benchmark measures, and the arithmetic of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COLLECTIVES = (
    "allreduce",
    "reduce",
    "broadcast",
    "reducescatter",
    "allgather",
    "gather",
    "scatter",
    "alltoall",
    "sendrecv",
    "barrier",
)
WITH_ALGORITHMS = COLLECTIVES[:-2] + COLLECTIVES[-1:]  # as the planner knows them
REDUCING = ("allreduce", "reduce", "reducescatter")
ROOTED = ("reduce", "broadcast", "gather", "scatter")
DIVIDED = ("reducescatter", "allgather", "gather", "scatter", "alltoall")
WITHOUT_ALGORITHMS = ("sendrecv", "barrier")
PLACES = ("out-of-place", "in-place")
NEVER_IN_PLACE = ("sendrecv", "barrier")


@dataclass(frozen=True)
class BenchPlan:
    """`iterations` None: as many as the time allows."""

    collective: str
    sizes: Sequence[int]
    dtype: str
    op: str
    root: int
    places: Sequence[str]
    owned: bool
    algorithm: str
    deterministic: bool
    iterations: int | None
    warmup: int | None


def elements_per_rank(collective: str, size_bytes: int, item_bytes: int, rank_count: int) -> int:
    """nccl-tests' count: of the whole message, but of one block where messages are divided, whose
    size is that of all blocks."""
    parts = rank_count if collective in DIVIDED else 1
    return size_bytes // (item_bytes * parts)


def size_of_row(collective: str, count: int, item_bytes: int, rank_count: int) -> int:
    parts = rank_count if collective in DIVIDED else 1
    return count * item_bytes * parts


def bus_factor(collective: str, rank_count: int) -> float:
    """From algbw to busbw, as nccl-tests defines them."""
    if collective == "allreduce":
        return 2 * (rank_count - 1) / rank_count
    if collective in DIVIDED:
        return (rank_count - 1) / rank_count
    return 1.0


def bandwidths(
    collective: str, size_bytes: int, seconds: float, rank_count: int
) -> tuple[float, float]:
    """algbw and busbw in GB/s, with GB = 10**9 bytes."""
    algbw = size_bytes / seconds / 1e9 if seconds > 0 else 0.0
    return algbw, algbw * bus_factor(collective, rank_count)


def header(places: Sequence[str]) -> str:
    over = " " * 50 + "".join(f"{place:^34}" for place in places)
    names = f"{'size':>12}{'count':>13}{'type':>11}{'redop':>8}{'root':>6}"
    units = f"{'(B)':>12}{'(elements)':>13}{'':>25}"
    for _ in places:
        names += f"{'time':>10}{'algbw':>8}{'busbw':>8}{'wrong':>8}"
        units += f"{'(us)':>10}{'(GB/s)':>8}{'(GB/s)':>8}{'':>8}"
    return "\n".join("#" + line[1:].rstrip() for line in (over, names, units))


def row_start(size_bytes: int, count: int, dtype: str, op: str, root: int) -> str:
    shown_op, shown_root = op or "none", str(root)
    return f"{size_bytes:>12}{count:>13}{dtype:>11}{shown_op[:7]:>8}{shown_root:>6}"


def row_part(p50_us: float, algbw: float, busbw: float, wrong: int) -> str:
    time = f"{p50_us:.1f}" if p50_us < 1e5 else f"{p50_us:.0f}"
    return f"{time:>10}{algbw:>8.2f}{busbw:>8.2f}{wrong:>8}"


def absent_row_part() -> str:
    """For a place that the collective does not have."""
    return f"{'n/a':>10}{'n/a':>8}{'n/a':>8}{'n/a':>8}"
