# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Which combinations the oracle's ranks run: pure functions, the same on every rank.

A case is what MPI is asked once: operation, dtype, reduction, size, root, order of the ranks. Its
runs are what is compared with that answer: algorithms, with or without an array for the result or
in place, waited for at once or later, in any or in the deterministic order of operands.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from farandole import _native

PLACES = ("new", "given", "in place")
WAITS = ("blocking", "async")
# The communicator: the world, or split from it with keys that turn or shuffle the ranks.
ORDERS = ("world", "reversed", "shuffled")
MATRICES = ("sample", "few", "full")

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
REALS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
ARITHMETIC = ("sum", "product", "premultiplied_sum")
BITS = tuple(f"{kind}_{op}" for kind in ("logical", "bitwise") for op in ("and", "or", "xor"))
# What takes blocks of different lengths on any number of ranks. Others may on some, or say no.
TAKES_COUNTS = {
    "reducescatter": ("ring", "pairwise", "direct"),
    "allgather": ("ring", "direct"),
    "gather": ("direct",),
    "scatter": ("direct",),
    "alltoall": ("pairwise", "direct"),
}
# Of the dtypes and reductions, those that each operation is tried on in the matrix "few".
FEW_DTYPES = ("float32", "bfloat16", "int64", "bool")
FEW_REDUCTIONS = ("sum", "average", "max", "bitwise_xor")


@dataclass(frozen=True)
class Operation:
    """`collective` is empty for messages between two ranks; there the root says who the peers
    are. `by_rank`: blocks of different lengths."""

    name: str
    collective: str = ""
    by_rank: bool = False
    reduces: bool = False
    rooted: bool = False
    moves: bool = True


OPERATIONS = (
    Operation("allreduce", "allreduce", reduces=True),
    Operation("reduce", "reduce", reduces=True, rooted=True),
    Operation("broadcast", "broadcast", rooted=True),
    Operation("reducescatter", "reducescatter", reduces=True),
    Operation("reducescatter by counts", "reducescatter", by_rank=True, reduces=True),
    Operation("allgather", "allgather"),
    Operation("allgather by counts", "allgather", by_rank=True),
    Operation("gather", "gather", rooted=True),
    Operation("gather by counts", "gather", by_rank=True, rooted=True),
    Operation("scatter", "scatter", rooted=True),
    Operation("scatter by counts", "scatter", by_rank=True, rooted=True),
    Operation("alltoall", "alltoall"),
    Operation("alltoall by counts", "alltoall", by_rank=True),
    Operation("barrier", "barrier", rooted=True, moves=False),
    Operation("send and recv", rooted=True),
    Operation("sendrecv", rooted=True),
    Operation("batch", rooted=True),
)


class Case(NamedTuple):
    operation: Operation
    dtype: str
    reduction: str
    size: int  # elements: of the array, or of one block; of all blocks where they differ
    root: int
    order: str
    seed: int
    turn: int  # where its runs start in the ways that there are


class Run(NamedTuple):
    spec: str
    place: str
    wait: str
    deterministic: bool


def is_valid(dtype: str, reduction: str) -> bool:
    """What the documentation allows."""
    if reduction in ARITHMETIC:
        return not dtype.startswith("float8")
    if reduction in ("min", "max"):
        return dtype == "bool" or dtype in INTEGERS + REALS
    if reduction == "average":
        return dtype in INTEGERS + REALS + COMPLEX
    return dtype == "bool" or dtype in INTEGERS


def shift(kind: str, rank_count: int) -> int:
    """Of the counters, so that no two jobs take the same combinations."""
    return 7 * rank_count + (3 if kind == "Open MPI" else 0)


def sizes(rank_count: int) -> list[int]:
    p = rank_count
    return sorted({0, 1, 2, 3, p - 1, p, p + 1, 17, 1000})


