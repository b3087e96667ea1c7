# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole probe`: what messages cost here, measured, as a machine file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli.arguments import Json, Oversubscribe, output_file, size_option, write_json
from farandole.cli.joined import JobRanks, Ranks, Transport, measure

if TYPE_CHECKING:
    from farandole.measure.probe import Measurements

_SIZE_BYTES_MIN = 1 << 16


def probe(
    output: Annotated[Path, output_file("-o", "--output", help="Machine file to write.")],
    rank_count: JobRanks = None,
    end: Annotated[
        int, size_option("-e", "--end", default="4MiB", help="Largest message, 64K or more.")
    ] = 4 << 20,
    name: Annotated[str, typer.Option(help="Name of the machine.")] = "probed",
    transport: Transport = None,
    json: Json = None,
    oversubscribe: Oversubscribe = False,
) -> None:
    """Measure what messages cost between ranks, and write a machine file.

    As the command of a job, with `farandole run -n 8 -H node1:4,node2:4 farandole probe -o FILE`,
    it measures between the ranks of that job; by itself it starts ranks on this machine. Run it
    with as many ranks as the jobs to predict, as cores that ranks share cost time. Prints what was
    measured beside what the fitted costs say, with the error, and how far the cores of the first
    host are from each other. JSON has every time.
    """
    if end < _SIZE_BYTES_MIN:
        raise typer.BadParameter(f"--end is {end}, allowed is 64K or more")
    if rank_count == 1:
        raise typer.BadParameter("--ranks is 1, allowed are 2 or more")
    ranks = Ranks(rank_count, 2, transport, oversubscribe, [output, json], 2 * end)
    measure(ranks, lambda: _measure(output, end, name, json))


def _measure(output: Path, size_bytes_max: int, name: str, json: Path | None) -> None:
    """Every rank of the job; rank 0 writes and prints."""
    import farandole
    from farandole.measure.probe import Probe

    measured = Probe(farandole.world(), size_bytes_max).run()
    if farandole.rank() == 0:
        _report(measured, output, name, json)


def _report(measured: Measurements, output: Path, name: str, json: Path | None) -> None:
    from dataclasses import asdict

    from farandole import machines
    from farandole.measure import probed
    from farandole.report.tables import print_table

    found = probed.hops(measured)
    description = probed.describe(measured, found, name)
    description.machine()  # checks it
    output.write_text(machines.as_toml(description), encoding="utf-8")
    if write_json(json, asdict(measured)):
        return
    for rows in (
        probed.sample_rows(found),
        probed.rate_rows(found),
        probed.cost_rows(found),
        probed.line_rows(measured),
    ):
        if rows:
            print_table(rows, list(rows[0]), wrapped=())
    print(f"wrote {output}")
