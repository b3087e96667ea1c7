# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole settings`: the environment variables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from farandole.report.tables import as_json, as_markdown, print_table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]

SETTING_COLUMNS = ("name", "type", "default", "value", "help")
# The table goes into documents, which do not depend on who makes them.
SETTING_COLUMNS_OF_DOCUMENTS = ("name", "type", "default", "help")
SECRET_SETTINGS = ("FARANDOLE_SECRET",)


def settings(json: AsJson = False, markdown: AsMarkdown = False) -> None:
    """List the environment variables and their values here."""
    rows = visible_settings()
    if json and markdown:
        raise typer.BadParameter("give --json or --markdown, not both")
    if json:
        print(as_json(rows))
    elif markdown:
        print(as_markdown(rows, SETTING_COLUMNS_OF_DOCUMENTS))
    else:
        print_table(rows, SETTING_COLUMNS, wrapped=("value", "help"))


def visible_settings() -> list[dict[str, str]]:
    """Every setting; what is secret shows only that it is set."""
    from farandole import _native

    rows = _native.settings()
    for row in rows:
        if row["name"] in SECRET_SETTINGS and os.environ.get(row["name"]):
            row["value"] = "(set)"
    return rows
