# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole settings`: the environment variables, ours and those of who starts processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from farandole.cli.arguments import Json, write_json
from farandole.doctor.settings import visible_settings
from farandole.report.tables import as_markdown, print_table

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]

SETTING_COLUMNS = ("name", "type", "default", "value", "help")
# The table goes into documents, which do not depend on who makes them.
SETTING_COLUMNS_OF_DOCUMENTS = ("name", "type", "default", "help")
STARTER_COLUMNS = ("starter", "rank", "size", "local rank", "local size", "job", "rank 0")

_MEETINGS = {
    "own": "FARANDOLE_RENDEZVOUS",
    "master": "MASTER_ADDR, MASTER_PORT",
    "host": "by itself on one host, else MASTER_ADDR",
    "none": "an error",
}
_STARTERS_INTRODUCTION = """# Starters

Made by `farandole settings --starters --markdown`; do not edit.

How a process learns that it is one of several, and which: from the first starter of this table
that set both of its variables for rank and size. Of several names with commas between them the
first that is set counts.

Rank 0 is at `FARANDOLE_RENDEZVOUS` (host:port) where that is set, with every starter. On one host
ranks find each other without an address. On several, Slurm's list of nodes or `MASTER_ADDR` says
where rank 0 is; `MASTER_PORT` too is needed where no variable names the job.

A process that has only one of rank and size, or variables of a starter that tells too little,
raises `InvalidArgumentError`, which says what was seen and what to set; it never becomes a job of
one. A process without any of these variables, and Slurm's batch script, is a job of one rank.

"""


def settings(
    json: Json = None,
    markdown: AsMarkdown = False,
    starters: Annotated[
        bool,
        typer.Option("--starters", help="List instead who may start ranks, and by what variables."),
    ] = False,
) -> None:
    """List the environment variables and their values here."""
    if json is not None and markdown:
        raise typer.BadParameter("give --json or --markdown, not both")
    if starters:
        _show_starters(json, markdown)
        return
    rows = visible_settings()
    if write_json(json, rows):
        return
    if markdown:
        print(as_markdown(rows, SETTING_COLUMNS_OF_DOCUMENTS))
    else:
        print_table(rows, SETTING_COLUMNS, wrapped=("value", "help"))


def _show_starters(json: Path | None, markdown: bool) -> None:
    rows = starter_rows()
    if write_json(json, rows):
        return
    if markdown:
        print(_STARTERS_INTRODUCTION + as_markdown(rows, STARTER_COLUMNS))
    else:
        columns = [name for name in STARTER_COLUMNS if "local" not in name and name != "job"]
        print_table(rows, columns, wrapped=columns[1:])


def starter_rows() -> list[dict[str, str]]:
    """What starters tell, by names of variables; the keys are STARTER_COLUMNS."""
    from farandole import _native

    variables = STARTER_COLUMNS[1:5]
    return [
        {
            "starter": row["name"],
            **{column: ", ".join(row[column.replace(" ", "_")]) for column in variables},
            "job": " and ".join(", ".join(names) for names in (row["job"], row["step"]) if names),
            "rank 0": _MEETINGS[row["meeting"]],
        }
        for row in _native.starters()
    ]
