# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: chain_order() finds chains that share no link where there are any, says how much they share
where there are none, and gives broadcast a spec that works.

Method: small machines whose links are written down here, and counted here once more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from rank_threads import on_ranks

import farandole
from farandole import ChainOrder, chain_order, chain_order_of_tree
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError

SIZE = 8
# Two sockets with two switches each; ranks with even numbers on the first, odd ones on the second.
FIRST, SECOND = 0, 1
PARENT = [-1, FIRST, FIRST, FIRST, SECOND, SECOND]
NODE_OF = [2, 4, 3, 5, 2, 4, 3, 5]


def way_up(rank: int) -> list[str]:
    socket, switch = rank % 2, rank % 4
    return [f"rank {rank} up", f"switch {switch} up", f"socket {socket} out"]


def two_sockets(a: int, b: int) -> list[str]:
    """Links by name; a message climbs as far as it must."""
    height = 1 if a % 4 == b % 4 else 2 if a % 2 == b % 2 else 3
    down = [f"rank {b} down", f"switch {b % 4} down", f"socket {b % 2} in"]
    return way_up(a)[:height] + down[:height]


def contention_of(order: Sequence[int], links: Callable[[int, int], Iterable[Any]]) -> int:
    loads = Counter(link for a, b in itertools.pairwise(order) for link in set(links(a, b)))
    return max(loads.values(), default=0)


def check(found: ChainOrder, size: int, root: int) -> None:
    assert sorted(found.order) == list(range(size))
    assert found.order[0] == root
    assert found.algorithm == "pipelined_chain:order=" + "/".join(map(str, found.order))


@pytest.mark.parametrize("root", range(SIZE))
def test_two_sockets(root: int) -> None:
    ranks = [(root + step) % SIZE for step in range(SIZE)]
    assert contention_of(ranks, two_sockets) >= 2
    for found in (
        chain_order(SIZE, two_sockets, root),
        chain_order_of_tree(PARENT, NODE_OF, root=root),
    ):
        check(found, SIZE, root)
        assert found.contention == 1
        assert contention_of(found.order, two_sockets) == 1


def test_any_names_and_iterables() -> None:
    def ring(a: int, b: int) -> Iterable[tuple[int, str]]:
        """Round to the right; the first link is named twice and counts once."""
        return ((step % 5, "right") for step in [*range(a, a + (b - a) % 5), a])

    found = chain_order(5, ring, root=np.int64(3))
    check(found, 5, 3)
    assert found.order == [3, 4, 0, 1, 2]
    assert found.contention == 1
    assert isinstance(found, farandole.ChainOrder)
    order, contention, algorithm = found
    assert (order, contention, algorithm) == (
        [3, 4, 0, 1, 2],
        1,
        "pipelined_chain:order=3/4/0/1/2",
    )


def test_what_cannot_be_avoided_is_reported() -> None:
    def bus(a: int, b: int) -> set[str]:
        return {"bus"}

    found = chain_order(5, bus, root=2)
    check(found, 5, 2)
    assert found.contention == 4

    def two_buses(a: int, b: int) -> list[str]:
        return ["odd" if a % 2 else "even"]

    found = chain_order(6, two_buses)
    check(found, 6, 0)
    assert found.contention == contention_of(found.order, two_buses) >= 2


def test_one_rank_and_no_links() -> None:
    alone = ChainOrder([0], 0, "pipelined_chain:order=0")
    assert chain_order(1, two_sockets) == alone
    assert chain_order_of_tree([-1], [0]) == alone
    assert chain_order(3, lambda a, b: ()).contention == 0
    assert chain_order_of_tree([-1], [0, 0, 0], root=2).order == [2, 0, 1]


@pytest.mark.parametrize("root", [0, 5])
def test_broadcast_along_the_chain(root: int) -> None:
    spec = chain_order(SIZE, two_sockets, root).algorithm

    def body(comm: Communicator) -> None:
        for count in (0, 1, 1000, 100_000):
            own = np.arange(count) + 10**6 * comm.rank
            result = comm.broadcast(own, root=root, algorithm=spec)
            np.testing.assert_array_equal(result, np.arange(count) + 10**6 * root)

    on_ranks(body, size=SIZE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chain_order(0, two_sockets), "'size' is 0, allowed is at least 1"),
        (lambda: chain_order(2.5, two_sockets), "'size' is 2.5, allowed is an integer"),
        (lambda: chain_order(3, two_sockets, 3), "'root' is 3, allowed is a rank from 0 to 2"),
        (lambda: chain_order(3, two_sockets, -1), "'root' is -1"),
        (lambda: chain_order(2, lambda a, b: "qpi"), "'links' gives 'qpi' from rank 0 to rank 1"),
        (lambda: chain_order(2, lambda a, b: [[]]), "'links' gives .* allowed are hashable"),
        (lambda: chain_order(2, lambda a, b: None), "'links' gives None"),
        (lambda: chain_order(2, "links"), "'links' is 'links', allowed is a function"),
        (lambda: chain_order_of_tree([-1, 0], []), "'node_of' is empty"),
        (lambda: chain_order_of_tree([-1, 0], [0, 2]), "'node_of' puts rank 1 at node 2"),
        (lambda: chain_order_of_tree([-1, 0], [0], 1), "'root' is 1, allowed is a rank from 0"),
        (lambda: chain_order_of_tree([-1, -1], [0]), "'parent' has 2 nodes without a parent"),
        (lambda: chain_order_of_tree([], [0]), "'parent' has 0 nodes without a parent"),
        (lambda: chain_order_of_tree([-1, 2, 1], [0]), "'parent' leads from node 1 back to it"),
        (lambda: chain_order_of_tree([-1, 7], [0]), "'parent' is 7 for node 1"),
        (lambda: chain_order_of_tree(None, [0]), "'parent' is None, allowed is a sequence"),
    ],
)
def test_mistakes_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"argument {message}"):
        call()


def test_errors_of_the_caller_s_function_are_the_caller_s() -> None:
    def broken(a: int, b: int) -> list[str]:
        raise KeyError("no such link")

    with pytest.raises(KeyError, match="no such link"):
        chain_order(2, broken)
