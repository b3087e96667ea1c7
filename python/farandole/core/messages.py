# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, as Python sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from farandole.core.arrays import DTYPE_INDEX, describe, integer
from farandole.core.calls import Group
from farandole.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Send:
    """One message of a batch: `array` to rank `dest`."""

    array: Any
    dest: int


@dataclass(frozen=True, slots=True)
class Recv:
    """One message of a batch: from rank `source` into `out`."""

    out: Any
    source: int


# Whether it is a send, address, elements, dtype, peer.
Native = tuple[bool, int, int, int, int]


def natives(
    messages: Iterable[Send | Recv], group: Group
) -> tuple[list[Native], list[Any], list[Any]]:
    """Arguments of the native module, what must stay alive, and the arrays that come."""
    rows: list[Native] = []
    kept: list[Any] = []
    received: list[Any] = []
    last = group.size - 1
    allowed = f"a rank from 0 to {last}"
    for message in messages:
        if isinstance(message, Send):
            buffer = describe(message.array, "array")
            peer = integer("dest", message.dest, allowed, 0, last)
        elif isinstance(message, Recv):
            buffer = describe(message.out, "out", True)
            peer = integer("source", message.source, allowed, 0, last)
            received.append(buffer.owner)
        else:
            raise InvalidArgumentError(
                f"batch: argument 'messages' holds a {type(message).__name__}, allowed are Send "
                "and Recv."
            )
        kept.append(buffer.kept)
        is_send = isinstance(message, Send)
        rows.append((is_send, buffer.pointer, buffer.count, DTYPE_INDEX[buffer.dtype], peer))
    return rows, kept, received
