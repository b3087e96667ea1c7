# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of ranks in which a pipelined broadcast uses no link of the machine twice."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from farandole import _native
from farandole.errors import InvalidArgumentError

Links = Callable[[int, int], Iterable[Hashable]]


class ChainOrder(NamedTuple):
    """A chain through all ranks.

    Attributes:
        order: the ranks, the root first.
        contention: hops on the busiest directed link: 1 where none is shared, 0 where none is used.
        algorithm: the chain for broadcast(algorithm=...) and for FARANDOLE_ALGORITHM.
    """

    order: list[int]
    contention: int
    algorithm: str


def chain_order(size: int, links: Links, root: int = 0) -> ChainOrder:
    """An order of `size` ranks whose chain shares no link, as far as a bounded search finds one;
    else the one that always takes the nearest rank, and how much its hops share.

    `links(a, b)` gives the directed links that a message from rank a to rank b uses, by any
    hashable names; it is called once for every pair of ranks. Where the links form a tree,
    chain_order_of_tree() needs no search. No communication: every rank may compute it, or one.
    """
    size = _integer("size", size)
    if size < 1:
        raise InvalidArgumentError(f"argument 'size' is {size}, allowed is at least 1.")
    root = _root(root, size)
    if not callable(links):
        raise InvalidArgumentError(
            f"argument 'links' is {links!r}, allowed is a function of two ranks."
        )
    numbers: dict[Hashable, int] = {}

    def numbered(a: int, b: int) -> list[int]:
        names = links(a, b)
        try:
            if isinstance(names, str | bytes):
                raise TypeError("text would be a link per character")
            return [numbers.setdefault(name, len(numbers)) for name in dict.fromkeys(names)]
        except TypeError as error:
            raise InvalidArgumentError(
                f"argument 'links' gives {names!r} from rank {a} to rank {b}, allowed are hashable "
                "names, in a list or any other iterable."
            ) from error

    table = [[numbered(a, b) if a != b else [] for b in range(size)] for a in range(size)]
    return _described(*_native.chain_order(table, root))


def chain_order_of_tree(parent: Sequence[int], node_of: Sequence[int], root: int = 0) -> ChainOrder:
    """An order whose chain shares no link of a tree of wires that work both ways at once; there
    always is one.

    `parent[node]` is the node above, -1 at the top; `node_of[rank]` where a rank sits. Devices
    hang from switches, switches from sockets, hosts from their network by the NIC: the top of a
    host's tree is the NIC, below it the NIC's switch, then that switch's socket, then the other.
    """
    above, nodes = _integers("parent", parent), _integers("node_of", node_of)
    _check_tree(above)
    if not nodes:
        raise InvalidArgumentError("argument 'node_of' is empty, allowed is at least one rank.")
    for rank, node in enumerate(nodes):
        if not 0 <= node < len(above):
            raise InvalidArgumentError(
                f"argument 'node_of' puts rank {rank} at node {node}, allowed is a node from 0 to "
                f"{len(above) - 1}."
            )
    return _described(*_native.chain_order_of_tree(above, nodes, _root(root, len(nodes))))


def _described(order: list[int], contention: int) -> ChainOrder:
    return ChainOrder(order, contention, "pipelined_chain:order=" + "/".join(map(str, order)))


def _check_tree(parent: list[int]) -> None:
    """One top, above every node."""
    for node, above in enumerate(parent):
        if not -1 <= above < len(parent):
            raise InvalidArgumentError(
                f"argument 'parent' is {above} for node {node}, allowed is -1 or a node from 0 to "
                f"{len(parent) - 1}."
            )
    if parent.count(-1) != 1:
        raise InvalidArgumentError(
            f"argument 'parent' has {parent.count(-1)} nodes without a parent, allowed is one."
        )
    below_top = [above == -1 for above in parent]
    for start in range(len(parent)):
        path: set[int] = set()
        node = start
        while not below_top[node]:
            if node in path:
                raise InvalidArgumentError(
                    f"argument 'parent' leads from node {node} back to it, allowed is a tree."
                )
            path.add(node)
            node = parent[node]
        for seen in path:
            below_top[seen] = True


def _root(root: Any, size: int) -> int:
    root = _integer("root", root)
    if not 0 <= root < size:
        raise InvalidArgumentError(
            f"argument 'root' is {root}, allowed is a rank from 0 to {size - 1}."
        )
    return int(root)


def _integer(argument: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(
            f"argument '{argument}' is {value!r}, allowed is an integer."
        ) from None


def _integers(argument: str, values: Any) -> list[int]:
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise InvalidArgumentError(
            f"argument '{argument}' is {values!r}, allowed is a sequence of integers."
        ) from None
