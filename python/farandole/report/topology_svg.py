# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One host of a machine and its network as an SVG picture.

Processors are on top and devices below them, as they hang together. Links beside that tree are
arcs under the devices. NICs lead down to a bar for their switch, and that to one for the spines.
A link's colour stands for its rate, which the legend tells, so that no text lies on a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from farandole.machines.description import Constant, Description, LinkGroup
from farandole.report.topology_layout import Layout

_MARGIN, _TITLE_HEIGHT = 28, 66
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 84, 30, 18
_LEVEL_HEIGHT = 84
_ARC_STEP, _BAR_HEIGHT, _LEGEND_LINE = 15, 34, 22
_CHARACTER_WIDTH = 7.2  # of the bars' text
_COLOURS = ("#0b6bcb", "#b4377e", "#2f8f4e", "#b07400", "#7a52c7", "#c4473a", "#128a9b")
_STYLE = """
.page { fill: #ffffff; } .title { font: 600 17px system-ui, sans-serif; fill: #24292f; }
.sub, .legend { font: 12px system-ui, sans-serif; fill: #57606a; }
.node { font: 600 12px system-ui, sans-serif; fill: #24292f; text-anchor: middle; }
.rank { font: 10px system-ui, sans-serif; fill: #57606a; text-anchor: middle; }
.box { stroke: #8b949e; fill: #f3f5f7; } .cpu { fill: #e3eefb; } .gpu { fill: #e2f3e5; }
.nic { fill: #f8e6f0; } .memory { fill: #ece8f8; } .switch { fill: #fbf1dc; }
.link { fill: none; stroke-width: 2; } .shared { stroke-dasharray: 6 3; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } .title, .node { fill: #e6edf3; }
  .sub, .legend, .rank { fill: #9aa4ae; } .box { fill: #21262d; stroke: #6e7681; }
  .cpu { fill: #12304f; } .gpu { fill: #14391f; } .nic { fill: #451b33; }
  .memory { fill: #2d2450; } .switch { fill: #43340f; }
}
"""


def machine_svg(description: Description) -> str:
    return _Picture(description).svg()


