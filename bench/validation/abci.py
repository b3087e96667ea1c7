# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The cost model fitted to 128 GPUs of ABCI alone, beside what was measured there.

    python bench/validation/abci.py

[Ueno19] prints, in Table II, the bus bandwidth of each layer of ten hierarchies of rings: allreduce
of 128 MiB on 128 V100 of ABCI with NCCL 2.3.5. The machine is that of `farandole topo --machine
abci`; what is printed there or comes from data sheets stays as it is. Five parameters (PARAMETERS
says what each means) are fitted to the ten times, by least squares of the logarithms. Neither the
order of the rows nor any larger scale takes part in the sum.

The order is still no blind prediction, since which parameters there are was chosen with these rows
in sight: without `eight` all rows are within 6% but 4x32 comes first; fitted to single layers
instead of whole rows, 4x8x4 comes first, and 4x32 before 4x8x2x2. What is said about larger scales
is a prediction, and has not been compared with any measurement.

As a check of the fit itself each row is also predicted by a fit to the nine others. The printed
bandwidths of single layers, which the fit does not see, are compared too; there the model misses.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from farandole import _native, machines
from farandole.machines.description import Constant, Description, HopConstants, Ring
from farandole.report.tables import Row, print_table

BYTES = 128 * 2**20
RANKS = 128
NOTE = "to Ueno19, Table II, p = 128 alone, bench/validation/abci.py"
LAYERS_MAX = 4  # of a row
LARGER = (256, 512, 1024, 2048)

Sizes = tuple[int, ...]
Values = Mapping[str, float]

# [Ueno19] Table II: MB/s (10^6 bytes) per layer. The bus bandwidth of a layer of p_i ranks that
# works on n_i bytes is 2 n_i (p_i - 1) / p_i over its time.
TABLE: dict[Sizes, tuple[float, ...]] = {
    (128,): (11547.97,),
    (4, 32): (83446.91, 4348.85),
    (4, 4, 8): (85237.64, 4229.91, 4121.85),
    (4, 8, 4): (85956.47, 4648.48, 3766.94),
    (4, 16, 2): (81777.71, 4140.13, 2375.11),
    (4, 4, 4, 2): (81196.07, 4188.34, 3417.55, 3285.54),
    (4, 8, 2, 2): (83191.72, 4640.75, 2705.13, 3063.70),
    (8, 16): (11343.85, 4463.43),
    (8, 4, 4): (11239.52, 4551.33, 4011.04),
    (8, 4, 2, 2): (11362.74, 4366.68, 2978.18, 3195.68),
}


@dataclass(frozen=True)
class Parameter:
    start: float
    unit: str
    meaning: str


PARAMETERS = {
    "call": Parameter(150, "us", "of a library call that leaves the host; a stage is one"),
    "fill": Parameter(
        0.2, "messages", "that fill the pipeline of a stage, on any hop; not below 0"
    ),
    "nvlink": Parameter(80, "GB/s", "ring of the 4 GPUs of a host"),
    "striped": Parameter(12.8, "GB/s", "ring that enters a host once and may use both its HCAs"),
    "eight": Parameter(4.65, "GB/s", "each ring of 8 hosts where 4 share the HCAs of a host"),
}
_STRIPED_SIZES = [2**k for k in range(3, 13)]  # of the first layer, or of the flat ring


def layer_seconds(sizes: Sizes) -> list[float]:
    """Measured, by the table."""
    seconds, layer_bytes = [], float(BYTES)
    for size, megabytes in zip(sizes, TABLE[sizes], strict=True):
        seconds.append(2 * layer_bytes * (size - 1) / size / (megabytes * 1e6))
        layer_bytes /= size
    return seconds


def measured(sizes: Sizes) -> float:
    return sum(layer_seconds(sizes))


def spec(sizes: Sizes) -> str:
    if len(sizes) == 1:
        return "ring"
    return "hierarchical:layers=" + "/".join(f"{size}ring" for size in sizes)


