# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole verify`: proves the algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import typer

from farandole.cli.arguments import Counts, choice, rank_counts
from farandole.cli.specs import specs
from farandole.measure.bench_plan import WITH_ALGORITHMS
from farandole.report.tables import Row

ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("allreduce", "reduce", "reducescatter")
EVERY_ROOT_RANKS_MAX = 16  # with more ranks the first, second, middle and last root
SPOT_RANKS = (96, 100, 127, 192, 1024, 2048, 27_600)
DETERMINISTIC_RANKS_MAX = 192  # the order of operands leaves no symmetry to prove it by


class Case(NamedTuple):
    """One schedule to prove."""

    algorithm: str
    rank_count: int
    root: int
    deterministic: bool = False

    def __str__(self) -> str:
        kind = ", deterministic" if self.deterministic else ""
        return f"{self.algorithm}, {self.rank_count} ranks, root {self.root}{kind}"


@dataclass
class Tally:
    """What the proofs of one algorithm covered."""

    collective: str
    algorithm: str
    schedules: int = 0
    transfers: int = 0
    reductions: int = 0
    beyond: int = 0  # spot checks at more ranks than the algorithm is for
    too_large: int = 0  # spot checks whose proof is not attempted
    failure: str = ""


def verify(
    max_ranks: Annotated[
        int, typer.Option(min=1, max=4096, help="Prove for 1 to this many ranks.")
    ] = 64,
    collective: Annotated[
        str | None,
        choice("--collective", words=WITH_ALGORITHMS, help="This collective only."),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="This algorithm only.")] = None,
    spot: Annotated[
        Counts,
        typer.Option(
            parser=lambda text: rank_counts(text) if text else Counts(()),
            metavar="N,N,...",
            show_default=",".join(map(str, SPOT_RANKS)),
            help="Prove at these numbers of ranks, too; empty for none.",
        ),
    ] = Counts(SPOT_RANKS),  # noqa: B008 - immutable
) -> None:
    """Prove that every algorithm is right.

    Each rank ends with all that it should, nothing is counted twice, nothing waits for ever, no
    two transfers are in conflict, with separate buffers and in place. Each algorithm is proved by
    itself and with several values of each option, hierarchies in every way that the ranks can be
    divided, reductions also as they are when deterministic; with a root, for every one up to 16
    ranks, for some beyond. Exits with 1 and the reason if a proof fails.
    """
    from rich.console import Console
    from rich.progress import track

    from farandole import _native

    spots = spot.values
    chosen = [
        row
        for row in _native.algorithms()
        if collective in (None, row["collective"]) and algorithm in (None, row["name"])
    ]
    if not chosen:
        raise typer.BadParameter(
            f"--algorithm is {algorithm}, none of {collective or 'any collective'}; "
            "`farandole algorithms` lists them"
        )
    console = Console(stderr=True)
    tallies = [
        _prove(row, max_ranks, spots)
        for row in track(chosen, "Proving", console=console, transient=True)
    ]
    _print(tallies, max_ranks, spots)
    if any(tally.failure for tally in tallies):
        raise typer.Exit(1)


def cases(row: Row, max_ranks: int) -> Iterator[Case]:
    """What to prove of an algorithm for every number of ranks."""
    for rank_count in range(1, min(max_ranks, int(row["ranks_max"])) + 1):
        for root in roots(row["collective"], rank_count):
            for spec in specs(row, rank_count):
                yield Case(spec, rank_count, root)
            if row["collective"] in REDUCING:
                yield Case(row["name"], rank_count, root, deterministic=True)


def spot_cases(row: Row, rank_count: int) -> Iterator[Case]:
    """What to prove at one larger number of ranks."""
    root = rank_count // 3 if row["collective"] in ROOTED else 0
    yield Case(row["name"], rank_count, root)
    if row["collective"] in REDUCING and rank_count <= DETERMINISTIC_RANKS_MAX:
        yield Case(row["name"], rank_count, root, deterministic=True)


def roots(collective: str, rank_count: int) -> Sequence[int]:
    if collective not in ROOTED:
        return (0,)
    if rank_count <= EVERY_ROOT_RANKS_MAX:
        return range(rank_count)
    return (0, 1, rank_count // 2, rank_count - 1)


def _prove(row: Row, max_ranks: int, spots: Sequence[int]) -> Tally:
    from farandole.errors import FarandoleError

    tally = Tally(row["collective"], row["name"])
    case = None
    try:
        for case in cases(row, max_ranks):
            _prove_case(tally, case)
        for rank_count in spots:
            if rank_count > int(row["ranks_max"]):
                tally.beyond += 1
                continue
            for case in spot_cases(row, rank_count):
                _prove_if_possible(tally, case)
    except FarandoleError as error:
        tally.failure = f"{case}: {error}"
    return tally


def _prove_if_possible(tally: Tally, case: Case) -> None:
    from farandole.errors import UnsupportedError

    try:
        _prove_case(tally, case)
    except UnsupportedError:
        tally.too_large += 1


def _prove_case(tally: Tally, case: Case) -> None:
    from farandole import _native

    proof = _native.Schedule.build(
        tally.collective, case.algorithm, case.rank_count, case.root, case.deterministic
    ).verify()
    tally.schedules += 1
    tally.transfers += proof["transfers"]
    tally.reductions += proof["reductions"]


def _print(tallies: Sequence[Tally], max_ranks: int, spots: Sequence[int]) -> None:
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
    also = f" and {', '.join(f'{number:,}' for number in spots)}" if spots else ""
    print(
        f"{len(tallies)} algorithms, 1 to {max_ranks}{also} ranks: {schedules:,} schedules with "
        f"{messages:,} messages proved, {failed} algorithms failed"
    )
    _explain_gaps(tallies)


def _explain_gaps(tallies: Sequence[Tally]) -> None:
    beyond = sum(tally.beyond for tally in tallies)
    if beyond:
        print(f"{beyond} spot checks left out: more ranks than the algorithm is for")
    for tally in tallies:
        if tally.too_large:
            print(
                f"{tally.collective} {tally.algorithm}: {tally.too_large} spot checks left out, "
                "too large to prove"
            )
