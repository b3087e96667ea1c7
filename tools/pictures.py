# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures for documents: SVG that is the same for the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def prepare() -> None:
    """Before anything is drawn."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "farandole", "font.size": 9}


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    pyplot.close(figure)
    # No blanks at ends of lines.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(map(str.rstrip, lines)) + "\n", encoding="utf-8")
