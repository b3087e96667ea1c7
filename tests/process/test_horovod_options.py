# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: command lines, configuration files and scripts for `horovodrun` work with `farandole run`.

Method: ranks print what has reached them; what Horovod 0.28.1 documents of the same option or
variable is expected. What fails before any rank starts runs inside this process.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PROGRAMS
from launched import Job
from typer.testing import CliRunner

from farandole.cli.app import app

Start = Callable[..., Job]
STAND_IN = f"{sys.executable} {PROGRAMS / 'stand_in_for_ssh.py'}"
PRINT_ENVIRONMENT = "import json, os; os.write(1, (json.dumps(dict(os.environ)) + '\\n').encode())"


def environments(job: Job) -> list[dict[str, str]]:
    assert job.finish() == 0, job.stderr
    rows = [json.loads(line) for line in job.stdout.splitlines()]
    return sorted(rows, key=lambda row: int(row["RANK"]))


def refusal(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["run", *map(str, arguments)], terminal_width=400)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


# Goal: scripts that read their place from Horovod's variables find it.
# Method: two hosts of different size, so that local, cross and own ranks all differ.
def test_variables_of_horovodrun(start: Start) -> None:
    arguments = ("--ssh-command", STAND_IN, "-H", "alpha:2,beta:1", "-np", "3")
    rows = environments(start(*arguments, sys.executable, "-c", PRINT_ENVIRONMENT))
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    places = [tuple(int(row[f"HOROVOD_{name}"]) for name in names) for row in rows]
    assert places == [(0, 3, 0, 2, 0, 2), (1, 3, 1, 2, 0, 1), (2, 3, 0, 1, 1, 2)]


def test_ours_replace_those_of_a_launcher_above(start: Start) -> None:
    above = {"HOROVOD_RANK": "7", "HOROVOD_SIZE": "9", "HOROVOD_CROSS_RANK": "5"}
    (row,) = environments(start("-n", "1", sys.executable, "-c", PRINT_ENVIRONMENT, **above))
    assert (row["HOROVOD_RANK"], row["HOROVOD_SIZE"], row["HOROVOD_CROSS_RANK"]) == ("0", "1", "0")


# Goal: what has no effect is taken, and said.
def test_options_without_an_effect(start: Start) -> None:
    taken = ["--gloo", "--mpi", "--disable-cache", "--no-hierarchical-allreduce", "--tcp"]
    taken += ["--timeline-mark-cycles", "--mpi-args", "-x A", "--num-nccl-streams", "2"]
    job = start("--num-proc", "1", *taken, "true")
    assert job.finish() == 0
    flags = [word for word in taken if word.startswith("--")]
    said = [line.split(" has no effect: ")[0] for line in job.stderr.splitlines()]
    assert sorted(said) == sorted(f"farandole: {flag}" for flag in flags)


def test_output_filename(start: Start, tmp_path: Path) -> None:
    script = "echo o$RANK; echo e$RANK >&2"
    hosts = ("--ssh-command", STAND_IN, "-H", "alpha:6,beta:5")
    for where in ((), hosts):
        folder = tmp_path / f"logs{len(where)}"
        job = start("-np", "11", *where, "--output-filename", folder, "bash", "-c", script)
        assert job.finish() == 0, job.stderr
        assert (job.stdout, job.stderr) == ("", "")
        assert {str(p.relative_to(folder)): p.read_text() for p in folder.glob("*/*")} == {
            f"rank.{rank:02}/{name}": f"{name[3]}{rank}\n"
            for rank in range(11)
            for name in ("stdout", "stderr")
        }


def test_check_build(start: Start) -> None:
    job = start("--check-build")  # without -np, as horovodrun
    assert job.finish() == 0
    has_torch = importlib.util.find_spec("torch") is not None
    assert f"[{'X' if has_torch else ' '}] PyTorch" in job.stdout
    assert "[ ] MPI" in job.stdout


CONFIG = {
    ".yaml": """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 5
autotune:
  enabled: true
  bayes_opt_max_samples: 7
stall_check:
  enabled: false
logging:
  level: INFO
timeline:
  filename: t.json
  mark_cycles: true
""",
    ".toml": """
ranks = 1
controller = "gloo"
[params]
fusion_threshold_mb = 32
cycle_time_ms = 5
[autotune]
enabled = true
bayes_opt_max_samples = 7
[stall_check]
enabled = false
[logging]
level = "INFO"
[timeline]
filename = "t.json"
mark_cycles = true
""",
}


# Goal: the file sets what it says, and an option comes before it.
@pytest.mark.parametrize("suffix", CONFIG)
def test_config_file(start: Start, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"config{suffix}"
    path.write_text(CONFIG[suffix])
    if suffix == ".yaml" and importlib.util.find_spec("yaml") is None:
        assert "needs the package PyYAML" in refusal("--config-file", path, "-np", "1", "true")
        return
    ranks = ("-np", "1") if suffix == ".yaml" else ()
    options = ("--config-file", path, "--cycle-time-ms", "9", *ranks)
    (row,) = environments(start(*options, sys.executable, "-c", PRINT_ENVIRONMENT))
    expected = {
        "FARANDOLE_FUSION_THRESHOLD": "32MiB",
        "FARANDOLE_CYCLE_TIME": "0.009",
        "FARANDOLE_AUTOTUNE": "1",
        "FARANDOLE_AUTOTUNE_MAX_SAMPLES": "7",
        "FARANDOLE_STALL_WARNING": "0",
        "FARANDOLE_LOG": "info",
        "FARANDOLE_TIMELINE": "t.json",
    }
    assert {name: row.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[params]\nfusion = 3", "c.toml: params.fusion is no option of `farandole run`"),
        ("[params]\nfusion_threshold_mb = 'much'", "Invalid value for '--fusion-threshold-mb'"),
        ("speed = 3", "c.toml: speed is no option of `farandole run`"),
        ("controller = 'jsrun'", "c.toml: controller jsrun is no option"),
        ("params", "c.toml is no TOML"),
    ],
)
def test_mistakes_in_config_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    assert message in refusal("--config-file", path, "-np", "1", "true")


def test_other_mistakes() -> None:
    assert "cannot read no/such" in refusal("--config-file", "no/such", "-np", "1", "true")
    assert "--log-level is 'loud', allowed are trace" in refusal(
        "-np", "1", "--log-level", "loud", "true"
    )
    assert "not both" in refusal("-np", "1", "-p", "--output-filename", "x", "true")


def test_help_is_grouped() -> None:
    text = CliRunner().invoke(app, ["run", "--help"]).output
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "Arguments:",
        "Options:",
        "Settings of the library:",
        "Hosts:",
        "Options for users of horovodrun:",
    ]
