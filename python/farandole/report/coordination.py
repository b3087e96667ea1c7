# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The cost of coordination by design and number of ranks, as a table and as plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DESIGNS = ("flat", "tree", "cached")


@dataclass(frozen=True)
class Cycle:
    """What agreeing on one step's tensors cost, simulated."""

    design: str
    ranks: int
    step: str  # "first": every tensor is new; "later": none is
    messages: int
    bytes: int
    message_bytes_max: int
    received_by_rank_0: int
    rounds: int
    seconds: float


def as_rows(cycles: Sequence[Cycle]) -> list[dict[str, str]]:
    return [
        {
            "ranks": f"{cycle.ranks:,}",
            "step": cycle.step,
            "design": cycle.design,
            "simulated time": f"{cycle.seconds * 1e6:,.1f} us",
            "rounds": f"{cycle.rounds}",
            "to rank 0": f"{cycle.received_by_rank_0:,}",
            "messages": f"{cycle.messages:,}",
            "largest": f"{cycle.message_bytes_max:,} B",
            "all bytes": f"{cycle.bytes:,}",
        }
        for cycle in cycles
    ]


def as_html(cycles: Sequence[Cycle], tensors: int) -> str:
    """One page that needs nothing else: time, and messages that reach rank 0, by ranks."""
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=1, cols=2, subplot_titles=("simulated time of a cycle, us", "messages to rank 0")
    )
    for design in DESIGNS:
        for step, dash in (("first", "dot"), ("later", "solid")):
            chosen = [c for c in cycles if (c.design, c.step) == (design, step)]
            for column, values in (
                (1, [c.seconds * 1e6 for c in chosen]),
                (2, [float(c.received_by_rank_0) for c in chosen]),
            ):
                figure.add_trace(
                    graph_objects.Scatter(
                        x=[c.ranks for c in chosen],
                        y=values,
                        name=f"{design}, {step} step",
                        line={"dash": dash, "color": f"hsl({DESIGNS.index(design) * 120},60%,45%)"},
                        showlegend=column == 1,
                    ),
                    row=1,
                    col=column,
                )
    figure.update_xaxes(type="log", title="ranks")
    figure.update_yaxes(type="log")
    figure.update_layout(title=f"Agreeing on {tensors} tensors (simulated)")
    return str(figure.to_html(include_plotlyjs=True))
