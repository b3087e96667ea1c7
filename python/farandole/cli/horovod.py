# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What `horovodrun` takes and `farandole run` has no other use for: options without an effect here,
the configuration file, --check-build, and Horovod's environment variables."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

PANEL = "Options for users of horovodrun"
_ITSELF = "ranks connect by themselves"
_NO_MPI = "there is no MPI"
_PLANNED = "what is fastest is chosen; --algorithm takes one always"

# By parameter: its type, its flags, and why it has no effect.
_WITHOUT_EFFECT: dict[str, tuple[Any, str, str]] = {
    "gloo": (bool, "--gloo", _ITSELF),
    "mpi": (bool, "--mpi", _ITSELF),
    "tcp": (bool, "--tcp", "--transport chooses"),
    "mpi_args": (str, "--mpi-args", _NO_MPI),
    "mpi_threads_disable": (bool, "--mpi-threads-disable/--no-mpi-threads-disable", _NO_MPI),
    "binding_args": (str, "--binding-args", "--bind gives each rank its own cores"),
    "num_nccl_streams": (int, "--num-nccl-streams", "there is no NCCL"),
    "thread_affinity": (int, "--thread-affinity", "the library's thread runs where there is room"),
    "gloo_timeout_seconds": (int, "--gloo-timeout-seconds", "see --start-timeout"),
    "disable_cache": (bool, "--disable-cache", "what is checked before the start is not kept"),
    "hierarchical_allreduce": (
        bool,
        "--hierarchical-allreduce/--no-hierarchical-allreduce",
        _PLANNED,
    ),
    "hierarchical_allgather": (
        bool,
        "--hierarchical-allgather/--no-hierarchical-allgather",
        _PLANNED,
    ),
    "torus_allreduce": (bool, "--torus-allreduce/--no-torus-allreduce", _PLANNED),
    "autotune_gaussian_process_noise": (
        float,
        "--autotune-gaussian-process-noise",
        "another optimizer is at work",
    ),
    "timeline_mark_cycles": (
        bool,
        "--timeline-mark-cycles/--no-timeline-mark-cycles",
        "timelines always mark cycles",
    ),
    "log_with_timestamp": (
        bool,
        "--log-with-timestamp/--log-without-timestamp",
        "messages have no time",
    ),
}

LOG_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "fatal": "error",
    "off": "off",
}