def name(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def description(values: Values) -> Description:
    """The machine of the package with these values."""
    shipped = machines.load("abci")

    def fitted(value: float) -> Constant:
        return Constant(float(f"{value:.4g}"), "fitted", NOTE)

    host, rack = shipped.hops["host"], shipped.hops["rack"]
    rings = {Ring(size, 1): fitted(values["striped"]) for size in _STRIPED_SIZES}
    costs = {"call_us": fitted(values["call"]), "fill_chunks": fitted(values["fill"])}
    rack = HopConstants({**rack.constants, **costs}, {**rings, Ring(8, 4): fitted(values["eight"])})
    host = HopConstants(
        {**host.constants, "fill_chunks": costs["fill_chunks"]},
        {**host.ring_rates_GBps, Ring(4): fitted(values["nvlink"])},
    )
    fabric = HopConstants({**shipped.hops["fabric"].constants, **costs}, rings)
    return replace(shipped, hops={"host": host, "rack": rack, "fabric": fabric})


def predict(machine: _native.Machine, sizes: Sizes) -> dict[str, Any]:
    return _native.predict(machine, "allreduce", spec(sizes), BYTES, math.prod(sizes))


def predicted(machine: _native.Machine, sizes: Sizes) -> float:
    return float(predict(machine, sizes)["seconds"])


def loss(values: Values, rows: Collection[Sizes]) -> float:
    if min(values.values()) < 0:
        return math.inf
    machine = description(values).machine()
    return sum(math.log(predicted(machine, row) / measured(row)) ** 2 for row in rows)


def fit(rows: Collection[Sizes]) -> dict[str, float]:
    """Steps along each parameter, shorter ones when none helps."""
    values = {key: parameter.start for key, parameter in PARAMETERS.items()}
    steps = {key: value / 8 for key, value in values.items()}
    best = loss(values, rows)
    while max(steps[key] / PARAMETERS[key].start for key in steps) > 1e-5:
        improved = False
        for key in values:
            for sign in (1, -1):
                tried = {**values, key: max(0.0, values[key] + sign * steps[key])}
                if (found := loss(tried, rows)) < best:
                    values, best, improved = tried, found, True
        if not improved:
            steps = {key: step * 0.6 for key, step in steps.items()}
    return values


def order(times: Mapping[Sizes, float]) -> dict[Sizes, int]:
    return {sizes: place for place, sizes in enumerate(sorted(times, key=times.__getitem__), 1)}


def row_table(machine: _native.Machine) -> list[Row]:
    real = {sizes: measured(sizes) for sizes in TABLE}
    said = {sizes: predicted(machine, sizes) for sizes in TABLE}
    real_order, said_order = order(real), order(said)
    rows = []
    for sizes in real_order:
        without = description(fit([row for row in TABLE if row != sizes])).machine()
        rows.append(
            {
                "hierarchy": name(sizes),
                "measured": f"{real[sizes] * 1e3:.2f} ms",
                "predicted": f"{said[sizes] * 1e3:.2f} ms",
                "error": f"{said[sizes] / real[sizes] - 1:+.1%}",
                "measured rank": str(real_order[sizes]),
                "predicted rank": str(said_order[sizes]),
                "error, if not fitted to": f"{predicted(without, sizes) / real[sizes] - 1:+.1%}",
            }
        )
    return rows


def layer_table(machine: _native.Machine) -> list[Row]:
    """Measured and predicted times of single layers; the reduce-scatter and the all-gather of a
    layer together, as the table has them."""
    rows = []
    for sizes in TABLE:
        said = [0.0] * len(sizes)
        for stage in predict(machine, sizes)["stages"]:
            _, _, number = stage["name"].partition("layer ")
            said[int(number or 1) - 1] += stage["seconds"]
        row = {"hierarchy": name(sizes)}
        row |= {f"layer {number}": "" for number in range(1, LAYERS_MAX + 1)}
        for number, (real, model) in enumerate(zip(layer_seconds(sizes), said, strict=True), 1):
            error = f"{model / real - 1:+.0%}"
            row[f"layer {number}"] = f"{real * 1e3:.2f}, {model * 1e3:.2f} ms {error}"
        rows.append(row)
    return rows


def best_rings(machine: _native.Machine, ranks: int, factor_max: int) -> tuple[str, float]:
    """The fastest of all hierarchies of rings with layers of at most so many (0: any)."""
    candidates = _native.plan(
        machine, "allreduce", BYTES, ranks, factor_max=factor_max, rings_only=True, exhaustive=True
    )
    found = next(c for c in candidates if c["algorithm"].startswith("hierarchical:"))
    layers = found["algorithm"].partition("=")[2].replace("ring", "").replace("/", "x")
    return layers, found["seconds"]


def larger_table(machine: _native.Machine, scales: Sequence[int]) -> list[Row]:
    rows = []
    for ranks in scales:
        flat = predicted(machine, (ranks,))
        for factor_max in (8, 0):
            layers, seconds = best_rings(machine, ranks, factor_max)
            rows.append(
                {
                    "ranks": str(ranks),
                    "factors": f"up to {factor_max}" if factor_max else "any",
                    "best hierarchy": layers,
                    "predicted": f"{seconds * 1e3:.2f} ms",
                    "flat ring predicted": f"{flat * 1e3:.2f} ms",
                    "speed-up": f"{flat / seconds:.2f}",
                }
            )
    return rows


def parameter_table(values: Values) -> list[Row]:
    return [
        {
            "parameter": key,
            "fitted": f"{values[key]:.4g} {parameter.unit}",
            "meaning": parameter.meaning,
        }
        for key, parameter in PARAMETERS.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="ABCI: measured and predicted.")
    parser.add_argument("--json", type=Path, help="write all tables to this file")
    arguments = parser.parse_args()
    values = fit(TABLE)
    machine = description(values).machine()
    tables = {
        f"{len(PARAMETERS)} parameters, fitted to {len(TABLE)} times": parameter_table(values),
        f"{RANKS} ranks, 128 MiB: measured and predicted": row_table(machine),
        "Single layers, which the fit does not see: measured, predicted, error": layer_table(
            machine
        ),
        "Larger scales, predicted": larger_table(machine, (RANKS, *LARGER)),
    }
    for title, rows in tables.items():
        print(f"\n{title}")
        print_table(rows, list(rows[0]), wrapped=())
    shipped = machines.load("abci").machine() == machine
    print(f"The machine file of the package {'has' if shipped else 'does NOT have'} these values.")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
