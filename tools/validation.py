# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/validation.md from what bench/validation/ measured, kept in docs/validation/*.json.

    python tools/validation.py [--from network.json abci.json simgrid.json ...]

`--from` first adds the rows of these files, which network.py, abci.py and simgrid.py wrote with
--json, in place of what is kept under these names; several of network.py's are joined.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from farandole.report.tables import as_markdown

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "validation"))
import network

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
FOLDER = DOCUMENT.with_suffix("")
NETWORK_KEYS = (
    *("ranks", "megabits", "collective", "bytes", "choice"),
    *("predicted_seconds", "measured_seconds", "fastest", "fastest_seconds"),
)

Row = Mapping[str, Any]

INTRODUCTION = """\
<!-- Copyright The Farandole Authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
# How right it is

Made by `python tools/validation.py`; do not edit.

What the planner and the simulator said, beside what happened or what others say. Nothing is left
out that missed. Closed forms and simulation agree to 1e-9 without contention, in
`tests/agreement`; the exception, and the approximations, are in
[design/0010-cost-model.md](design/0010-cost-model.md).
"""

NETWORK = """\
## A network that was probed

```sh
python bench/validation/network.py
```

Every rank has a network name space of its own, joined by a bridge; `tc` shapes the links. There
`farandole probe` writes a machine file, from which the planner chooses and predicts. Then all
candidates are measured in turns. A choice is right if it takes at most {slack:.0%} longer than the
fastest, measured. All hosts of this network are processes of one machine of two cores: below some
10 KiB the time is mostly theirs, and it varies from one start to the next by a sixth.
"""

ABCI = """\
## Published measurements

```sh
python bench/validation/abci.py
```

Ring and hierarchical allreduce of 128 MiB on ABCI, as [Ueno19] measured it on 128 GPUs: five
parameters are fitted to these times, and larger scales predicted with them.
"""

SIMGRID = """\
## SimGrid

```sh
python bench/validation/simgrid.py
```

Simulated by SimGrid, whose correction factors are set to 1, and by Farandole, on two levels: hosts
of several ranks, joined by a switch. Both are simulations; a ratio is ours over SimGrid's.
"""


def network_section(rows: Sequence[Row]) -> str:
    parts = [NETWORK.format(slack=network.AS_FAST - 1)]
    for case in dict.fromkeys((row["ranks"], row["megabits"], row["collective"]) for row in rows):
        ranks, megabits, collective = case
        of_case = [
            row for row in rows if (row["ranks"], row["megabits"], row["collective"]) == case
        ]
        shown = [network.shown_row(dict(row)) for row in of_case]
        right = sum(network.is_right(dict(row)) for row in of_case)
        parts += [
            f"### {collective}, {ranks} ranks, {megabits:,} Mbit/s\n",
            f"{right} of {len(of_case)} choices are right.\n",
            as_markdown(shown, list(shown[0])) + "\n",
        ]
    return "\n".join(parts)


def abci_section(tables: Mapping[str, Sequence[Row]]) -> str:
    parts = [ABCI]
    for title, rows in tables.items():
        parts += [f"{title}:\n", as_markdown(rows, list(rows[0])) + "\n"]
    return "\n".join(parts)


def simgrid_section(rows: Sequence[Row]) -> str:
    shown = [
        {
            "collective": f"{row['collective']}, {row['algorithm']}",
            "ranks": str(row["ranks"]),
            "bytes": f"{row['bytes']:,}",
            "SimGrid": f"{row['simgrid_seconds'] * 1e6:,.1f} us",
            "ours": f"{row['seconds'] * 1e6:,.1f} us",
            "ratio": f"{row['ratio']:.4f}",
        }
        for row in rows
    ]
    return "\n".join([SIMGRID, as_markdown(shown, list(shown[0])), ""])


SECTIONS: dict[str, Callable[[Any], str]] = {
    "network": network_section,
    "abci": abci_section,
    "simgrid": simgrid_section,
}


def page(kept: Mapping[str, Any]) -> str:
    """The document; `kept`: what the scripts of these names wrote."""
    return "\n".join([INTRODUCTION, *(SECTIONS[name](kept[name]) for name in SECTIONS)])


def load() -> dict[str, Any]:
    return {
        name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in SECTIONS
    }


def name_of(results: Any) -> str:
    """Which script wrote them."""
    if isinstance(results, dict):
        return "abci"
    return "simgrid" if "simgrid_seconds" in results[0] else "network"


def keep(files: Sequence[Path]) -> None:
    kept: dict[str, Any] = {}
    for path in files:
        results = json.loads(path.read_text(encoding="utf-8"))
        name = name_of(results)
        if name == "network":
            results = [{key: row[key] for key in NETWORK_KEYS} for row in results]
            results = kept.get(name, []) + results
        kept[name] = results
    FOLDER.mkdir(exist_ok=True)
    for name, results in kept.items():
        text = json.dumps(results, indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes docs/validation.md.")
    parser.add_argument("--from", dest="files", nargs="+", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    if arguments.files:
        keep(arguments.files)
    DOCUMENT.write_text(page(load()), encoding="utf-8")


if __name__ == "__main__":
    main()
