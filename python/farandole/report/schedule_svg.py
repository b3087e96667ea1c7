# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A schedule as an SVG picture: a line per rank, time downwards, an arrow per message.

Each round is a band. A message leaves its sender's dot at the top of the band, runs along a track
of its own, and ends at a label on the receiver's line that says where it goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from farandole.report.rounds import Drawing, Step

SVG_RANKS_MAX = 16
SVG_MESSAGES_MAX = 1000

_MARGIN_LEFT, _MARGIN = 84, 24
_TITLE_HEIGHT, _HEAD_HEIGHT, _LEGEND_HEIGHT = 64, 34, 44
_TRACK_GAP, _LABEL_HEIGHT, _LABEL_GAP = 7, 18, 5
_BAND_PADDING = 14
_CHARACTER_WIDTH = 6.7  # of the monospaced 11 px label
_COLUMN_GAP = 48

# Greys and two hues that keep their contrast on a white and on a dark page.
_STYLE = """
.title { font: 600 17px system-ui, sans-serif; fill: #24292f; }
.sub, .round, .legend { font: 12px system-ui, sans-serif; fill: #57606a; }
.rank { font: 600 13px system-ui, sans-serif; fill: #24292f; text-anchor: middle; }
.label { font: 11px ui-monospace, "DejaVu Sans Mono", monospace; text-anchor: middle; }
.page { fill: #ffffff; } .band { fill: #f3f5f7; } .line { stroke: #c4cad1; }
.keep { stroke: #0b6bcb; fill: none; } .reduce { stroke: #b4377e; fill: none; }
.local { stroke: #8b949e; fill: none; stroke-dasharray: 3 2; }
.box { fill: #ffffff; } .keeps { fill: #0b5cad; } .reduces { fill: #9c2a6b; }
.locals { fill: #57606a; }
.dot { fill: #57606a; } .keep-head { fill: #0b6bcb; } .reduce-head { fill: #b4377e; }
@media (prefers-color-scheme: dark) {
  .title, .rank { fill: #e6edf3; } .sub, .round, .legend, .locals { fill: #9aa4ae; }
  .page { fill: #0d1117; } .band { fill: #151b23; } .line { stroke: #3d444d; }
  .box { fill: #0d1117; } .keep { stroke: #4da3ff; } .reduce { stroke: #f07ab8; }
  .keeps { fill: #79bbff; } .reduces { fill: #f59ccb; } .dot { fill: #9aa4ae; }
  .keep-head { fill: #4da3ff; } .reduce-head { fill: #f07ab8; }
}
"""


@dataclass(frozen=True)
class _Arrow:
    step: Step
    text: str
    track: int  # from the top of the band
    slot: int  # of the label, from the top


@dataclass(frozen=True)
class _Band:
    top: float
    track_count: int
    slot_count: int
    arrows: tuple[_Arrow, ...]

    @property
    def height(self) -> float:
        tracks = self.track_count * _TRACK_GAP
        return 2 * _BAND_PADDING + tracks + self.slot_count * (_LABEL_HEIGHT + _LABEL_GAP)

    def track_y(self, track: int) -> float:
        return self.top + _BAND_PADDING + (track + 1) * _TRACK_GAP

    def slot_y(self, slot: int) -> float:
        """Middle of a label."""
        tracks = self.track_count * _TRACK_GAP
        start = self.top + _BAND_PADDING + tracks + _LABEL_GAP
        return start + slot * (_LABEL_HEIGHT + _LABEL_GAP) + _LABEL_HEIGHT / 2


def schedule_svg(drawing: Drawing, title: str, subtitle: str) -> str:
    """The picture as one text. ValueError if it would be too large to read."""
    messages = sum(step.sender is not None for step in drawing.steps)
    if drawing.rank_count > SVG_RANKS_MAX or messages > SVG_MESSAGES_MAX:
        raise ValueError(
            f"a picture of {drawing.rank_count} ranks and {messages} messages cannot be read; "
            f"allowed are {SVG_RANKS_MAX} ranks and {SVG_MESSAGES_MAX} messages"
        )
    picture = _Picture(drawing)
    return picture.svg(title, subtitle)