class _Picture:
    def __init__(self, description: Description) -> None:
        self._description = description
        self._layout = Layout(description)
        self._ranks = {name: rank for rank, name in enumerate(description.devices)}
        self._x: dict[str, float] = {}
        self._y: dict[str, float] = {}
        self._place_tree()
        self._arcs = self._stack_arcs()
        arcs = max((level for level in self._arcs.values()), default=-1) + 1
        self._floor = max(self._y.values()) + _BOX_HEIGHT / 2  # of the row of devices
        self._bars_top = self._place_below(self._floor + 24 + arcs * _ARC_STEP)
        self._width = max(self._x.values()) + _BOX_WIDTH / 2 + _MARGIN
        texts = (*self._bar_texts(), *(text for _, text, _ in self._legend()), description.summary)
        self._width = max(self._width, max(map(len, texts)) * _CHARACTER_WIDTH + 3 * _MARGIN)

    # Where things are

    def _place_tree(self) -> None:
        depth = {name: self._layout.depth(name) for name in self._layout.kind}
        lowest = max(depth.values())
        for index, name in enumerate(self._layout.leaves()):
            self._x[name] = _MARGIN + _BOX_WIDTH / 2 + index * (_BOX_WIDTH + _GAP)

        def centre(name: str) -> float:
            children = self._layout.children.get(name, [])
            if children:
                ends = [centre(child) for child in children]
                self._x[name] = (ends[0] + ends[-1]) / 2
            return self._x[name]

        for root in self._layout.roots:
            centre(root)
        for name in self._x:
            leaf = not self._layout.children.get(name) and name not in self._layout.roots
            level = lowest if leaf else depth[name]
            self._y[name] = _TITLE_HEIGHT + _BOX_HEIGHT + level * _LEVEL_HEIGHT

    def _place_below(self, top: float) -> float:
        """Inner nodes that only devices lead to; returns where the bars may begin."""
        below = self._layout.below
        if not below:
            return top
        middle = (min(self._x.values()) + max(self._x.values())) / 2
        for index, name in enumerate(below):
            self._x[name] = middle + (index - (len(below) - 1) / 2) * (_BOX_WIDTH + _GAP)
            self._y[name] = top + _LEVEL_HEIGHT / 2
        return top + _LEVEL_HEIGHT / 2 + _BOX_HEIGHT + 16

    def _stack_arcs(self) -> dict[tuple[str, str], int]:
        """The depth of each arc under the devices: wider ones deeper, none on another."""
        levels: dict[tuple[str, str], int] = {}
        taken: list[list[tuple[float, float]]] = []
        for a, b in sorted(self._arc_pairs(), key=lambda p: abs(self._x[p[0]] - self._x[p[1]])):
            low, high = sorted((self._x[a], self._x[b]))
            free = (
                index
                for index, used in enumerate(taken)
                if all(high <= left or right <= low for left, right in used)
            )
            level = next(free, len(taken))
            if level == len(taken):
                taken.append([])
            taken[level].append((low, high))
            levels[a, b] = level
        return levels

    def _arc_pairs(self) -> Iterator[tuple[str, str]]:
        """Links between two nodes of the tree's lowest row that are not the tree's own."""
        lowest = max(self._y.values())
        for group in self._description.links:
            for a, b in group.between:
                at_bottom = self._y.get(a) == lowest and self._y.get(b) == lowest
                if at_bottom and len(self._y) > 1 and not self._in_tree(a, b):
                    yield a, b

    def _in_tree(self, a: str, b: str) -> bool:
        children = self._layout.children
        return b in children.get(a, []) or a in children.get(b, [])

    # Text

    def svg(self) -> str:
        bars = self._bar_texts()
        legend_top = self._bars_top + len(bars) * (_BAR_HEIGHT + 26) + 14
        legend = list(self._legend())
        height = legend_top + len(legend) * _LEGEND_LINE + _MARGIN / 2
        title, summary = escape(self._description.name), escape(self._description.summary)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width:g} {height:g}" '
                f'width="{self._width:g}" height="{height:g}" role="img">',
                f"<title>{title}</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="page" width="{self._width:g}" height="{height:g}"/>',
                f'<text class="title" x="{_MARGIN}" y="30">{title}</text>',
                f'<text class="sub" x="{_MARGIN}" y="49">{summary}</text>',
                *self._lines(),
                *self._network(bars),
                *(self._node(name) for name in self._x),
                *self._legend_lines(legend_top, legend),
                "</svg>\n",
            ]
        )

    def _lines(self) -> Iterator[str]:
        for number, group in enumerate(self._description.links):
            shared = " shared" if group.half_duplex else ""
            for a, b in group.between:
                yield (
                    f'<path class="link{shared}" stroke="{_colour(number)}" '
                    f'd="{self._path(a, b)}"/>'
                )

    def _path(self, a: str, b: str) -> str:
        x1, y1, x2, y2 = self._x[a], self._y[a], self._x[b], self._y[b]
        level = self._arcs.get((a, b))
        if level is not None:
            # Ends apart from each other, so that arcs that meet at a node stay apart there too.
            side = 1 if x2 > x1 else -1
            spread = min(6 + level * 7, _BOX_WIDTH / 2 - 6)
            x1, x2 = x1 + side * spread, x2 - side * spread
            top, down = y1 + _BOX_HEIGHT / 2, y1 + _BOX_HEIGHT / 2 + 14 + level * _ARC_STEP
            return f"M{x1:g},{top:g} V{down:g} H{x2:g} V{top:g}"
        if b in self._layout.below or a in self._layout.below:  # around what stands beside a device
            if a in self._layout.below:
                x1, y1, x2, y2 = x2, y2, x1, y1
            return f"M{x1:g},{y1:g} V{self._floor + 10:g} L{x2:g},{y2:g}"
        if abs(y1 - y2) > _LEVEL_HEIGHT:  # around the levels between
            if y1 > y2:
                x1, y1, x2, y2 = x2, y2, x1, y1
            return f"M{x1:g},{y1:g} V{y1 + _BOX_HEIGHT / 2 + 10:g} H{x2:g} V{y2:g}"
        return f"M{x1:g},{y1:g} L{x2:g},{y2:g}"

    def _node(self, name: str) -> str:
        x, y, kind = self._x[name], self._y[name], self._layout.kind[name]
        rank = self._ranks.get(name)
        text = f'<text class="node" x="{x:g}" y="{y + (4 if rank is None else 0):g}">{escape(name)}'
        if rank is not None:
            text += f'</text><text class="rank" x="{x:g}" y="{y + 11:g}">local rank {rank}'
        return (
            f'<rect class="box {kind}" x="{x - _BOX_WIDTH / 2:g}" y="{y - _BOX_HEIGHT / 2:g}" '
            f'rx="5" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"/>{text}</text>'
        )

    def _bar_texts(self) -> list[str]:
        network = self._description.network
        if "hosts" not in network:
            return []
        hosts, per_rack = network["hosts"].value, network.get("hosts_per_rack", Constant(0)).value
        if not per_rack or per_rack >= hosts:
            return [f"one switch for all {hosts:,} hosts"]
        racks, uplinks = -(-hosts // per_rack), network.get("uplinks", Constant(0)).value
        return [
            f"switch of a rack of {per_rack:,} hosts",
            f"{uplinks:,} spines over {racks:,} racks",
        ]

    def _network(self, bars: list[str]) -> Iterator[str]:
        """Lines from NICs to the switch, and from it to the spines, then the bars over them."""
        if not bars:
            return
        colour = _colour(len(self._description.links))
        for nic in dict.fromkeys(self._description.nics):
            x, y = self._x[nic], self._y[nic]
            yield f'<path class="link" stroke="{colour}" d="M{x:g},{y:g} V{self._bars_top:g}"/>'
        step = _BAR_HEIGHT + 26
        if len(bars) > 1:
            colour, middle = _colour(len(self._description.links) + 1), self._width / 2
            for offset in (-60, -20, 20, 60):
                yield (
                    f'<path class="link" stroke="{colour}" '
                    f'd="M{middle + offset:g},{self._bars_top:g} v{step:g}"/>'
                )
        for index, text in enumerate(bars):
            top, width = self._bars_top + index * step, self._width - 2 * _MARGIN
            yield (
                f'<rect class="box switch" x="{_MARGIN}" y="{top:g}" rx="5" width="{width:g}" '
                f'height="{_BAR_HEIGHT}"/><text class="node" x="{self._width / 2:g}" '
                f'y="{top + _BAR_HEIGHT / 2 + 4:g}">{escape(text)}</text>'
            )

    def _legend(self) -> Iterator[tuple[int, str, bool]]:
        """Colour, text, whether dashed."""
        links = self._description.links
        for number, group in enumerate(links):
            yield number, _group_text(group), group.half_duplex
        if not self._bar_texts():
            return
        for number, key, text in (
            (len(links), "nic_rate_GBps", "NIC to switch"),
            (len(links) + 1, "uplink_rate_GBps", "uplink to a spine"),
        ):
            if key in self._description.network and (
                number == len(links) or len(self._bar_texts()) > 1
            ):
                yield number, f"{text}: {_rate(self._description.network[key])}", False

    def _legend_lines(self, top: float, legend: list[tuple[int, str, bool]]) -> Iterator[str]:
        for index, (number, text, dashed) in enumerate(legend):
            y = top + index * _LEGEND_LINE
            shared = " shared" if dashed else ""
            yield (
                f'<path class="link{shared}" stroke="{_colour(number)}" d="M{_MARGIN},{y:g} h34"/>'
                f'<text class="legend" x="{_MARGIN + 44}" y="{y + 4:g}">{escape(text)}</text>'
            )


def _group_text(group: LinkGroup) -> str:
    first, last = group.between[0], group.between[-1]
    example = f"{first[0]} - {first[1]}"
    if len(group.between) > 1:
        example += f" to {last[0]} - {last[1]} ({len(group.between)} links)"
    both = ", both directions together" if group.half_duplex else ""
    return f"{example}: {_rate(group.rate_GBps)}{both}"


def _rate(constant: Constant) -> str:
    return f"{constant.value:g} GB/s" + (f", {constant.origin}" if constant.origin else "")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
