# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a shared library is: in the system, or in a package of this Python."""

from __future__ import annotations

import ctypes.util
import sys
from collections.abc import Sequence
from pathlib import Path


def find_library_file(names: Sequence[str]) -> str | None:
    """The first of the names that exists: its path, or its name where only the loader knows."""
    for name in names:
        for folder in _package_folders():
            for path in sorted(folder.glob(name)):
                return str(path)
        stem = name.split(".so")[0].removeprefix("lib")
        found = ctypes.util.find_library(stem)
        if found == name:
            return found
    return None


def _package_folders() -> list[Path]:
    """Folders into which Python packages put shared libraries."""
    folders = [Path(sys.prefix) / "lib"]
    for entry in sys.path:
        folders += sorted(Path(entry).glob("nvidia/*/lib")) if entry else []
    return folders
