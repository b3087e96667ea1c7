# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps and scaling curves, as tables and plots. All of it is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.planning.scaling import Point, Step, Training
from farandole.report.page import colour, page
from farandole.report.units import seconds_text

BASIS = (
    "Simulated: the step from gradients, cycles and batches, each cycle's agreement by the "
    "controllers of all ranks over 2 us and 10 GB/s; each allreduce takes what the planner's "
    "closed forms say."
)
MODES = ("weak", "strong")
_DASHES = ("solid", "dash", "dot", "dashdot")  # curves may lie on one another


def step_row(step: Step) -> dict[str, str]:
    return {
        "simulated step": seconds_text(step.seconds),
        "compute": seconds_text(step.compute_seconds),
        "exposed": seconds_text(step.exposed_seconds),
        "allreduces": seconds_text(step.communication_seconds),
        "control": seconds_text(step.control_seconds),
        "cycles": f"{step.cycles:,}",
        "batches": f"{step.batches:,}",
        "samples/s": f"{step.samples_per_second:,.0f}",
        "efficiency": f"{step.efficiency:.1%}",
    }


def scaling_rows(points: Sequence[Point]) -> list[dict[str, str]]:
    shown = ("simulated step", "exposed", "control", "batches", "samples/s", "efficiency")
    rows = []
    for point in sorted(points, key=lambda point: MODES.index(point.mode)):
        row = step_row(point.step)
        rows.append(
            {
                "scaling": point.mode,
                "ranks": f"{point.step.ranks:,}",
                "variant": point.variant,
                **{column: row[column] for column in shown},
            }
        )
    return rows


def scaling_html(
    points: Sequence[Point], training: Training, global_batch: float, title: str
) -> str:
    """Efficiency and exposed time, weak scaling beside strong scaling."""
    from plotly.subplots import make_subplots

    names = list(dict.fromkeys(point.variant for point in points))
    titles = [
        f"weak: {training.batch:g} samples per rank",
        f"strong: {global_batch:g} samples of all ranks",
    ]
    figure = make_subplots(
        rows=2, cols=2, subplot_titles=titles, shared_xaxes="columns", vertical_spacing=0.07
    )
    for column, mode in enumerate(MODES, 1):
        for index, name in enumerate(names):
            steps = [p.step for p in points if (p.mode, p.variant) == (mode, name)]
            plots = [step.efficiency * 100 for step in steps], [s.exposed_seconds for s in steps]
            for row, values in enumerate(plots, 1):
                figure.add_scatter(
                    x=[step.ranks for step in steps],
                    y=[value if row == 1 else value * 1e3 for value in values],
                    name=name,
                    legendgroup=name,
                    mode="lines+markers",
                    line={"color": colour(index), "dash": _DASHES[index % len(_DASHES)]},
                    showlegend=(row, column) == (1, 1),
                    row=row,
                    col=column,
                )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_xaxes(title="ranks", row=2)
    figure.update_yaxes(rangemode="tozero", row=1)
    figure.update_yaxes(title="efficiency, %", row=1, col=1)
    figure.update_yaxes(title="exposed communication, ms", row=2, col=1)
    figure.update_layout(
        height=820, margin={"t": 60}, template="plotly_white", hovermode="x unified"
    )
    notes = [
        f"{training.model} in float32, {training.device_tflops:g} TFLOP/s reached by each device, "
        f"fusion of up to {training.fusion_threshold_bytes / 2**20:g} MiB, cycles of "
        f"{training.cycle_seconds * 1e3:g} ms. The first variant overlaps communication with the "
        "backward pass and agrees by the cache; each other one changes one thing: nothing travels "
        "before the backward pass has ended, a tree instead of the cache, rank 0 alone, explicit "
        "groups of gradients.",
        BASIS,
    ]
    return page(title, notes, [figure])
