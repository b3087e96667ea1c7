# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole plan`: the algorithm that a call would take on a machine, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farandole.cli.arguments import (
    BYTES_BY_DEFAULT,
    RANKS_MAX,
    Bytes,
    Collective,
    FactorMax,
    Json,
    MachineIfGiven,
    RankCount,
    check_factor_max,
    write_json,
)

if TYPE_CHECKING:
    from farandole import _native

_SHOWN = 10
_SIMULATED = 5


def plan(
    rank_count: RankCount,
    machine: MachineIfGiven = None,
    collective: Collective = "allreduce",
    size_bytes: Bytes = BYTES_BY_DEFAULT,
    ranks_per_host: Annotated[
        int, typer.Option(min=0, max=RANKS_MAX, help="0: as many as a host has devices.")
    ] = 0,
    factor_max: FactorMax = 0,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Every hierarchy, not the promising ones.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where the choice's time goes, and why it wins.")
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the first few as well.")
    ] = False,
    json: Json = None,
) -> None:
    """Show which algorithm a call would take on a machine, and what is predicted for the others.

    Times are those of the cost model. Without --machine it is this host, with typical costs of
    what joins its processes; `farandole probe` measures them.
    """
    from farandole import _native

    check_factor_max(factor_max)
    if ranks_per_host > rank_count:
        raise typer.BadParameter(
            f"--ranks-per-host is {ranks_per_host}, allowed are 0 to {rank_count}, the ranks"
        )
    described = _machine(machine, rank_count, ranks_per_host)
    candidates = _native.plan(
        described,
        collective,
        size_bytes,
        rank_count,
        ranks_per_host=ranks_per_host,
        factor_max=factor_max,
        exhaustive=exhaustive,
        hierarchies=_SHOWN,
    )
    found: dict[str, Any] = {
        "machine": described.name,
        "collective": collective,
        "bytes": size_bytes,
        "ranks": rank_count,
        "ranks_per_host": ranks_per_host,
        "predicted": _chosen_first(candidates),
    }
    if simulate:
        found["simulated"] = _simulate(described, found)
    _report(found, explain, json)


def _machine(given: str | None, rank_count: int, ranks_per_host: int) -> _native.Machine:
    from farandole import _native, machines

    if given is not None:
        return machines.load(given).machine()
    # What a job on this host goes by that is told nothing.
    local = ranks_per_host or rank_count
    return _native.default_machine(local, -(-rank_count // local))


def _chosen_first(candidates: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(candidates, key=lambda candidate: not candidate["chosen"])


def _simulate(machine: _native.Machine, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first few, as ranks fill the hosts in turn."""
    from rich.progress import track

    from farandole import _native
    from farandole.errors import FarandoleError

    ranks, local = found["ranks"], found["ranks_per_host"] or machine.devices_per_host
    placement = [divmod(rank, local) for rank in range(ranks)]
    simulated = []
    first = found["predicted"][:_SIMULATED]
    for candidate in track(first, description="Simulating", transient=True):
        row: dict[str, Any] = {"algorithm": candidate["algorithm"], "seconds": None, "note": ""}
        try:
            schedule = _native.Schedule.build(found["collective"], row["algorithm"], ranks)
            simulator = _native.Simulator(machine, ranks, placement)
            call = _native.SimulatedCall(schedule=schedule, bytes=found["bytes"])
            result = simulator.run([call])
            row["seconds"] = result["seconds"]
            row["note"] = "" if result["exact"] else "by rounds, which is not exact here"
        except FarandoleError as error:
            row["note"] = f"not simulated: {error}"
        simulated.append(row)
    return simulated


def _report(found: Mapping[str, Any], explain: bool, json: Path | None) -> None:
    from farandole.report import plan as report
    from farandole.report.tables import print_table

    if write_json(json, found):
        return
    candidates = found["predicted"]
    print(
        f"{found['collective']} of {found['bytes']:,} bytes among {found['ranks']} ranks "
        f"on {found['machine']}"
    )
    rows = report.candidate_rows(candidates[:_SHOWN], report.flat_ring_seconds(candidates))
    print_table(rows, list(rows[0]), wrapped=("algorithm",))
    if explain:
        rows = report.stage_rows(candidates[0])
        print(f"Where the time of {candidates[0]['algorithm']} goes, predicted:")
        print_table(rows, list(rows[0]), wrapped=("stage",))
        print(report.reason(candidates))
    if "simulated" in found:
        print("Simulated, with static-hash routing:")
        rows = report.simulated_rows(found["simulated"])
        print_table(rows, list(rows[0]), wrapped=("algorithm", "note"))
