# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole algorithms`, `settings`, `doctor` and the help say what is so, to people and to
programs, fast, and never show a secret.

Method: the commands in this process through typer's runner, compared with the native module's own
tables; a machine that lacks something is made by patching a probe.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farandole import _native
from farandole.cli import joined
from farandole.cli.app import app
from farandole.doctor import findings
from farandole.doctor.libraries import find_library_file
from farandole.report.tables import as_markdown

SECRET = "5ec2e7" * 10


def output_of(*arguments: str, status: int = 0, **environment: str) -> str:
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize("command", ["algorithms", "settings"])
def test_json_is_the_native_table(command: str) -> None:
    assert json.loads(output_of(command, "--json")) == getattr(_native, command)()


def test_markdown_and_table_have_every_row() -> None:
    names = [row["name"] for row in _native.settings()]
    lines = output_of("settings", "--markdown").splitlines()
    assert len(lines) == 2 + len(names)
    assert {line.count("|") - line.count("\\|") for line in lines} == {lines[0].count("|")}
    assert all(name in line for name, line in zip(names, lines[2:], strict=True))
    assert all(name in output_of("settings") for name in names)


def test_algorithms_have_every_row() -> None:
    rows = _native.algorithms()
    lines = output_of("algorithms", "--markdown").splitlines()
    for row in rows:
        assert any(line.startswith(f"| {row['name']} | {row['cost']} |") for line in lines)
    table = output_of("algorithms")
    assert all(row["name"] in table for row in rows)
    sources = {tag for row in rows for tag in re.findall(r"\[\w+\]", row["source"])}
    assert all(any(line.startswith(f"- {tag}: ") for line in lines) for tag in sources)


def test_the_document_of_algorithms_is_what_the_command_prints() -> None:
    document = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"
    assert document.read_text(encoding="utf-8") == output_of("algorithms", "--markdown")


def test_the_document_of_starters_is_what_the_command_prints() -> None:
    document = Path(__file__).resolve().parents[2] / "docs" / "starters.md"
    assert document.read_text(encoding="utf-8") == output_of("settings", "--starters", "--markdown")
    rows = json.loads(output_of("settings", "--starters", "--json"))
    assert [row["starter"] for row in rows] == [row["name"] for row in _native.starters()]
    assert all(row["starter"] in output_of("settings", "--starters") for row in rows)


def test_markdown_does_not_depend_on_this_environment() -> None:
    plain = output_of("settings", "--markdown")
    assert output_of("settings", "--markdown", FARANDOLE_TIMEOUT="77") == plain


def test_two_forms_at_once_are_refused() -> None:
    assert "not both" in output_of("algorithms", "--json", "--markdown", status=2)


def test_markdown_escapes() -> None:
    assert as_markdown([{"a": "x|y\nz"}], ["a"]).splitlines()[-1] == "| x\\|y z |"


@pytest.mark.parametrize(
    "command", [["settings"], ["settings", "--json"], ["doctor"], ["doctor", "--json"]]
)
def test_secret_is_never_shown(command: list[str]) -> None:
    text = output_of(*command, FARANDOLE_SECRET=SECRET)
    assert SECRET not in text
    assert "(set)" in text


def test_doctor_finds_what_the_library_needs() -> None:
    rows = json.loads(output_of("doctor", "--json"))
    states = {row["name"]: row["state"] for row in rows}
    for name in ("memfd", "/proc/PID/fd", "abstract sockets", "pidfd", "loopback", "numpy"):
        assert states[name] == "ok"
    assert {row["state"] for row in rows} <= {"ok", "absent"}


def test_doctor_shows_settings_in_force() -> None:
    rows = json.loads(output_of("doctor", "--json", FARANDOLE_TIMEOUT="7"))
    setting = [row for row in rows if row["area"] == "setting" and "TIMEOUT" in row["name"]]
    assert [(row["name"], row["value"]) for row in setting] == [("FARANDOLE_TIMEOUT", "7")]


def test_doctor_fails_when_a_mechanism_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("not permitted here")

    monkeypatch.setattr(findings, "_probe_foreign_fd", refuse)
    text = output_of("doctor", status=1)
    assert "not permitted here" in text
    assert "needs what is missing here: /proc/PID/fd" in text


def test_doctor_tells_needed_from_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", no_package)
    states = {finding.name: finding.state for finding in findings.packages()}
    assert states["numpy"] == "missing"
    assert states["torch"] == "absent"


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "none: a job of one rank"),
        ({"FARANDOLE_RANK": "0", "RANK": "0"}, "farandole run"),
        ({"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}, "torchrun"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK and WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "Open MPI"),
        ({"PMI_RANK": "1"}, "MPICH"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}, "Slurm"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "none: a job of one rank"),
        ({"PMIX_RANK": "0"}, "PMIx"),
    ],
)
def test_launcher_is_told_from_the_environment(variables: dict[str, str], name: str) -> None:
    assert findings.started_by(variables) == name


# Goal: the commands know their rank by whoever started them, as farandole.init() does. Method: the
# names that starters document, beside what another one has left behind.
@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, 3),
        ({"HOROVOD_RANK": "3", "HOROVOD_SIZE": "4"}, 3),
        ({"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}, 3),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "4"}, 3),
        ({"PALS_RANKID": "3", "PMI_RANK": "1", "PMI_SIZE": "4"}, 3),
        ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "PMI_RANK": "1"}, 3),
        ({"ALPS_APP_PE": "3"}, 3),
        ({"RANK": "1", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, 3),
        ({"PMI_RANK": "²", "PMI_SIZE": "4"}, None),
    ],
)
def test_commands_know_their_rank_by_the_starter(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int | None
) -> None:
    monkeypatch.setattr(os, "environ", variables)
    assert joined.rank_told() == rank


def test_libraries_are_found_by_name() -> None:
    assert find_library_file(["libc.so.6"])
    assert find_library_file(["libsurely-not-there.so.1"]) is None


def test_help_needs_neither_framework_nor_renderer() -> None:
    script = (
        "import sys\n"
        "from farandole.cli.app import app\n"
        "assert not {'torch', 'jax', 'rich', 'farandole.torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_help_lists_every_command() -> None:
    text = output_of("--help")
    names = "run topo probe bench algorithms explain verify settings doctor"
    for name in names.split():
        assert f"\n  {name} " in text
        assert "Usage" in output_of(name, "--help")


def test_version_is_the_native_modules() -> None:
    assert output_of("--version") == f"farandole {_native.VERSION}\n"


def test_errors_of_the_library_are_one_line() -> None:
    command = [sys.executable, "-m", "farandole.cli", "explain", "allreduce", "--algorithm", "no"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith('farandole: no algorithm "no" for allreduce')
    assert done.stderr.count("\n") == 1
