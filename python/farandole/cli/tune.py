# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole tune`: which algorithms are fastest here, measured, as a tuning file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.arguments import Oversubscribe, output_file, size_option
from farandole.cli.joined import JobRanks, Ranks, Transport, measure
from farandole.cli.sizes import size_steps
from farandole.measure.bench_plan import COLLECTIVES, WITHOUT_ALGORITHMS

_TUNED = tuple(name for name in COLLECTIVES if name not in WITHOUT_ALGORITHMS)
_SIZE_BYTES_MIN, _FACTOR = 64, 4


def tune(
    output: Annotated[Path, output_file("-o", "--output", help="Tuning file to write.")],
    rank_count: JobRanks = None,
    end: Annotated[int, size_option("-e", "--end", default="64MiB", help="Largest size.")] = 64
    << 20,
    collectives: Annotated[
        str, typer.Option(help="Which, separated by commas.")
    ] = "allreduce,broadcast,reducescatter,allgather",
    seconds: Annotated[
        float,
        typer.Option(min=0.0, max=3600.0, help="To measure each candidate of each size for."),
    ] = 0.2,
    transport: Transport = None,
    oversubscribe: Oversubscribe = False,
) -> None:
    """Measure the algorithms that the model puts near the front, and write a tuning file.

    As the command of a job, with `farandole run -n 8 -H node1:4,node2:4 farandole tune -o FILE`,
    it measures between the ranks of that job; by itself it starts ranks on this machine. Later
    jobs of as many ranks that set FARANDOLE_TUNING=FILE take what it found. With FARANDOLE_MACHINE
    the predictions are those for that machine.
    """
    names = _names(collectives)
    if end < _SIZE_BYTES_MIN:
        raise typer.BadParameter(f"--end is {end}, allowed is {_SIZE_BYTES_MIN} bytes or more")
    if rank_count == 1:
        raise typer.BadParameter("--ranks is 1, allowed are 2 or more")
    sizes = size_steps(_SIZE_BYTES_MIN, end, _FACTOR)
    ranks = Ranks(rank_count, 2, transport, oversubscribe, [output], 2 * end)
    measure(ranks, lambda: _measure(output, names, sizes, seconds))


def _names(collectives: str) -> list[str]:
    names = [name.strip() for name in collectives.split(",")]
    for name in names:
        if name not in _TUNED:
            raise typer.BadParameter(
                f"--collectives has {name!r}, allowed are {', '.join(_TUNED)}, each once"
            )
    if len(set(names)) != len(names):
        raise typer.BadParameter(f"--collectives is {collectives!r}, allowed is each name once")
    return names


def _measure(output: Path, names: Sequence[str], sizes: Sequence[int], seconds: float) -> None:
    """Every rank of the job; rank 0 writes and prints."""
    import farandole
    from farandole import _native
    from farandole.errors import InvalidArgumentError
    from farandole.measure.timing import Budget
    from farandole.measure.tuner import Tuner, timing_rows, tuning_text
    from farandole.report.tables import print_table

    budget = Budget(seconds=seconds / 2, warmup_seconds=seconds / 8, iterations_min=3)
    tuner = Tuner(farandole.world(), budget)
    choices = list(tuner.run(names, sizes))
    if not choices:
        raise InvalidArgumentError(
            f"--end is {sizes[-1]} bytes, which is less than an element for each rank"
        )
    if farandole.rank() == 0:
        how = f"float32, out of place, {seconds:g} s per candidate, median of the slowest rank"
        text = tuning_text(choices, tuner.shape, how)
        _native.check_tuning(text, str(output))
        output.write_text(text, encoding="utf-8")
        rows = timing_rows(choices)
        print_table(rows, list(rows[0]), wrapped=("algorithm",))
        if farandole.core.job.machine() is None:
            print(
                "Predictions are of typical costs, good for an order only; for times set "
                "FARANDOLE_MACHINE."
            )
        print(f"wrote {output}")
