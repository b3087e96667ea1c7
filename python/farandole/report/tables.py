# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One table in three forms: for the terminal, as JSON, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

Row = Mapping[str, str]
FILE_WIDTH = 120  # columns, where no terminal says how many it has


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
    """To the terminal, as wide as it is; cells of the `wrapped` columns take several lines where
    they must. `styles` colours cells by their text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in wrapped)
    for row in rows:
        cells = [row[column] for column in columns]
        table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in cells))
    console.print(table)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
