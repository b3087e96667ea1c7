# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole run`: a command in n processes on this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.launcher import Launcher, LaunchOptions, Output, forward_signals

NOT_FOUND_STATUS = 127  # as of a shell
NOT_EXECUTABLE_STATUS = 126


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="What each rank runs; a .py file runs in this Python."
        ),
    ],
    rank_count: Annotated[
        int, typer.Option("-n", "-np", "--ranks", min=1, help="Number of processes.")
    ],
    prefix_output: Annotated[
        bool,
        typer.Option("--prefix-output", "-p", help="Pass output on in lines marked [rank]."),
    ] = False,
    output_dir: Annotated[
        Path | None,
        typer.Option(help="Write each rank's output to rank-N.out and rank-N.err here."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.0, help="End the job after this many seconds, with status 124."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds the other ranks have to end after one failed."),
    ] = 5.0,
    bind: Annotated[
        bool, typer.Option("--bind/--no-bind", help="Give each rank its own share of the cores.")
    ] = False,
    transport: Annotated[
        str | None, typer.Option(help="Sets FARANDOLE_TRANSPORT: auto, shm or tcp.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Sets FARANDOLE_ALGORITHM; see `farandole algorithms`.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Sets FARANDOLE_CHECK: compare arguments across ranks.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Sets a variable for every rank; repeatable."),
    ] = None,
) -> None:
    """Run a command as the ranks of a job on this machine.

    Each rank finds its place through FARANDOLE_RANK and its like, and through torch's RANK,
    WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. OMP_NUM_THREADS is set to cores / ranks
    unless you set it; with -p or --output-dir also PYTHONUNBUFFERED. Only rank 0 reads the
    standard input.

    When a rank fails, the others have --grace seconds to end, then get SIGTERM, then SIGKILL.
    The exit status is 0 if all ranks return 0, else that of the first one that failed (128 + n
    for signal n). SIGINT, SIGTERM and SIGHUP go to every rank; a second Ctrl-C kills.
    """
    if prefix_output and output_dir is not None:
        raise typer.BadParameter("give --prefix-output or --output-dir, not both")
    environment = parse_environment(env or [])
    for name, value in (("TRANSPORT", transport), ("ALGORITHM", algorithm)):
        if value is not None:
            environment[f"FARANDOLE_{name}"] = value
    if check:
        environment["FARANDOLE_CHECK"] = "1"
    options = LaunchOptions(
        command=resolve_command(command),
        rank_count=rank_count,
        environment=environment,
        output=output_dir or (Output.PREFIX if prefix_output else Output.INHERIT),
        timeout_seconds=timeout,
        grace_seconds=grace,
        bind=bind,
    )
    raise typer.Exit(launch(options))


def launch(options: LaunchOptions) -> int:
    """Runs to the end with signals forwarded; returns the exit status."""
    try:
        launcher = Launcher(options)
        with forward_signals(launcher), launcher:
            return launcher.wait()
    except OSError as error:
        print(f"farandole: cannot start {options.command[0]}: {error}", file=sys.stderr)
        return NOT_EXECUTABLE_STATUS


def resolve_command(command: Sequence[str]) -> list[str]:
    """`command` as it can be executed; exits with a shell's status if it cannot."""
    program, *arguments = command
    if program.endswith(".py"):
        if not Path(program).is_file():
            _refuse(f"there is no file {program}", NOT_FOUND_STATUS)
        return [sys.executable, program, *arguments]
    if shutil.which(program) is None:
        if "/" in program and Path(program).exists():
            _refuse(f"{program} is not executable", NOT_EXECUTABLE_STATUS)
        _refuse(f"command not found: {program}", NOT_FOUND_STATUS)
    return [program, *arguments]


def parse_environment(assignments: Sequence[str]) -> dict[str, str]:
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--env takes NAME=VALUE, not {assignment!r}")
        values[name] = value
    return values


def _refuse(message: str, status: int) -> None:
    print(f"farandole: {message}", file=sys.stderr)
    raise typer.Exit(status)
