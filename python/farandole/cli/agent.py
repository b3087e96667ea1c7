# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole agent`, which `farandole run` starts on other hosts."""

from __future__ import annotations

import os

import typer

from farandole.launch.agent import serve


def agent() -> None:
    """Run the ranks of this host for a `farandole run` on another one, which starts this."""
    if os.isatty(0):
        raise typer.BadParameter("`farandole run` starts this by itself")
    serve()
