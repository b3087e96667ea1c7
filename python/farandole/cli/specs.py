# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Which options of an algorithm `farandole verify` tries."""

from __future__ import annotations

from collections.abc import Iterator

from farandole.report.tables import Row

RADIXES = (2, 3, 5, 8)
CHUNKS = (1, 2, 5)
MIXED = ("direct", "halving", "ring")


def specs(row: Row, rank_count: int) -> list[str]:
    """The algorithm by itself, then with each option, hierarchies in every way."""
    options = row["options"].split()
    tried = []
    if "radix" in options:
        tried += [f"radix={radix}" for radix in RADIXES]
    if "chunks" in options:
        tried += [f"chunks={chunks}" for chunks in CHUNKS]
    if "order" in options:
        tried.append("order=" + "/".join(map(str, _shuffled(rank_count))))
    if "layers" in options:
        for sizes in factorizations(rank_count):
            tried += dict.fromkeys(layers(sizes))
    return [row["name"], *(f"{row['name']}:{option}" for option in tried)]


def factorizations(number: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of factors from 2 on, in every order; (1,) for 1."""
    yield (number,)
    for first in range(2, number // 2 + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in factorizations(number // first))


def layers(sizes: tuple[int, ...]) -> Iterator[str]:
    """Options for these sizes: each kind throughout, and kinds in turn. Halving is for powers of
    two; other layers are rings there."""
    for kinds in (("ring",), ("direct",), ("halving",), MIXED):
        chosen = (kinds[index % len(kinds)] for index in range(len(sizes)))
        yield "layers=" + "/".join(
            f"{size}{'ring' if kind == 'halving' and size & (size - 1) else kind}"
            for size, kind in zip(sizes, chosen, strict=True)
        )


def _shuffled(rank_count: int) -> list[int]:
    """Odd ranks from the top down, then even ones."""
    ranks = range(rank_count)
    return [*reversed(ranks[1::2]), *ranks[::2]]
