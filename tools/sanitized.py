# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Python with a native module built under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/sanitized.py -m pytest tests/python/test_fuzz.py -m full

Builds the module in build/asan-python first, which takes minutes once, and puts it beside a copy of
the package there; the rest of the line goes to Python. A finding ends the process, and is told in
build/asan-python/report.*, since pytest keeps what is printed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "asan-python"
PACKAGE = BUILD / "python" / "farandole"


def build() -> None:
    """The module, and the package around it."""
    options = ("-DFARANDOLE_PYTHON=ON", "-DFARANDOLE_TESTS=OFF")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    configure = ("cmake", "--preset", "asan", "-B", str(BUILD), *options, python)
    subprocess.run(configure, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(("cmake", "--build", str(BUILD), "--target", "_native"), check=True)
    shutil.rmtree(PACKAGE, ignore_errors=True)
    ignored = shutil.ignore_patterns("_native*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "farandole", PACKAGE, ignore=ignored)
    (module,) = (BUILD / "bindings").glob("_native*.so")
    shutil.copy2(module, PACKAGE)


def library(name: str) -> str:
    """Where the compiler has a library of its own."""
    command = ("g++", f"-print-file-name={name}")
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def environment() -> dict[str, str]:
    """With the libraries first that an interpreter without them cannot load later: the sanitizer's,
    and the one whose exceptions it looks at."""
    # Python never frees some of what it allocates, and is no concern of ours.
    options = f"detect_leaks=0:abort_on_error=1:log_path={BUILD / 'report'}"
    return os.environ | {
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libstdc++.so')}",
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={BUILD / 'report'}",
        "PYTHONPATH": str(PACKAGE.parent),
    }


def main() -> None:
    build()
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
