# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One table in three forms: for the terminal, as JSON, as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, str]
_FILE_WIDTH = 100_000  # columns where no terminal has fewer: nothing is folded, grep finds all


class _WithoutPadding:
    """Standard output, where no line ends with spaces."""

    def write(self, text: str) -> int:
        lines = (line.rstrip(" ") for line in text.split("\n"))
        return sys.stdout.write("\n".join(lines))

    def flush(self) -> None:
        sys.stdout.flush()


def console_of_stdout() -> Console:
    """As wide as the terminal, or as COLUMNS says; elsewhere a row is a line, however long."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return console
    return Console(width=_FILE_WIDTH, file=_WithoutPadding())  # type: ignore[arg-type]


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps([dict(row) for row in rows], indent=2)


def as_markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    lines = [_markdown_line(columns), _markdown_line(["---"] * len(columns))]
    lines += [_markdown_line([_escaped(row[column]) for column in columns]) for row in rows]
    return "\n".join(lines)


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    wrapped: Collection[str],
    styles: Mapping[str, str] | None = None,
) -> None:
    """Cells of the `wrapped` columns take several lines where the terminal is too narrow. `styles`
    colours cells by their text."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in wrapped)
    for row in rows:
        cells = [row[column].replace("\n", " ") for column in columns]
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in cells))
    console_of_stdout().print(table)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
