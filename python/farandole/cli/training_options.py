# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What `farandole simulate training` and `farandole sweep scaling` ask about a training."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli.arguments import choice, size_option
from farandole.planning.models import MODEL_NAMES

GROUPS_MAX = 10_000
BATCH_MAX = 1e9

Model = Annotated[str, choice("--model", words=MODEL_NAMES, help=f"{', '.join(MODEL_NAMES)}.")]
Batch = Annotated[
    float, typer.Option(min=1e-6, max=BATCH_MAX, help="Samples of a rank and step; weak scaling.")
]
DeviceTflops = Annotated[
    float,
    typer.Option(min=1e-6, max=1e9, help="10^12 operations per second that a device reaches."),
]
FusionThreshold = Annotated[
    int, size_option("--fusion-threshold", default="128MiB", help="Bytes fused at most.")
]
CycleTime = Annotated[float, typer.Option(min=0.0, max=10_000.0, help="The coordinator's.")]
