# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of a test module whose names start with check_ on real ranks.

A job takes seconds to start, so all checks of a module share one job per number of ranks. Each
rank writes one line per check: its outcome. A rank in which a check fails ends at once, so that
the others fail too instead of waiting; checks that came after it have no outcome.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_SECONDS = 150.0
# One rank is a case of its own; of more, three are neither even nor a power of two.
RANK_COUNTS = [1, 3, pytest.param(4, marks=pytest.mark.full)]


def checks_of(namespace: dict[str, Any]) -> list[str]:
    """Names of the checks among a module's globals, in the order of definition."""
    return [name for name in namespace if name.startswith("check_")]


def launch(rank_count: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """`farandole run` of a command, on one thread per rank and with a deadline."""
    # A shell's background jobs ignore SIGINT, and so would what they start.
    python = ["env", "--default-signal", sys.executable]
    launcher = [*python, "-m", "farandole.cli", "run", "-n", str(rank_count)]
    return subprocess.run(
        [*launcher, "--timeout", str(TIMEOUT_SECONDS), "--", *map(str, command)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS + 20,
        check=False,
    )


@functools.cache
def outcomes(module: str, rank_count: int) -> dict[str, list[str]]:
    """By check: what every rank that got to it says, "ok" or a traceback."""
    with tempfile.TemporaryDirectory() as folder:
        job = launch(rank_count, __file__, module, folder)
        said: dict[str, list[str]] = {}
        for rank in range(rank_count):
            path = Path(folder) / f"{rank}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else ():
                check, outcome = json.loads(line)
                said.setdefault(check, []).append(outcome)
        said["job"] = [f"status {job.returncode}\n{job.stdout}\n{job.stderr}"]
        return said


def assert_passed(module: str, rank_count: int, check: str) -> None:
    said = outcomes(module, rank_count)
    text = "\n".join(said.get(check, ["no rank got to this check"]) + said["job"])
    assert said.get(check) == ["ok"] * rank_count, text


def _outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except BaseException:
        return traceback.format_exc()
    return "ok"


def main(module: str, folder: str) -> None:
    import farandole.torch as hvd

    namespace = runpy.run_path(module)
    hvd.init()
    with (Path(folder) / f"{hvd.rank()}.jsonl").open("w", buffering=1) as report:
        for name in checks_of(namespace):
            outcome = _outcome(namespace[name])
            print(json.dumps([name, outcome]), file=report)
            if outcome != "ok":
                sys.exit(f"{name} failed")
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