# A section of Horovod's configuration file, and what its names lack of the options'.
_SECTIONS = {
    "params": "",
    "autotune": "autotune-",
    "timeline": "timeline-",
    "stall_check": "stall-check-",
    "library_options": "",
    "logging": "log-",
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options that have no effect, --config-file and --check-build."""
    signature = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _extra_options()
    ]

    @functools.wraps(command)
    def run_without(**values: Any) -> None:
        for parameter in extra:
            value = values.pop(parameter.name)
            if value is not None and parameter.name in _WITHOUT_EFFECT:
                _say_no_effect(parameter.name, value)
        command(**values)

    parameters = [*signature.parameters.values(), *extra]
    extended: Any = run_without
    extended.__signature__ = signature.replace(parameters=parameters)
    extended.__annotations__ = {p.name: p.annotation for p in parameters}
    return run_without


def _extra_options() -> list[tuple[str, Any]]:
    options = []
    for name, (kind, flags, why) in _WITHOUT_EFFECT.items():
        option = typer.Option(flags, help=f"No effect: {why}.", rich_help_panel=PANEL)
        options.append((name, Annotated[kind | None, option]))
    config = typer.Option(
        "--config-file",
        help="YAML with Horovod's sections and names, or TOML; options come before it.",
        is_eager=True,
        callback=_read_config,
        rich_help_panel=PANEL,
    )
    check = typer.Option(
        "-cb",
        "--check-build",
        help="Print what this farandole can work with, and exit.",
        is_eager=True,
        callback=_check_build,
        rich_help_panel=PANEL,
    )
    return [
        ("config_file", Annotated[Path | None, config]),
        ("check_build", Annotated[bool | None, check]),
        *options,
    ]


def _say_no_effect(name: str, value: object) -> None:
    _, flags, why = _WITHOUT_EFFECT[name]
    flag = flags.split("/")[-1 if value is False else 0]
    print(f"farandole: {flag} has no effect: {why}", file=sys.stderr)


def _check_build(asked: bool | None) -> None:
    if not asked:
        return
    from farandole import _native

    there = {
        "Frameworks": {
            "PyTorch": importlib.util.find_spec("torch") is not None,
            "NumPy": True,
            "TensorFlow": False,
            "MXNet": False,
        },
        "Controllers": {"Farandole": True, "MPI": False, "Gloo": False},
        "Tensor Operations": {
            "shared memory": True,
            "TCP": True,
            **dict.fromkeys(("NCCL", "DDL", "CCL", "MPI", "Gloo"), False),
        },
    }
    print(f"Farandole v{_native.VERSION}:")
    for title, rows in there.items():
        print(f"\nAvailable {title}:")
        for name, is_there in rows.items():
            print(f"    [{'X' if is_there else ' '}] {name}")
    raise typer.Exit


# The configuration file


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """What the file says becomes the defaults of the options."""
    if path is not None:
        names = {
            flag.removeprefix("--"): str(parameter.name)
            for parameter in context.command.params
            for flag in parameter.opts
            if flag.startswith("--")
        }
        context.default_map = dict(context.default_map or {})
        for option, value, where in _settings_of(_load(path), path):
            if option not in names:
                raise typer.BadParameter(f"{where} is no option of `farandole run`")
            context.default_map[names[option]] = value
    return path


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from error
    if path.suffix == ".toml":
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise typer.BadParameter(f"{path} is no TOML: {error}") from error
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError as error:
        raise typer.BadParameter(
            f"{path} is read as YAML, which needs the package PyYAML (`pip install pyyaml`); "
            "a file that ends in .toml needs nothing"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"{path} is no YAML: {error}") from error


def _settings_of(config: Any, path: Path) -> list[tuple[str, Any, str]]:
    """An option without its dashes, its value, and where the file says so."""
    if config is None:  # an empty file
        return []
    if not isinstance(config, dict):
        raise typer.BadParameter(f"{path} is no table of names and values")
    found = []
    for name, value in config.items():
        if name in _SECTIONS and isinstance(value, dict):
            for inner, setting in value.items():
                option, setting = _of_section(name, str(inner), setting)
                found.append((option, setting, f"{path}: {name}.{inner}"))
        elif name == "controller":
            found.append((str(value).lower(), True, f"{path}: controller {value}"))
        else:
            found.append((str(name).replace("_", "-"), value, f"{path}: {name}"))
    return [(option, value, where) for option, value, where in found if value is not None]


def _of_section(section: str, name: str, value: Any) -> tuple[str, Any]:
    if name == "enabled" and section == "autotune":
        return "autotune", value
    if name == "enabled" and section == "stall_check":
        return "no-stall-check", not value
    return _SECTIONS[section] + name.replace("_", "-"), value


# Environment variables


def horovod_settings(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Our settings and their values for Horovod's variables, by the names of these."""
    found = {}
    for name, (setting, translate) in _VARIABLES.items():
        if value := environment.get(name):
            try:
                translated = translate(value)
            except ValueError as error:
                raise typer.BadParameter(f"{name} is {value!r}, which is no number") from error
            if translated is not None:
                found[name] = (setting, translated)
    return found


def translate_variables(environment: dict[str, str], verbose: bool) -> None:
    """Adds to the ranks' `environment` what Horovod's variables say and ours do not."""
    ours = set(environment) | {name for name, value in os.environ.items() if value}
    said = []
    for name, (setting, value) in horovod_settings(os.environ).items():
        if setting not in ours:
            environment[setting] = value
            said.append(f"{name} as {setting}={value}")
    if said and verbose:
        print(f"farandole: taking {', '.join(said)}", file=sys.stderr)


def timeline_file(name: str | None) -> str | None:
    """Of what Horovod takes for the file of a timeline; DYNAMIC is one that start_timeline() will
    name."""
    return None if name == "DYNAMIC" else name


def _milliseconds(value: str) -> str:
    return repr(float(value) / 1000)


def _flag(value: str) -> str | None:
    return "1" if value.lower() not in ("0", "false") else None


def _disabled(value: str) -> str | None:
    return "0" if _flag(value) else None


def _log_level(value: str) -> str | None:
    return LOG_LEVELS.get(value.lower())


# A later one has the last word.
_VARIABLES: dict[str, tuple[str, Callable[[str], str | None]]] = {
    "HOROVOD_FUSION_THRESHOLD": ("FARANDOLE_FUSION_THRESHOLD", str),
    "HOROVOD_CYCLE_TIME": ("FARANDOLE_CYCLE_TIME", _milliseconds),
    "HOROVOD_CACHE_CAPACITY": ("FARANDOLE_CACHE_CAPACITY", str),
    "HOROVOD_TIMELINE": ("FARANDOLE_TIMELINE", timeline_file),
    "HOROVOD_AUTOTUNE": ("FARANDOLE_AUTOTUNE", _flag),
    "HOROVOD_AUTOTUNE_LOG": ("FARANDOLE_AUTOTUNE_LOG", str),
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": ("FARANDOLE_AUTOTUNE_WARMUP_SAMPLES", str),
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": ("FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE", str),
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": ("FARANDOLE_AUTOTUNE_MAX_SAMPLES", str),
    "HOROVOD_LOG_LEVEL": ("FARANDOLE_LOG", _log_level),
    "HOROVOD_START_TIMEOUT": ("FARANDOLE_START_TIMEOUT", str),
    "HOROVOD_STALL_CHECK_TIME_SECONDS": ("FARANDOLE_STALL_WARNING", str),
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": ("FARANDOLE_STALL_SHUTDOWN", str),
    "HOROVOD_STALL_CHECK_DISABLE": ("FARANDOLE_STALL_WARNING", _disabled),
}
