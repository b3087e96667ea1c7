# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The C++ library as somebody else's project sees it, and the Python module as the linker does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import farandole

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Goal: find_package(farandole) gives a library that works with its installed headers alone.
# Method: install to an empty prefix, build the example against that, run it on two ranks.
@pytest.mark.timeout(900)  # builds the library where `make cpp` has not
def test_installed_library_builds_and_runs_the_example(tmp_path: Path) -> None:
    prefix, build = tmp_path / "prefix", tmp_path / "example"
    run("cmake", "--preset", "release")
    run("cmake", "--build", "--preset", "release", "--target", "farandole")
    run("cmake", "--install", "build/release", "--prefix", prefix)
    assert not list(prefix.rglob("*.py")), "the C++ package installs no Python"

    run("cmake", "-S", "examples/cpp", "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    lines = run(sys.executable, "-m", "farandole.cli", "run", "-n", "2", "-p", build / "allreduce")
    for rank in range(2):
        assert f"rank {rank} of 2: every sum is 3\n" in lines


# Goal: nothing of the module mixes with what other modules bring; see bindings/exports.map. Where
# it had a libstdc++ of its own, its locale facets did with numpy's, and shutdown() crashed.
def test_the_python_module_exports_its_entry_alone() -> None:
    table = run("nm", "--dynamic", "--defined-only", str(farandole._native.__file__))
    assert [line.split()[-1] for line in table.splitlines()] == ["PyInit__native"]
