# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole doctor`: what this machine offers, and what is missing for which feature."""

from __future__ import annotations

import typer

from farandole.cli.arguments import Json, write_json


def doctor(json: Json = None) -> None:
    """Check what this machine has and what it lacks.

    Says what each thing is for, and what this version does not use. Exits with 1 if something
    that Farandole needs is missing.
    """
    from farandole.doctor.findings import all_findings
    from farandole.report.tables import print_table

    findings = all_findings()
    rows = [finding.row() for finding in findings]
    only_json = write_json(json, rows)
    if not only_json:
        styles = {"ok": "green", "absent": "dim", "missing": "bold red"}
        print_table(rows, ("area", "name", "state", "value", "note"), ("value", "note"), styles)
    missing = [finding.name for finding in findings if finding.state == "missing"]
    if missing:
        if not only_json:
            print(f"Farandole needs what is missing here: {', '.join(missing)}.")
        raise typer.Exit(1)
    if not only_json:
        print("Everything that Farandole needs is here.")
