# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole algorithms` and `farandole settings`: what there is to choose from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from farandole.report.tables import Row, as_json, as_markdown, print_table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]

ALGORITHM_COLUMNS = ("collective", "name", "summary", "cost", "source")
SETTING_COLUMNS = ("name", "type", "default", "value", "help")
# The table goes into documents, which do not depend on who makes them.
SETTING_COLUMNS_OF_DOCUMENTS = ("name", "type", "default", "help")
SECRET_SETTINGS = ("FARANDOLE_SECRET",)


def algorithms(json: AsJson = False, markdown: AsMarkdown = False) -> None:
    """List the algorithms of every collective.

    In the costs p is the number of ranks, n the message's bytes, a the time to start a message
    and b the time per byte.
    """
    from farandole import _native

    _show(_native.algorithms(), ALGORITHM_COLUMNS, ALGORITHM_COLUMNS, json, markdown)


def settings(json: AsJson = False, markdown: AsMarkdown = False) -> None:
    """List the environment variables and their values here."""
    _show(visible_settings(), SETTING_COLUMNS, SETTING_COLUMNS_OF_DOCUMENTS, json, markdown)


def visible_settings() -> list[dict[str, str]]:
    """Every setting; what is secret shows only that it is set."""
    from farandole import _native

    rows = _native.settings()
    for row in rows:
        if row["name"] in SECRET_SETTINGS and os.environ.get(row["name"]):
            row["value"] = "(set)"
    return rows


def _show(
    rows: Sequence[Row],
    columns: Sequence[str],
    markdown_columns: Sequence[str],
    json: bool,
    markdown: bool,
) -> None:
    if json and markdown:
        raise typer.BadParameter("give --json or --markdown, not both")
    if json:
        print(as_json(rows))
    elif markdown:
        print(as_markdown(rows, markdown_columns))
    else:
        print_table(rows, columns, wrapped=("summary", "cost", "source", "value", "help"))
