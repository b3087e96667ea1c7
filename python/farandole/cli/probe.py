# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole probe`: what messages cost here, measured, as a machine file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farandole.cli.findings import NO_JOB, started_by
from farandole.cli.launcher import LaunchOptions
from farandole.cli.run import launch
from farandole.cli.sizes import parse_size

if TYPE_CHECKING:
    from farandole.topology.probe import Measurements

_SIZE_BYTES_MIN = 1 << 16


def probe(
    output: Annotated[Path, typer.Option("-o", "--output", help="Machine file to write.")],
    rank_count: Annotated[
        int, typer.Option("-n", "--ranks", min=2, help="Processes to start, outside of a job.")
    ] = 2,
    end: Annotated[str, typer.Option("-e", "--end", help="Largest message, 64K or more.")] = "4M",
    name: Annotated[str, typer.Option(help="Name of the machine.")] = "probed",
    transport: Annotated[
        str | None, typer.Option(help="auto, shm or tcp; outside of a job.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write every time to this file.")] = None,
) -> None:
    """Measure what messages cost between ranks, and write a machine file.

    As the command of a job, with `farandole run -n 8 -H node1:4,node2:4 farandole probe -o FILE`,
    it measures between the ranks of that job; by itself it starts ranks on this machine. Run it
    with as many ranks as the jobs to predict, as cores that ranks share cost time. Prints what was
    measured beside what the fitted costs say, with the error.
    """
    try:
        size_bytes_max = parse_size(end)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if size_bytes_max < _SIZE_BYTES_MIN:
        raise typer.BadParameter(f"--end is {end}, allowed is 64K or more")
    for path in (output, json):
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"{path} is in a directory that does not exist")
    if started_by(os.environ) != NO_JOB:
        if transport is not None:
            raise typer.BadParameter("--transport is for `farandole run` in a job")
        _measure(output, size_bytes_max, name, json)
        return
    command = [sys.executable, "-m", "farandole.cli", "probe", "-o", str(output.absolute())]
    command += ["-e", end, "--name", name]
    if json is not None:
        command += ["--json", str(json.absolute())]
    environment = {} if transport is None else {"FARANDOLE_TRANSPORT": transport}
    raise typer.Exit(launch(LaunchOptions(command, rank_count, environment)))


def _measure(output: Path, size_bytes_max: int, name: str, json: Path | None) -> None:
    """Every rank of the job; rank 0 writes and prints."""
    import farandole
    from farandole.errors import InvalidArgumentError
    from farandole.topology.probe import Probe

    farandole.init()
    if farandole.size() < 2:
        raise InvalidArgumentError("the job has 1 rank, allowed are 2 or more")
    measured = Probe(farandole.world(), size_bytes_max).run()
    if farandole.rank() == 0:
        _report(measured, output, name, json)
    farandole.shutdown()


def _report(measured: Measurements, output: Path, name: str, json: Path | None) -> None:
    from dataclasses import asdict
    from json import dumps

    from farandole import machines
    from farandole.report.tables import print_table
    from farandole.topology import probed

    found = probed.hops(measured)
    description = probed.describe(measured, found, name)
    description.machine()  # checks it
    output.write_text(machines.as_toml(description), encoding="utf-8")
    if json is not None:
        json.write_text(dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
    for rows in (
        probed.sample_rows(found),
        probed.rate_rows(found),
        probed.cost_rows(found),
    ):
        print_table(rows, list(rows[0]), wrapped=())
    print(f"wrote {output}")
