# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Which node of a host hangs on which: processors on top, devices and NICs at the bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from farandole.machines.description import Description, LinkGroup


class Layout:
    """A spanning forest of the links.

    roots     CPUs on which no rank lives; else memory; else the first switch, or first node.
    children  below each node: switches and memory first come by breadth, devices and NICs at last.
    below     inner nodes that only devices lead to, such as NVSwitches, drawn under them.
    """

    def __init__(self, description: Description) -> None:
        self.kind = {name: group.kind for group in description.nodes for name in group.names}
        self._groups: dict[frozenset[str], LinkGroup] = {}
        self._peers: dict[str, list[str]] = defaultdict(list)
        for group in description.links:
            for a, b in group.between:
                self._groups[frozenset((a, b))] = group
                self._peers[a].append(b)
                self._peers[b].append(a)
        self._leaves = set(description.devices) | {n for n, k in self.kind.items() if k == "nic"}
        self._leaves |= {name for name, kind in self.kind.items() if kind == "gpu"}
        self.roots = self._find_roots()
        self.children: dict[str, list[str]] = {}
        self._parent: dict[str, str] = {}
        self._span()
        placed = {*self.roots, *self._parent}
        self.below = [name for name in self.kind if name not in placed]

    def link_to_parent(self, name: str) -> LinkGroup | None:
        parent = self._parent.get(name)
        return None if parent is None else self._groups[frozenset((name, parent))]

    def other_links(self, name: str) -> Iterator[tuple[LinkGroup, list[str]]]:
        """Links of a node that are not those of the forest, by group."""
        found: dict[int, tuple[LinkGroup, list[str]]] = {}
        for peer in self._peers[name]:
            if peer in (self._parent.get(name), *self.children.get(name, [])):
                continue
            group = self._groups[frozenset((name, peer))]
            found.setdefault(id(group), (group, []))[1].append(peer)
        yield from found.values()

    def leaves(self) -> list[str]:
        """Nodes without children, from left to right."""
        found: list[str] = []

        def visit(name: str) -> None:
            if not self.children.get(name):
                found.append(name)
            for child in self.children.get(name, []):
                visit(child)

        for root in self.roots:
            visit(root)
        return found

    def depth(self, name: str) -> int:
        return 0 if name not in self._parent else 1 + self.depth(self._parent[name])

    def _find_roots(self) -> list[str]:
        for kind in ("cpu", "memory", "switch"):
            inner = [n for n, k in self.kind.items() if k == kind and n not in self._leaves]
            if inner:
                return inner if kind != "switch" else inner[:1]
        return list(self.kind)[:1]

    def _span(self) -> None:
        seen, queue = set(self.roots), list(self.roots)
        while queue:
            name = queue.pop(0)
            self.children[name] = [p for p in dict.fromkeys(self._peers[name]) if p not in seen]
            for child in self.children[name]:
                seen.add(child)
                self._parent[child] = name
            # Not on through devices: what only they lead to is drawn below them.
            queue += [child for child in self.children[name] if child not in self._leaves]
