# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate training`: one training step on a described machine."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli.arguments import BYTES_BY_DEFAULT, Json, Machine, RankCount, write_json
from farandole.cli.training_options import (
    GROUPS_MAX,
    Batch,
    CycleTime,
    DeviceTflops,
    FusionThreshold,
    Model,
)


def training(
    machine: Machine,
    ranks: RankCount,
    model: Model = "resnet50",
    batch: Batch = 32.0,
    device_tflops: DeviceTflops = 7.0,
    fusion_threshold: FusionThreshold = BYTES_BY_DEFAULT,
    cycle_time_ms: CycleTime = 1.0,
    groups: Annotated[
        int, typer.Option(min=0, max=GROUPS_MAX, help="Explicit groups of gradients; 0: none.")
    ] = 0,
    cache: Annotated[
        bool, typer.Option(help="Known tensors are bits of one allreduce; else a tree agrees.")
    ] = True,
    overlap: Annotated[
        bool, typer.Option(help="Gradients travel while the backward pass goes on.")
    ] = True,
    json: Json = None,
) -> None:
    """Simulate a step: compute, the coordinator's cycles, fused allreduces, what stays exposed.

    Efficiency is samples per second over those of as many ranks that need not communicate.
    """
    from farandole import machines
    from farandole.planning import scaling
    from farandole.report.scaling import BASIS, step_row
    from farandole.report.tables import print_table

    described = machines.load(machine).machine()
    chosen = scaling.Training(
        model=model,
        batch=batch,
        device_tflops=device_tflops,
        fusion_threshold_bytes=fusion_threshold,
        cycle_seconds=cycle_time_ms * 1e-3,
        group_count=groups,
        design="cached" if cache else "tree",
        overlap=overlap,
    )
    step = scaling.train(chosen, ranks, scaling.AllreduceTimes(described, ranks))
    if write_json(json, {"kind": "simulated", **step.fields()}):
        return
    print(f"{machine}, {ranks:,} ranks: {model}, {batch:g} samples per rank")
    row = step_row(step)
    print_table([row], list(row), wrapped=())
    print(BASIS)
