# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: type checkers and help() know what farandole's functions take and give.

Method: mypy, as a user runs it, on a file with right and wrong calls; inspect and help() on every
function that is a method of the communicator of all ranks.
"""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import site
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import farandole
from farandole import Communicator, _native
from farandole.core.calls import ReduceOp

PROGRAM = """
import numpy as np
import farandole

array = np.ones(3, np.float32)
reveal_type(farandole.allreduce(array, op="max"))  # 1 ndarray
reveal_type(farandole.allreduce(bytearray(3), array))  # 2 ndarray
reveal_type(farandole.allreduce(array, out=bytearray(12)))  # 3 bytearray
reveal_type(farandole.broadcast(np.float64(1), root=1))  # 4 float64
reveal_type(farandole.gather(array))  # 5 None
reveal_type(farandole.allreduce_async(array))  # 6 Request
farandole.allreduce(array, op="smu")  # wrong
farandole.reduce_async(array, op="smu")  # wrong
farandole.world().reducescatter(array, op="smu")  # wrong
farandole.broadcast(array, root="0")  # wrong
farandole.alltoall(array, splits=[1, 2])  # wrong
farandole.allgather()  # wrong
farandole.send(array)  # wrong
farandole.barrier("name")  # wrong
farandole.allreduce(array, algorithm="hierarchical:layers=4/2", name="gradient")
farandole.scatter(None, array, root=1, counts=3)
"""


def test_mypy_finds_wrong_calls(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    package = str(Path(farandole.__file__).parents[1])
    options = ["--strict", "--config-file=", "--explicit-package-bases", "--follow-imports=silent"]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", tmp_path / "cache", path],
        env=os.environ | ({} if package in site.getsitepackages() else {"MYPYPATH": package}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    lines = PROGRAM.splitlines()
    errors = {int(line) for line in re.findall(r"program\.py:(\d+): error", found.stdout)}
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert errors == wrong, found.stdout + found.stderr
    revealed = dict(re.findall(r"program\.py:(\d+): note: Revealed type is (.*)", found.stdout))
    for number, line in enumerate(lines, 1):
        if match := re.search(r"# \d (\w+)$", line):
            assert match[1] in revealed[str(number)], found.stdout


def test_the_literal_has_every_reduction() -> None:
    assert list(get_args(ReduceOp)) == _native.REDUCTIONS


METHODS = [name for name in farandole.__all__ if inspect.isfunction(getattr(Communicator, name, 0))]


@pytest.mark.parametrize("name", METHODS)
def test_help_tells_signature_and_text(name: str) -> None:
    function, method = getattr(farandole, name), getattr(Communicator, name)
    mine = list(inspect.signature(function).parameters.values())
    assert mine == list(inspect.signature(method).parameters.values())[1:]
    text = pydoc.plain(pydoc.render_doc(function))
    for parameter in mine:
        assert re.search(rf"\b{parameter.name}\b", text.splitlines()[2]), text
    assert inspect.cleandoc(method.__doc__).splitlines()[0] in text
    for word in (
        "first axis",
        "release the GIL",
        "InvalidArgumentError",
        "MismatchError",
        "thread",
    ):
        assert word in text
    assert function.__module__ == "farandole"


def test_all_methods_that_work_together_are_functions() -> None:
    assert len(METHODS) == 29
    assert {"allreduce", "batch_async", "group", "create_group", "barrier", "sendrecv"} <= set(
        METHODS
    )