class _Picture:
    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing
        self._top = _TITLE_HEIGHT + _HEAD_HEIGHT
        self._bands: list[_Band] = []
        top: float = self._top
        for steps in drawing.rounds():
            self._bands.append(_lay_out_band(top, steps))
            top += self._bands[-1].height
        self._bottom = top
        texts = [arrow.text for band in self._bands for arrow in band.arrows]
        self._label_width = round(max(map(len, texts), default=6) * _CHARACTER_WIDTH + 14)
        self._column = max(96, self._label_width + _COLUMN_GAP)
        self._width = _MARGIN_LEFT + drawing.rank_count * self._column + _MARGIN

    def svg(self, title: str, subtitle: str) -> str:
        height = self._bottom + _LEGEND_HEIGHT
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width:g} {height:g}" '
            f'width="{self._width:g}" height="{height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "<defs>",
            *(_arrow_head(kind) for kind in ("keep", "reduce")),
            "</defs>",
            f'<rect class="page" width="{self._width:g}" height="{height:g}"/>',
            f'<text class="title" x="{_MARGIN}" y="32">{escape(title)}</text>',
            f'<text class="sub" x="{_MARGIN}" y="51">{escape(subtitle)}</text>',
            *self._frame(),
        ]
        for band in self._bands:
            parts += [self._path(band, arrow) for arrow in band.arrows if _is_message(arrow)]
            parts += [self._dot(band, rank) for rank in sorted(_senders(band))]
            parts += [self._label(band, arrow) for arrow in band.arrows]
        parts += [*self._legend(), "</svg>"]
        return "\n".join(parts) + "\n"

    def _x(self, rank: int) -> float:
        return _MARGIN_LEFT + (rank + 0.5) * self._column

    def _frame(self) -> list[str]:
        """Bands of the rounds and lines of the ranks."""
        parts = []
        for index, band in enumerate(self._bands):
            if index % 2 == 0:
                parts.append(
                    f'<rect class="band" x="{_MARGIN / 2}" y="{band.top:g}" rx="5" '
                    f'width="{self._width - _MARGIN:g}" height="{band.height:g}"/>'
                )
            middle = band.top + band.height / 2 + 4
            parts.append(
                f'<text class="round" x="{_MARGIN}" y="{middle:g}">round {index + 1}</text>'
            )
        for rank in range(self._drawing.rank_count):
            x = self._x(rank)
            parts.append(f'<text class="rank" x="{x:g}" y="{self._top - 12}">rank {rank}</text>')
            parts.append(
                f'<line class="line" x1="{x:g}" y1="{self._top - 4}" x2="{x:g}" '
                f'y2="{self._bottom:g}"/>'
            )
        return parts

    def _dot(self, band: _Band, rank: int) -> str:
        return f'<circle class="dot" cx="{self._x(rank):g}" cy="{band.top + 8:g}" r="3.2"/>'

    def _path(self, band: _Band, arrow: _Arrow) -> str:
        """From the sender's dot down to the track, along it, down beside the receiver's label."""
        sender, rank = arrow.step.sender or 0, arrow.step.rank
        side = 1 if sender < rank else -1  # direction of travel
        start, end = self._x(sender), self._x(rank) - side * (self._label_width / 2)
        turn = end - side * _COLUMN_GAP * 0.29
        along, down = band.track_y(arrow.track), band.slot_y(arrow.slot)
        r = 5.0
        path = (
            f"M{start:g},{band.top + 8:g} V{along - r:g} Q{start:g},{along:g} "
            f"{start + side * r:g},{along:g} H{turn - side * r:g} "
            f"Q{turn:g},{along:g} {turn:g},{along + r:g} "
            f"V{down - r:g} Q{turn:g},{down:g} {turn + side * r:g},{down:g} H{end - side * 5:g}"
        )
        kind = _kind(arrow.step)
        return f'<path class="{kind}" stroke-width="1.5" marker-end="url(#{kind})" d="{path}"/>'

    def _label(self, band: _Band, arrow: _Arrow) -> str:
        x, y, kind = self._x(arrow.step.rank), band.slot_y(arrow.slot), _kind(arrow.step)
        left, top = x - self._label_width / 2, y - _LABEL_HEIGHT / 2
        return (
            f'<rect class="{kind} box" x="{left:g}" y="{top:g}" rx="4" '
            f'width="{self._label_width}" height="{_LABEL_HEIGHT}"/>'
            f'<text class="label {kind}s" x="{x:g}" y="{y + 4:g}">{escape(arrow.text)}</text>'
        )

    def _legend(self) -> list[str]:
        """Only what the picture shows."""
        texts = {
            "keep": "kept: the receiver's chunk is overwritten",
            "reduce": "reduced: added to the receiver's chunk",
            "local": "copied within the rank",
        }
        shown = {_kind(step) for step in self._drawing.steps}
        y, x, parts = self._bottom + 26, float(_MARGIN), []
        for kind, text in texts.items():
            if kind not in shown:
                continue
            parts.append(
                f'<rect class="{kind} box" x="{x:g}" y="{y - 10:g}" rx="3" width="22" height="12"/>'
                f'<text class="legend" x="{x + 30:g}" y="{y:g}">{text}</text>'
            )
            x += 60 + 6.1 * len(text)
        return parts


def _lay_out_band(top: float, steps: Sequence[Step]) -> _Band:
    """Gives every message the highest track on which it meets no other."""
    taken: list[list[tuple[int, int]]] = []  # per track: the stretches in use
    by_rank: dict[int, list[Step]] = defaultdict(list)
    for step in steps:
        by_rank[step.rank].append(step)
    arrows = []
    for step in sorted(steps, key=_length):
        mine, track = by_rank[step.rank], -1
        if step.sender is not None:
            stretch = (min(step.sender, step.rank), max(step.sender, step.rank))
            track = next((t for t, used in enumerate(taken) if _fits(stretch, used)), len(taken))
            if track == len(taken):
                taken.append([])
            taken[track].append(stretch)
        several = step.sender is not None and len(mine) > 1
        text = f"{step.sender}→ {step.label}" if several else step.label
        arrows.append(_Arrow(step, text, track, mine.index(step)))
    return _Band(top, len(taken), max(map(len, by_rank.values()), default=1), tuple(arrows))


def _length(step: Step) -> int:
    return 0 if step.sender is None else abs(step.sender - step.rank)


def _fits(stretch: tuple[int, int], used: Sequence[tuple[int, int]]) -> bool:
    return all(stretch[1] <= low or high <= stretch[0] for low, high in used)


def _is_message(arrow: _Arrow) -> bool:
    return arrow.step.sender is not None


def _senders(band: _Band) -> set[int]:
    return {arrow.step.sender for arrow in band.arrows if arrow.step.sender is not None}


def _kind(step: Step) -> str:
    if step.sender is None:
        return "local"
    return "reduce" if step.reduces else "keep"


def _arrow_head(kind: str) -> str:
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path class="{kind}-head" d="M0,0 L8,4 L0,8 Z"/></marker>'
    )
