# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Plain help whose options stand under several headings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from farandole.cli.command import Command


def grouped(panels: Mapping[str, Sequence[str]]) -> type[Command]:
    """A class of commands whose help lists parameters under the headings of `panels`, or under
    their own `rich_help_panel`; the rest as "Arguments" and "Options", which come first."""
    of_parameter = {name: panel for panel, names in panels.items() for name in names}

    class Grouped(Command):
        def format_options(self, ctx: Any, formatter: Any) -> None:
            groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
            for parameter in self.get_params(ctx):
                record = parameter.get_help_record(ctx)
                panel = of_parameter.get(parameter.name or "")
                panel = panel or getattr(parameter, "rich_help_panel", None)
                if panel is None:
                    panel = f"{parameter.param_type_name.capitalize()}s"
                if record is not None:
                    groups.setdefault(panel, []).append(record)
            for panel, records in groups.items():
                if records:
                    with formatter.section(panel):
                        formatter.write_dl(records)

    return Grouped
