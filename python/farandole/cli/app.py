# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of `farandole`. What a command needs it imports itself, so that help is fast."""

from __future__ import annotations

import typer

from farandole.cli.run import run
from farandole.cli.show import algorithms, settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: fast, and it does not take [rank] for markup
    pretty_exceptions_enable=False,
    help="Collective communication for data-parallel deep learning.",
)

app.command(
    context_settings={"allow_interspersed_args": False}, options_metavar="-n RANKS [OPTIONS]"
)(run)
app.command()(algorithms)
app.command()(settings)
