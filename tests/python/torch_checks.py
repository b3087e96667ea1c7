# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the functions of test modules whose names start with check_ on real ranks.

A job takes seconds to start, most of them for PyTorch, so the chosen checks of a family of modules
share one job per number of ranks; tests/conftest.py has one process run a family's tests. Each rank
writes one line per check: its outcome. A rank in which a check fails ends at once, so that the
others fail too instead of waiting; checks that came after it have no outcome.
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
TEST = "test_on_ranks"  # in each of the modules: assert_passed() of a check on some ranks
# Modules that leave each other alone in a process. The last of a family may change farandole.
FAMILIES = (
    ("test_torch_tensors", "test_torch_functions", "test_torch_state", "test_torch_coordination"),
    ("test_torch_sync_batch_norm", "test_torch_gradients", "test_torch_optimizer"),
    ("test_horovod_parity", "test_torch_recipes", "test_torch_apart"),
    ("test_torch_moved_gradients", "test_autotune"),
)
# By number of ranks, the modules of which tests are to run in this process.
chosen: dict[int, set[str]] = {}
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


def family_of(module: str) -> int | None:
    """Its index; `module`: a name without folder and suffix."""
    return next((i for i, family in enumerate(FAMILIES) if module in family), None)


@functools.cache
def outcomes(family: int, rank_count: int) -> dict[tuple[str, str], list[str]]:
    """By module and check: what every rank that got to it says, "ok" or a traceback. "job", "":
    what the job said."""
    modules = [name for name in FAMILIES[family] if name in chosen[rank_count]]
    paths = [Path(__file__).with_name(name + ".py") for name in modules]
    with tempfile.TemporaryDirectory() as folder:
        job = launch(rank_count, __file__, folder, *paths)
        said: dict[tuple[str, str], list[str]] = {}
        for rank in range(rank_count):
            path = Path(folder) / f"{rank}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else ():
                module, check, outcome = json.loads(line)
                said.setdefault((module, check), []).append(outcome)
        said["job", ""] = [f"status {job.returncode}\n{job.stdout}\n{job.stderr}"]
        return said


def assert_passed(module: str, rank_count: int, check: str) -> None:
    name = Path(module).stem
    family = family_of(name)
    assert family is not None, f"{name} is not among FAMILIES"
    said = outcomes(family, rank_count)
    text = "\n".join(said.get((name, check), ["no rank got to this check"]) + said["job", ""])
    assert said.get((name, check)) == ["ok"] * rank_count, text


def _outcome(check: Callable[[], None]) -> str:
    try:
        check()
    except BaseException:
        return traceback.format_exc()
    return "ok"


def main(folder: str, *modules: str) -> None:
    import farandole.torch as hvd

    hvd.init()
    with (Path(folder) / f"{hvd.rank()}.jsonl").open("w", buffering=1) as report:
        for module in modules:
            namespace = runpy.run_path(module)
            for check in checks_of(namespace):
                outcome = _outcome(namespace[check])
                print(json.dumps([Path(module).stem, check, outcome]), file=report)
                if outcome != "ok":
                    sys.exit(f"{check} of {module} failed")
            hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
