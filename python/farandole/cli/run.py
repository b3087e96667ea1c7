# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole run`: a command in n processes, on this machine or on several hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.arguments import (
    RANKS_MAX,
    TRANSPORT_HELP,
    TRANSPORTS,
    Oversubscribe,
    choice,
    output_problem,
)
from farandole.cli.grouped import grouped
from farandole.cli.horovod import LOG_LEVELS, PANEL, timeline_file, translate_variables
from farandole.launch.hosts import HostsError, parse_hosts, place, read_hostfile
from farandole.launch.launcher import (
    NOT_EXECUTABLE_STATUS,
    Launcher,
    LaunchError,
    LaunchOptions,
    Output,
    forward_signals,
    refuse_crowding,
    report_to_stderr,
    resolve_command,
)
from farandole.launch.output import OutputFolder
from farandole.launch.processes import lead_session
from farandole.launch.remote import RemoteLauncher
from farandole.launch.ssh import Ssh

_START_TIMEOUT_SECONDS = 120.0  # as the ranks' own
RunCommand = grouped(
    {
        "Hosts": (
            *("hosts", "hostfile", "ssh_port", "ssh_identity_file", "ssh_command"),
            *("network_interface", "start_timeout"),
        ),
        "Settings of the library": (
            *("transport", "algorithm", "schedules", "check", "log_level", "timeline_filename"),
            *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "no_stall_check"),
            *("stall_check_warning_time_seconds", "stall_check_shutdown_time_seconds"),
            *("autotune", "autotune_log_file", "autotune_warmup_samples"),
            *("autotune_steps_per_sample", "autotune_max_samples"),
        ),
    }
)


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="What each rank runs; a .py file runs in this Python."
        ),
    ],
    rank_count: Annotated[
        int,
        typer.Option(
            "-n", "-np", "--ranks", "--num-proc", min=1, max=RANKS_MAX, help="Number of processes."
        ),
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
        typer.Option(
            min=0.0, help="Seconds that ranks have to end after one failed, or after SIGTERM."
        ),
    ] = 5.0,
    bind: Annotated[
        bool, typer.Option("--bind/--no-bind", help="Give each rank its own share of the cores.")
    ] = False,
    oversubscribe: Oversubscribe = False,
    transport: Annotated[
        str | None,
        choice(
            "--transport",
            words=TRANSPORTS,
            help=f"Sets FARANDOLE_TRANSPORT ({TRANSPORT_HELP}).",
        ),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Sets FARANDOLE_ALGORITHM; see `farandole algorithms`.")
    ] = None,
    schedules: Annotated[
        list[Path] | None,
        typer.Option(
            "--schedule",
            metavar="SCHEDULE",
            help="Sets FARANDOLE_SCHEDULE: a schedule from a file, for its collective and number "
            "of ranks; repeatable.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Sets FARANDOLE_CHECK: compare arguments across ranks.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Sets a variable for every rank; repeatable."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts and how many ranks each takes."
        ),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(
            "-hostfile", "--hostfile", help="The same in a file, a host per line: node1 slots=4."
        ),
    ] = None,
    ssh_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of ssh on all hosts.")
    ] = None,
    ssh_identity_file: Annotated[
        Path | None, typer.Option("-i", "--ssh-identity-file", help="Private key for ssh.")
    ] = None,
    ssh_command: Annotated[
        str, typer.Option(help="What to run as ssh, with options of its own before ours.")
    ] = "ssh",
    network_interface: Annotated[
        str | None,
        typer.Option(
            "--network-interface",
            "--network-interfaces",
            help="Sets FARANDOLE_INTERFACE: interface or address for the ranks' sockets.",
        ),
    ] = None,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Sets FARANDOLE_START_TIMEOUT: seconds that hosts, then ranks, have to come.",
        ),
    ] = None,
    timeline_filename: Annotated[
        str | None,
        typer.Option(help="Sets FARANDOLE_TIMELINE: a file per rank with what it did when."),
    ] = None,
    fusion_threshold_mb: Annotated[
        int | None,
        typer.Option(min=0, help="Sets FARANDOLE_FUSION_THRESHOLD, here in MiB; 0: no fusion."),
    ] = None,
    cycle_time_ms: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=10_000.0, help="Sets FARANDOLE_CYCLE_TIME, here in milliseconds."
        ),
    ] = None,
    cache_capacity: Annotated[
        int | None,
        typer.Option(min=0, max=65536, help="Sets FARANDOLE_CACHE_CAPACITY; 0: no cache."),
    ] = None,
    no_stall_check: Annotated[
        bool,
        typer.Option(
            "--no-stall-check/--stall-check",
            help="Sets FARANDOLE_STALL_WARNING and _SHUTDOWN to 0: never.",
        ),
    ] = False,
    stall_check_warning_time_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Sets FARANDOLE_STALL_WARNING; 0: never.")
    ] = None,
    stall_check_shutdown_time_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Sets FARANDOLE_STALL_SHUTDOWN; 0: never.")
    ] = None,
    autotune: Annotated[
        bool,
        typer.Option(
            "--autotune/--no-autotune",
            help="Sets FARANDOLE_AUTOTUNE: try settings while training.",
        ),
    ] = False,
    autotune_log_file: Annotated[
        str | None,
        typer.Option(help="Sets FARANDOLE_AUTOTUNE_LOG: results, which later runs use at once."),
    ] = None,
    autotune_warmup_samples: Annotated[
        int | None, typer.Option(min=0, help="Sets FARANDOLE_AUTOTUNE_WARMUP_SAMPLES.")
    ] = None,
    autotune_steps_per_sample: Annotated[
        int | None, typer.Option(min=1, help="Sets FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE.")
    ] = None,
    autotune_max_samples: Annotated[
        int | None,
        typer.Option(
            "--autotune-max-samples",
            "--autotune-bayes-opt-max-samples",
            min=1,
            help="Sets FARANDOLE_AUTOTUNE_MAX_SAMPLES.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Say how hosts are reached and what is set.")
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help=f"Sets FARANDOLE_LOG: {', '.join(LOG_LEVELS)}, in any case."
        ),
    ] = None,
    output_filename: Annotated[
        Path | None,
        typer.Option(
            help="Write each rank's output to rank.N/stdout and stderr in this folder.",
            rich_help_panel=PANEL,
        ),
    ] = None,
) -> None:
    """Run a command as the ranks of a job, on this machine or on several hosts.

    Each rank finds its place through FARANDOLE_RANK and its like, through torch's RANK,
    WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and through HOROVOD_RANK and its like.
    OMP_NUM_THREADS is set to cores / ranks unless you set it; with -p, --output-dir or other hosts
    also PYTHONUNBUFFERED. Only rank 0 reads the standard input; in a job with other hosts no rank
    does.

    When a rank fails, the others have --grace seconds to end, then get SIGTERM, then SIGKILL; so
    long they also have to end after a SIGTERM to this command. What ranks have started and left
    running is ended after them.

    The exit status is 0 if all ranks return 0, else that of the first one that was killed (128 +
    n for signal n), or, if none was, that failed; 74 if all returned 0 and output that goes through
    here, as with -p, could not be written. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
    SIGXCPU, SIGTSTP and SIGCONT go to every rank; a second Ctrl-C kills.

    With --hosts or --hostfile, ranks fill the hosts one after the other. This machine, by its
    name or as localhost, needs no ssh; every other host needs one that asks no questions, and the
    same farandole in the same Python and the same working directory as here. An unknown host's
    key is accepted and remembered, a changed one refused. Ranks there get the environment of
    that host; from here PATH (before theirs), LD_LIBRARY_PATH, VIRTUAL_ENV, CONDA_PREFIX and what
    begins with FARANDOLE_, HOROVOD_, PYTHON, OMP_, MKL_, NCCL_ or TORCH_; and what --env sets. If
    this command is killed or out of reach for a minute, all ranks end.

    Horovod's variables for fusion, cycle time, cache, timeline, log, autotuning and stall check are
    taken for ours where ours are not set; --verbose says which.
    """
    if prefix_output + (output_dir is not None) + (output_filename is not None) > 1:
        raise typer.BadParameter(
            "give one of --prefix-output, --output-dir and --output-filename, not both"
        )
    if log_level is not None and log_level.lower() not in LOG_LEVELS:
        allowed = ", ".join(LOG_LEVELS)
        raise typer.BadParameter(f"--log-level is {log_level!r}, allowed are {allowed}")
    if hosts is not None and hostfile is not None:
        raise typer.BadParameter("give --hosts or --hostfile, not both")
    stall_times = (stall_check_warning_time_seconds, stall_check_shutdown_time_seconds)
    if no_stall_check and stall_times != (None, None):
        raise typer.BadParameter("give --no-stall-check or times for it, not both")
    environment = parse_environment(env or [])
    set_by_options = {
        "TRANSPORT": transport,
        "ALGORITHM": algorithm,
        "SCHEDULE": _schedule_files(schedules, rank_count) if schedules else None,
        "CHECK": "1" if check else None,
        "INTERFACE": network_interface,
        "START_TIMEOUT": start_timeout,
        "TIMELINE": timeline_file(timeline_filename),
        "FUSION_THRESHOLD": None if fusion_threshold_mb is None else f"{fusion_threshold_mb}MiB",
        "CYCLE_TIME": None if cycle_time_ms is None else cycle_time_ms / 1000,
        "CACHE_CAPACITY": cache_capacity,
        "STALL_WARNING": 0 if no_stall_check else stall_check_warning_time_seconds,
        "STALL_SHUTDOWN": 0 if no_stall_check else stall_check_shutdown_time_seconds,
        "AUTOTUNE": "1" if autotune else None,
        "AUTOTUNE_LOG": autotune_log_file,
        "AUTOTUNE_WARMUP_SAMPLES": autotune_warmup_samples,
        "AUTOTUNE_STEPS_PER_SAMPLE": autotune_steps_per_sample,
        "AUTOTUNE_MAX_SAMPLES": autotune_max_samples,
        "LOG": LOG_LEVELS[log_level.lower()] if log_level is not None else None,
    }
    environment |= {
        f"FARANDOLE_{name}": str(value)
        for name, value in set_by_options.items()
        if value is not None
    }
    translate_variables(environment, verbose)
    try:
        listed = parse_hosts(hosts) if hosts else read_hostfile(hostfile) if hostfile else None
        placements = place(listed, rank_count) if listed is not None else []
    except HostsError as error:
        raise typer.BadParameter(str(error)) from error
    options = LaunchOptions(
        command=command,
        rank_count=rank_count,
        environment=environment,
        output=_output(prefix_output, output_dir, output_filename),
        timeout_seconds=timeout,
        grace_seconds=grace,
        bind=bind,
        oversubscribe=oversubscribe,
    )
    refuse_unusable(options, everywhere=all(placement.host.is_here for placement in placements))
    if all(placement.host.is_here for placement in placements):
        raise typer.Exit(_launch_here(options))
    ssh = Ssh(ssh_command, ssh_port, ssh_identity_file)
    start_seconds = _start_timeout_seconds(environment)
    remote = RemoteLauncher(options, placements, ssh, start_seconds, verbose)
    raise typer.Exit(launch(options, remote))