def roots(operation: Operation, rank_count: int) -> list[int]:
    return sorted({0, rank_count // 2, rank_count - 1}) if operation.rooted else [0]


def orders(rank_count: int) -> list[str]:
    """Those that differ: one rank has one, two ranks have two."""
    return list(ORDERS[:rank_count])


def key(order: str, rank: int, rank_count: int) -> int:
    """That split() is given, so that ranks come in this order."""
    shuffled = random.Random(rank_count).sample(range(rank_count), rank_count)
    return {"world": rank, "reversed": -rank, "shuffled": shuffled[rank]}[order]


def _factorizations(number: int) -> Iterator[tuple[int, ...]]:
    """Ordered, into factors from 2 on."""
    if number == 1:
        yield ()
    for first in range(2, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorizations(number // first))


def _layers(sizes: tuple[int, ...], turn: int) -> str:
    """Each layer with a kind of its own, halving where the size allows it."""
    kinds = [("ring", "halving", "direct")[(place + turn) % 3] for place in range(len(sizes))]
    return "layers=" + "/".join(
        f"{size}{'ring' if kind == 'halving' and size & (size - 1) else kind}"
        for size, kind in zip(sizes, kinds, strict=True)
    )


def _orders(rank_count: int) -> str:
    turned = random.Random(-rank_count).sample(range(rank_count), rank_count)
    return "order=" + "/".join(map(str, turned))


def _layerings(name: str, rank_count: int) -> list[str]:
    p = rank_count
    if name == "two_level":
        nodes = [(q, p // q) for q in range(1, p + 1) if p % q == 0]
        return [_layers(node, turn) for node in nodes for turn in (0, 2)]
    found = [layers for layers in _factorizations(p) if layers]
    return [_layers(layers, turn) for layers in found for turn in range(3)]


def _options(row: dict[str, str], rank_count: int) -> list[str]:
    """Option texts to try with an algorithm, beside none."""
    found = []
    for key in row["options"].split():
        if key == "radix":
            found += ["radix=2", "radix=3", "radix=4"]
        elif key == "chunks":
            found += ["chunks=1", "chunks=3"]
        elif key == "layers":
            found += _layerings(row["name"], rank_count)
        elif key == "order":
            found += [_orders(rank_count)]
        else:
            raise LookupError(f"no values to try for option {key} of {row['name']}")
    return found


def specs(operation: Operation, rank_count: int) -> list[str]:
    """Every algorithm of the registry, bare and with representative options."""
    if not operation.collective:
        return ["messages"]
    found = []
    for row in _native.algorithms():
        if row["collective"] == operation.collective:
            options = [f"{row['name']}:{option}" for option in _options(row, rank_count)]
            found += [row["name"], *options]
    return list(dict.fromkeys(found))


def may_decline(operation: Operation, spec: str) -> bool:
    return operation.by_rank and spec not in TAKES_COUNTS[operation.collective]


def pairs(operation: Operation, matrix: str) -> list[tuple[str, str]]:
    """Dtypes and reductions; no reduction where nothing is reduced."""
    if not operation.moves:
        return [("uint8", "")]
    all_pairs = list(product(_native.DTYPES, _native.REDUCTIONS if operation.reduces else [""]))
    valid = [pair for pair in all_pairs if pair[1] == "" or is_valid(*pair)]
    if matrix != "few":
        return valid
    return [(d, r) for d, r in valid if d in FEW_DTYPES and r in ("", *FEW_REDUCTIONS)]


def _coprime(number: int) -> int:
    """Near the golden section of it, so that steps of this length mix well."""
    step = max(1, round(number * 0.618))
    while math.gcd(step, number) != 1:
        step += 1
    return step


def ways(operation: Operation) -> list[tuple[str, str, bool]]:
    """Places, waits and orders of operands."""
    places = PLACES if operation.collective and operation.moves else ("given",)
    return list(product(places, WAITS, (False, True) if operation.reduces else (False,)))


def cases(operation: Operation, rank_count: int, matrix: str, shift: int) -> Iterator[Case]:
    """All of them, or so many that each pair of dtype and reduction occurs, and each triple of
    size, root and order in each way. `shift` makes jobs take different ones."""
    triples = list(
        product(
            sizes(rank_count) if operation.moves else [0],
            roots(operation, rank_count),
            orders(rank_count),
        )
    )
    wanted = pairs(operation, matrix)
    if matrix == "full":
        for number, (pair, triple) in enumerate(product(wanted, triples)):
            yield Case(operation, *pair, *triple, number, 0)
        return
    spec_count, way_count = len(specs(operation, rank_count)), len(ways(operation))
    least = len(triples) * math.ceil(way_count / spec_count)
    rounds = math.ceil(least / len(wanted))
    for number in range(rounds * len(wanted)):
        cycle, step = divmod(number, len(triples))
        at = (step * _coprime(len(triples)) + shift) % len(triples)
        # Each time that a triple comes again, its runs go on where the last ones ended.
        turn = at + cycle * spec_count + cycle * spec_count // way_count
        yield Case(operation, *wanted[number % len(wanted)], *triples[at], number, turn)


def runs(case: Case, rank_count: int, matrix: str) -> list[Run]:
    """Every algorithm in all ways, or in one that changes from algorithm to algorithm."""
    choices, names = ways(case.operation), specs(case.operation, rank_count)
    if matrix == "full":
        return [Run(spec, *way) for spec, way in product(names, choices)]
    return [Run(spec, *choices[(case.turn + i) % len(choices)]) for i, spec in enumerate(names)]
