# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole simulate training`: one training step on a described machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from farandole.cli.arguments import size


def training(
    machine: Annotated[
        str, typer.Option("--machine", "-m", help="A machine's name, or a file of one.")
    ],
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="Number of ranks.")],
    model: Annotated[
        str, typer.Option(help="alexnet, vgg16, vgg19, resnet50, fcn-220m, gpt2, ...")
    ] = "resnet50",
    batch: Annotated[float, typer.Option(help="Samples of a rank and step.")] = 32.0,
    device_tflops: Annotated[
        float, typer.Option(help="10^12 operations per second that a device reaches.")
    ] = 7.0,
    fusion_threshold: Annotated[str, typer.Option(help="Bytes fused at most.")] = "128MiB",
    cycle_time_ms: Annotated[float, typer.Option(min=0.0, help="The coordinator's.")] = 1.0,
    groups: Annotated[int, typer.Option(min=0, help="Explicit groups of gradients; 0: none.")] = 0,
    cache: Annotated[
        bool, typer.Option(help="Known tensors are bits of one allreduce; else a tree agrees.")
    ] = True,
    overlap: Annotated[
        bool, typer.Option(help="Gradients travel while the backward pass goes on.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate a step: compute, the coordinator's cycles, fused allreduces, what stays exposed.

    Efficiency is samples per second over those of as many ranks that need not communicate.
    """
    from farandole import machines, scaling
    from farandole.report.scaling import BASIS, step_row
    from farandole.report.tables import print_table

    described = machines.load(machine).machine()
    chosen = scaling.Training(
        model=model,
        batch=batch,
        device_tflops=device_tflops,
        fusion_threshold_bytes=size(fusion_threshold, "fusion-threshold"),
        cycle_seconds=cycle_time_ms * 1e-3,
        group_count=groups,
        design="cached" if cache else "tree",
        overlap=overlap,
    )
    step = scaling.train(chosen, ranks, scaling.AllreduceTimes(described, ranks))
    if as_json:
        print(json.dumps({"kind": "simulated", **step.fields()}, indent=2))
        return
    print(f"{machine}, {ranks:,} ranks: {model}, {batch:g} samples per rank")
    row = step_row(step)
    print_table([row], list(row), wrapped=())
    print(BASIS)
