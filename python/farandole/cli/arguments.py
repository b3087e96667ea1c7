# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What several commands read from the command line, and how they write files."""

from __future__ import annotations

from pathlib import Path

import typer

from farandole.cli.sizes import parse_size


def numbers(text: str, option: str) -> list[int]:
    """A list like 2,16,27600."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise typer.BadParameter(f"'{text}' is no list of numbers of 1 or more", param_hint=option)
    return found


def size(text: str, option: str) -> int:
    """Bytes of a size like 128MiB."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def choice(text: str, allowed: tuple[str, ...], option: str) -> str:
    if text not in allowed:
        raise typer.BadParameter(f"'{text}' is none of {', '.join(allowed)}", param_hint=option)
    return text


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from error


def require_plotly() -> None:
    """Before a long computation rather than after it."""
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise typer.BadParameter(
            "plots need plotly: pip install 'farandole[report]'", param_hint="html"
        ) from None
