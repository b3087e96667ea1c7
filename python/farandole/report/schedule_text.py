# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A schedule for the terminal: what every rank receives in every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from farandole.report.rounds import Drawing, Step

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

DETAILED_RANKS_MAX = 8
_KEEP_STYLE, _REDUCE_STYLE, _LOCAL_STYLE = "cyan", "magenta", "dim"
LEGEND = (
    "2→ out[1]: the message of rank 2 is kept there; with + it is added to what is there, "
    "with +in to the rank's own input."
)


def rounds_table(drawing: Drawing) -> Table:
    """Rounds by ranks; a cell says what the rank receives, from whom."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("round", justify="right")
    for rank in range(drawing.rank_count):
        table.add_column(f"rank {rank}", overflow="fold")
    for index, steps in enumerate(drawing.rounds()):
        cells = [
            Text("\n").join(_cell(step) for step in steps if step.rank == rank)
            for rank in range(drawing.rank_count)
        ]
        table.add_row(str(index + 1), *cells)
    return table


def summary_table(drawing: Drawing) -> Table:
    """One line for rounds that look alike, for more ranks than fit side by side."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("rounds", "messages each", "from → to", "chunks", "what"):
        table.add_column(column)
    first = 0
    rows = [_summary(steps, drawing.rank_count) for steps in drawing.rounds()]
    for index, row in enumerate(rows):
        if index + 1 == len(rows) or rows[index + 1] != row:
            span = f"{first + 1}" if first == index else f"{first + 1} to {index + 1}"
            table.add_row(span, *row)
            first = index + 1
    return table


def _cell(step: Step) -> Text:
    from rich.text import Text

    label = step.label.replace(" ", "")  # so that a narrow cell breaks after the arrow
    if step.sender is None:
        return Text(label, style=_LOCAL_STYLE)
    style = _REDUCE_STYLE if step.reduces else _KEEP_STYLE
    return Text(f"{step.sender}→ {label}", style=style)


def _summary(steps: Sequence[Step], rank_count: int) -> tuple[str, ...]:
    messages = [step for step in steps if step.sender is not None]
    if not messages:
        return ("0", "", "", f"{len(steps)} local copies" if steps else "nothing")
    reducing = sum(step.reduces for step in messages)
    what = {0: "kept", len(messages): "reduced"}.get(
        reducing, f"{reducing} reduced, {len(messages) - reducing} kept"
    )
    chunks = sorted({step.target.count if step.target else 0 for step in messages})
    return (
        str(len(messages)),
        _pattern(messages, rank_count),
        str(chunks[0]) if len(chunks) == 1 else f"{chunks[0]} to {chunks[-1]}",
        what,
    )


def _pattern(messages: Sequence[Step], rank_count: int) -> str:
    """ "r → r + 1" if all messages go the same way round, "r ↔ r ^ 4" for exchanges, else the
    first few one by one."""
    pairs = [(step.sender or 0, step.rank) for step in messages]
    if len(pairs) == rank_count * (rank_count - 1) and len(set(pairs)) == len(pairs):
        return "all → all"
    masks = {sender ^ rank for sender, rank in pairs}
    if len(masks) == 1 and all((rank, sender) in set(pairs) for sender, rank in pairs):
        return f"r ↔ r xor {masks.pop()}"
    shifts = {(rank - sender) % rank_count for sender, rank in pairs}
    if len(shifts) == 1:
        shift = shifts.pop()
        back = shift > rank_count // 2
        return f"r → r - {rank_count - shift}" if back else f"r → r + {shift}"
    shown = ", ".join(f"{sender} → {rank}" for sender, rank in pairs[:4])
    return shown + (", …" if len(pairs) > 4 else "")