def _schedule_files(files: Sequence[Path], rank_count: int) -> str:
    """The setting for these, which can be read, are right and can be of use."""
    from farandole import Schedule

    for file in files:
        if os.pathsep in str(file):
            raise typer.BadParameter(f"--schedule {file}: allowed is a path without {os.pathsep}")
        schedule = Schedule.load(file)
        if schedule.rank_count > rank_count:
            raise typer.BadParameter(
                f"--schedule {file} is for {schedule.rank_count} ranks, the job has {rank_count}"
            )
        if schedule.rank_count < rank_count:
            print(
                f"farandole: warning: --schedule {file} is for {schedule.rank_count} ranks, the "
                f"job has {rank_count}: only communicators of {schedule.rank_count} ranks take it",
                file=sys.stderr,
            )
        schedule.register()
    return os.pathsep.join(str(file.absolute()) for file in files)


def _output(prefix: bool, folder: Path | None, as_horovodrun: Path | None) -> Output | OutputFolder:
    if as_horovodrun is not None:
        return OutputFolder(as_horovodrun, as_horovodrun=True)
    if folder is not None:
        return OutputFolder(folder)
    return Output.PREFIX if prefix else Output.INHERIT


def _launch_here(options: LaunchOptions) -> int:
    try:
        return launch(replace(options, command=resolve_command(options.command)))
    except LaunchError as error:
        return _refuse(str(error), error.status)


