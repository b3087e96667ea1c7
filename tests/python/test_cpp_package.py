# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The C++ and C libraries as somebody else's project sees them, and the Python module as the linker
does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import farandole

ROOT = Path(__file__).resolve().parents[2]
# The first test builds the library where `make cpp` has not.
pytestmark = pytest.mark.timeout(900)


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library is installed, and nothing else."""
    prefix: Path = tmp_path_factory.mktemp("prefix")
    run("cmake", "--preset", "release")
    libraries = "farandole", "farandole_shared"
    run("cmake", "--build", "--preset", "release", "--target", *libraries)
    run("cmake", "--install", "build/release", "--prefix", prefix)
    return prefix


def shared_library(prefix: Path) -> Path:
    (found,) = prefix.rglob("libfarandole.so")
    return found


def on_two_ranks(*command: str | Path) -> str:
    return run(sys.executable, "-m", "farandole.cli", "run", "-n", "2", "-p", *command)


def exported(library: str | Path) -> set[str]:
    table = run("nm", "--dynamic", "--defined-only", library)
    return {line.split()[-1] for line in table.splitlines()}


# Goal: find_package(farandole) gives libraries that work with their installed headers alone.
# Method: install to an empty prefix, build the examples against that, run them on two ranks.
@pytest.mark.parametrize("language", ["cpp", "c"])
def test_installed_library_builds_and_runs_the_example(
    prefix: Path, language: str, tmp_path: Path
) -> None:
    assert not list(prefix.rglob("*.py")), "the package installs no Python"
    source = f"examples/{language}"
    run("cmake", "-S", source, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    lines = on_two_ranks(tmp_path / "allreduce")
    for rank in range(2):
        assert f"rank {rank} of 2: every sum is 3\n" in lines


# Goal: farandole.h is C99 and C++, without a warning, and needs no other header of ours.
@pytest.mark.parametrize("compiler", ["gcc -x c -std=c99", "g++ -x c++ -std=c++11"])
def test_the_c_header_is_plain(prefix: Path, compiler: str) -> None:
    header = prefix / "include/farandole/farandole.h"
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    run(*compiler.split(), *strict, header)
    assert not re.search('^#include "', header.read_text(), re.M)


# Goal: the shared library shows what its header declares, and nothing else.
# Method: the linker's table, for the installed library and the one that the wheel brings.
def test_the_shared_library_exports_its_interface_alone(prefix: Path) -> None:
    package = Path(farandole.__file__).parent
    header = (prefix / "include/farandole/farandole.h").read_text()
    declared = set(re.findall(r"^FARANDOLE_EXPORT [^(]*?(farandole_\w+)\(", header, re.M))
    assert "farandole_communicator_release" in declared
    assert exported(shared_library(prefix)) == declared
    assert exported(package / "libfarandole.so.0") == declared
    assert (package / "include/farandole/farandole.h").read_text() == header


# Goal: a plugin that knows the library by its table alone works. Method: a program in strict C99
# opens it, calls through the table, and closes it.
def test_a_plugin_calls_through_the_table(prefix: Path, tmp_path: Path) -> None:
    program, source = tmp_path / "plugin", ROOT / "tests/python/c_plugin.c"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{prefix / 'include'}"]
    run("gcc", *strict, source, "-o", program, "-ldl")
    lines = on_two_ranks(program, shared_library(prefix))
    for rank in range(2):
        assert f"rank {rank}: 1 4 6\n" in lines


# Goal: the guide's program is right. Method: compile it, as strictly.
def test_the_guide_compiles(prefix: Path, tmp_path: Path) -> None:
    (program,) = re.findall(
        r"^```c\n(.*?)^```", (ROOT / "docs/guides/c.md").read_text(), re.M | re.S
    )
    source = tmp_path / "guide.c"
    source.write_text(program)
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{prefix / 'include'}"]
    run("gcc", *strict, "-fsyntax-only", source)


# Goal: other languages get the right results. Method: ctypes and NumPy, tests/python/ctypes_ranks.
def test_ctypes_agrees_with_numpy(prefix: Path) -> None:
    program = ROOT / "tests/python/ctypes_ranks.py"
    lines = on_two_ranks(program, shared_library(prefix))
    for rank in range(2):
        assert f"rank {rank} of 2: 139 reductions\n" in lines


# Goal: nothing of the module mixes with what other modules bring; see bindings/exports.map. Where
# it had a libstdc++ of its own, its locale facets did with numpy's, and shutdown() crashed.
def test_the_python_module_exports_its_entry_alone() -> None:
    assert exported(str(farandole._native.__file__)) == {"PyInit__native"}
