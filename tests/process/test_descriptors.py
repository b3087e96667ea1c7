# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: too few file descriptors are named at once, with the limit and what is needed; a soft limit
is raised where the hard one allows it.

Method: start ranks from a shell that sets the limit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

RANKS = 4
PROGRAM = """
import os, resource, sys
import numpy as np
import farandole

if len(sys.argv) > 1:  # what a program holds open by itself
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(sys.argv[1]))]
try:
    farandole.init()
    total = farandole.allreduce(np.ones(100_000))[0]
    line = f"sum {total}, {resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 24}"
except farandole.InvalidArgumentError as error:
    line = str(error)
os.write(1, line.encode() + b"\\n")
"""


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(("limit", "held"), [(16, 0), (40, 30)])
def test_too_few_are_named_with_the_limit(
    start: Callable[..., Job],
    write: Callable[[str], Path],
    transport: str,
    limit: int,
    held: int,
) -> None:
    command = f"ulimit -n {limit}; exec {sys.executable} {write(PROGRAM)} {held}"
    job = start("-n", str(RANKS), "--transport", transport, "sh", "-c", command)
    assert job.finish() == 0, job.stderr
    lines = job.stdout.splitlines()
    assert len(lines) == RANKS
    for line in lines:
        assert f"this process may open {limit} files (ulimit -n)" in line
        assert "allowed is a limit of" in line


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_soft_limit_is_raised(
    start: Callable[..., Job], write: Callable[[str], Path], transport: str
) -> None:
    command = f"ulimit -S -n 16; exec {sys.executable} {write(PROGRAM)}"
    job = start("-n", str(RANKS), "--transport", transport, "sh", "-c", command)
    assert job.finish() == 0, job.stderr
    assert job.stdout.splitlines() == ["sum 4.0, True"] * RANKS