def _start_timeout_seconds(environment: Mapping[str, str]) -> float:
    name = "FARANDOLE_START_TIMEOUT"
    value = environment.get(name) or os.environ.get(name) or _START_TIMEOUT_SECONDS
    try:
        return float(value)
    except ValueError as error:
        raise typer.BadParameter(f"{name} is {value!r}, which is no number") from error


def launch(options: LaunchOptions, remote: RemoteLauncher | None = None) -> int:
    """Runs to the end with signals forwarded; returns the exit status."""
    try:
        lead_session()
        if remote is None:
            refuse_crowding(options.rank_count, options.oversubscribe)
            launcher = Launcher(options)
            with forward_signals(launcher, launcher.reap), launcher:
                return launcher.wait()
        with forward_signals(remote), remote:
            return remote.wait()
    except LaunchError as error:
        return _refuse(str(error), error.status)
    except OSError as error:
        return _refuse(f"cannot start {options.command[0]}: {error}", NOT_EXECUTABLE_STATUS)


def refuse_unusable(options: LaunchOptions, everywhere: bool) -> None:
    """Before anything starts: folders and files in which nothing can be written. `everywhere`: all
    ranks are here; else the files of FARANDOLE_TIMELINE and its like are on their hosts."""
    folder = options.output
    if isinstance(folder, OutputFolder):
        option = "--output-filename" if folder.as_horovodrun else "--output-dir"
        file = folder.file(0, 1, options.rank_count)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot make {file.parent}: {error}"
            raise typer.BadParameter(f"{option}: {problem}") from error
        if unusable := output_problem(file):
            raise typer.BadParameter(f"{option}: {unusable}")
    for name in ("FARANDOLE_TIMELINE", "FARANDOLE_AUTOTUNE_LOG") if everywhere else ():
        path = options.environment.get(name) or os.environ.get(name)
        if path and (problem := output_problem(Path(path))):
            raise typer.BadParameter(f"{name}: {problem}")


def parse_environment(assignments: Sequence[str]) -> dict[str, str]:
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--env takes NAME=VALUE, not {assignment!r}")
        values[name] = value
    return values


def _refuse(message: str, status: int) -> int:
    report_to_stderr(message)
    return status
