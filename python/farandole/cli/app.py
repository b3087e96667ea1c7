# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of `farandole`. What a command needs it imports itself, so that help is fast."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli.agent import agent
from farandole.cli.algorithms import algorithms
from farandole.cli.bench import bench
from farandole.cli.doctor import doctor
from farandole.cli.explain import explain
from farandole.cli.horovod import with_options
from farandole.cli.plan import plan
from farandole.cli.probe import probe
from farandole.cli.run import RunCommand, run
from farandole.cli.show import settings
from farandole.cli.simulate import app as simulate
from farandole.cli.sweep import app as sweep
from farandole.cli.topo import topo
from farandole.cli.trace import trace
from farandole.cli.tune import tune
from farandole.cli.verify import verify

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: fast, and it does not take [rank] for markup
    pretty_exceptions_enable=False,
)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Collective communication for data-parallel deep learning."""
    if version:
        from farandole import _native

        print(f"farandole {_native.VERSION}")
        raise typer.Exit


app.command(
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="-n RANKS [OPTIONS]",
)(with_options(run))
for command in (topo, probe, plan, tune, bench, algorithms, explain, verify, settings, doctor):
    app.command()(command)
app.command(hidden=True)(agent)
app.add_typer(simulate, name="simulate")
app.add_typer(sweep, name="sweep")
app.add_typer(trace, name="trace")
