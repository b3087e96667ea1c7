# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Sweeps of hierarchies, and of sizes and numbers of ranks, as tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from farandole.planning.sweeps import Fastest, Hierarchy
from farandole.report.page import colour, page
from farandole.report.units import seconds_text, size_text


def hierarchy_rows(
    found: Sequence[Hierarchy], flat: Hierarchy, source: str, size_bytes: int, top: int
) -> list[dict[str, str]]:
    """The `top` fastest, then the flat ring, found or not. `found` is sorted by time."""
    shown = [(f"{place:,}", one) for place, one in enumerate(found, 1)]
    last = [(place, one) for place, one in shown if one == flat] or [("-", flat)]
    if last[0] in shown[:top]:
        last = []
    rows = []
    for place, one in shown[:top] + last:
        layers = "  ".join(
            f"{size}: {seconds_text(seconds)}"
            for size, seconds in zip(one.layers, one.layer_seconds, strict=True)
        )
        rows.append(
            {
                "place": place,
                "layers": one.name,
                f"{source} time": seconds_text(one.seconds),
                "GB/s": f"{size_bytes / one.seconds / 1e9:.2f}",
                "to flat ring": f"{flat.seconds / one.seconds:.2f}x",
                f"{source} time by layer": layers,
            }
        )
    return rows


def hierarchy_html(found: Sequence[Hierarchy], source: str, title: str) -> str:
    """Stacked bars, fastest first."""
    from plotly import graph_objects

    places = list(range(1, len(found) + 1))
    depth = max(len(one.layers) for one in found)
    figure = graph_objects.Figure()
    for layer in range(depth):
        chosen = [(p, o) for p, o in zip(places, found, strict=True) if layer < len(o.layers)]
        figure.add_bar(
            x=[place for place, _ in chosen],
            y=[one.layer_seconds[layer] * 1e3 for _, one in chosen],
            name=f"layer {layer + 1}",
            marker={"color": colour(layer), "line": {"width": 0}},
            customdata=[
                [one.name, one.layers[layer], seconds_text(one.seconds)] for _, one in chosen
            ],
            hovertemplate="%{customdata[0]}: %{customdata[2]}<br>ring of %{customdata[1]} in layer "
            + f"{layer + 1}: %{{y:.3f}} ms<extra></extra>",
        )
    labels = [one.name for one in found]
    few = len(found) <= _LABELS_MAX
    figure.update_xaxes(
        title="hierarchies, fastest first; the first layer is that of neighbours",
        tickvals=places if few else None,
        ticktext=labels if few else None,
        range=[0.4, min(len(found), _BARS_SHOWN) + 0.6],
        rangeslider={"visible": not few},
    )
    figure.update_yaxes(title=f"{source} time, ms", fixedrange=False)
    figure.update_layout(
        barmode="stack", bargap=0.1, height=620, margin={"t": 50}, template="plotly_white"
    )
    notes = [
        f"{len(found):,} ordered factorizations; every layer is a ring of so many ranks. All times "
        f"are {source}. Drag below the plot to see others, point at a bar to see its layers."
    ]
    return page(title, notes, [figure])


_LABELS_MAX = 40
_BARS_SHOWN = 120


def map_rows(found: Sequence[Fastest]) -> list[dict[str, str]]:
    """A row per number of ranks, with runs of sizes for which one algorithm is the fastest."""
    rows = []
    for ranks, cells in groupby(found, lambda cell: cell.ranks):
        runs = []
        for family, run in groupby(cells, lambda cell: cell.family):
            sizes = [cell.size_bytes for cell in run]
            runs.append(f"{family} from {size_text(sizes[0])}")
        rows.append({"ranks": f"{ranks:,}", "predicted fastest, by bytes": "; ".join(runs)})
    return rows


def map_html(found: Sequence[Fastest], title: str) -> str:
    """Colours for algorithms; the time is shown where one points."""
    figure = map_figure(found)
    notes = [
        "The predicted fastest algorithm by bytes of a call and number of ranks, as the engine "
        "chooses it: where one without layers is at most 1% slower, that one. Point at a cell to "
        "see its options and predicted time."
    ]
    return page(title, notes, [figure])


def map_figure(found: Sequence[Fastest]) -> Any:
    from plotly import graph_objects

    families = sorted({cell.family for cell in found})
    ranks = list(dict.fromkeys(cell.ranks for cell in found))
    sizes = list(dict.fromkeys(cell.size_bytes for cell in found))
    cells = {(cell.ranks, cell.size_bytes): cell for cell in found}
    figure = graph_objects.Figure()
    for index, family in enumerate(families):  # a trace each, for the legend
        table = [[cells[n, size] for size in sizes] for n in ranks]
        figure.add_heatmap(
            x=[size_text(size) for size in sizes],
            y=[f"{n:,}" for n in ranks],
            z=[[1.0 if cell.family == family else None for cell in row] for row in table],
            customdata=[
                [[cell.algorithm, seconds_text(cell.seconds)] for cell in row] for row in table
            ],
            hovertemplate="%{y} ranks, %{x}<br>%{customdata[0]}<br>predicted "
            "%{customdata[1]}<extra></extra>",
            colorscale=[[0, colour(index)], [1, colour(index)]],
            showscale=False,
            xgap=1,
            ygap=1,
        )
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=family,
            marker={"color": colour(index), "size": 14, "symbol": "square"},
        )
    figure.update_xaxes(title="bytes", type="category")
    figure.update_yaxes(title="ranks", type="category")
    figure.update_layout(height=640, margin={"t": 50}, template="plotly_white", showlegend=True)
    return figure
