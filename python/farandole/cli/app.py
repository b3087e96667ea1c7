# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of `farandole`. What a command needs it imports itself, so that help is fast."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from farandole.cli.agent import agent
from farandole.cli.algorithms import algorithms
from farandole.cli.bench import bench
from farandole.cli.command import Command, Commands, JoiningCommand
from farandole.cli.doctor import doctor
from farandole.cli.explain import explain
from farandole.cli.horovod import with_options
from farandole.cli.joined import rank_told
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

# Whatever their rank, these say and write the same: in a job rank 0 does it for all. The others,
# apart from those that join the job, are about the host or the process.
_SAME_ON_ALL_RANKS = ("plan", "algorithms", "explain", "verify", "simulate", "sweep", "trace")
# Of these, rank 0 says so when it joins a job.
_WARNED_LATER = ("run", "agent", "bench", "probe", "tune")

app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    invoke_without_command=True,
    rich_markup_mode=None,  # plain help: fast, and it does not take [rank] for markup
    pretty_exceptions_enable=False,
)


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Collective communication for data-parallel deep learning."""
    if version:
        from farandole import _native

        print(f"farandole {_native.VERSION}")
        raise typer.Exit
    if context.invoked_subcommand in _SAME_ON_ALL_RANKS and rank_told():
        raise typer.Exit
    if context.invoked_subcommand not in _WARNED_LATER:
        _warn_of_unknown_settings()


def _warn_of_unknown_settings() -> None:
    if any(name.startswith("FARANDOLE_") for name in os.environ):
        from farandole import _native

        for warning in _native.unknown_settings():
            print(f"farandole: warning: {warning}", file=sys.stderr)


app.command(
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="-n RANKS [OPTIONS]",
)(with_options(run))
for command in (topo, plan, algorithms, explain, verify, settings, doctor):
    app.command(cls=Command)(command)
for joining_command in (probe, tune, bench):
    app.command(cls=JoiningCommand)(joining_command)
app.command(cls=Command, hidden=True)(agent)
app.add_typer(simulate, name="simulate")
app.add_typer(sweep, name="sweep")
app.add_typer(trace, name="trace")
