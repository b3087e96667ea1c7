# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole verify`: proves the algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

ROOTED = ("broadcast",)
EVERY_ROOT_RANKS_MAX = 16  # with more ranks the first, second, middle and last root


@dataclass
class Tally:
    """What the proofs of one algorithm covered."""

    collective: str
    algorithm: str
    schedules: int = 0
    transfers: int = 0
    reductions: int = 0
    failure: str = ""


def verify(
    max_ranks: Annotated[
        int, typer.Option(min=1, max=4096, help="Prove for 1 to this many ranks.")
    ] = 64,
    collective: Annotated[str | None, typer.Option(help="This collective only.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="This algorithm only.")] = None,
) -> None:
    """Prove that every algorithm is right.

    Each rank ends with all that it should, nothing is counted twice, nothing waits for ever, no
    two transfers are in conflict, with separate buffers and in place. Broadcasts are proved for
    every root up to 16 ranks, for some of the roots beyond. Exits with 1 and the reason if a
    proof fails.
    """
    from rich.console import Console
    from rich.progress import track

    from farandole import _native

    chosen = [
        row
        for row in _native.algorithms()
        if collective in (None, row["collective"]) and algorithm in (None, row["name"])
    ]
    if not chosen:
        raise typer.BadParameter(
            f"no algorithm is called {algorithm or 'so'} for {collective or 'any collective'}; "
            "`farandole algorithms` lists them"
        )
    console = Console(stderr=True)
    tallies = [
        _prove(row["collective"], row["name"], max_ranks)
        for row in track(chosen, "Proving", console=console, transient=True)
    ]
    _print(tallies, max_ranks)
    if any(tally.failure for tally in tallies):
        raise typer.Exit(1)


def cases(collective: str, max_ranks: int) -> Iterator[tuple[int, int]]:
    """(ranks, root) to prove."""
    for rank_count in range(1, max_ranks + 1):
        yield from ((rank_count, root) for root in roots(collective, rank_count))


def roots(collective: str, rank_count: int) -> Sequence[int]:
    if collective not in ROOTED:
        return (0,)
    if rank_count <= EVERY_ROOT_RANKS_MAX:
        return range(rank_count)
    return (0, 1, rank_count // 2, rank_count - 1)


def _prove(collective: str, algorithm: str, max_ranks: int) -> Tally:
    from farandole import _native
    from farandole.errors import FarandoleError

    tally = Tally(collective, algorithm)
    try:
        for rank_count, root in cases(collective, max_ranks):
            where = f"{rank_count} ranks, root {root}"
            proof = _native.Schedule.build(collective, algorithm, rank_count, root).verify()
            tally.schedules += 1
            tally.transfers += proof["transfers"]
            tally.reductions += proof["reductions"]
    except FarandoleError as error:
        tally.failure = f"{where}: {error}"
    return tally


def _print(tallies: Sequence[Tally], max_ranks: int) -> None:
    from farandole.report.tables import print_table

    rows = [
        {
            "collective": tally.collective,
            "algorithm": tally.algorithm,
            "schedules": f"{tally.schedules:,}",
            "messages": f"{tally.transfers:,}",
            "reductions": f"{tally.reductions:,}",
            "proof": tally.failure or "holds",
        }
        for tally in tallies
    ]
    print_table(rows, list(rows[0]), ("proof",), {"holds": "green"})
    failed = sum(bool(tally.failure) for tally in tallies)
    schedules = sum(tally.schedules for tally in tallies)
    messages = sum(tally.transfers for tally in tallies)
    print(
        f"{len(tallies)} algorithms, 1 to {max_ranks} ranks: {schedules:,} schedules with "
        f"{messages:,} messages proved, {failed} algorithms failed"
    )
