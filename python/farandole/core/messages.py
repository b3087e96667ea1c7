# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, as Python sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from farandole._native import DType, Message, MessageKind
from farandole.core.arrays import describe, integer
from farandole.core.calls import Group
from farandole.core.devices import Place
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


_DTYPES = dict(DType.__members__)
_SEND, _RECEIVE = MessageKind.send, MessageKind.receive  # found faster than in the Enum


def natives(
    messages: Iterable[Send | Recv], group: Group
) -> tuple[list[Message], list[Any], list[Any], Place | None]:
    """Arguments of the native module, what must stay alive, the arrays that come, and where they
    lie if that is in the memory of a GPU."""
    rows: list[Message] = []
    place: Place | None = None
    kept: list[Any] = []
    received: list[Any] = []
    last = group.size - 1
    allowed = f"a rank from 0 to {last}"
    for message in messages:
        if isinstance(message, Send):
            kind, buffer = _SEND, describe(message.array, "array")
            peer = integer("dest", message.dest, allowed, 0, last)
        elif isinstance(message, Recv):
            kind, buffer = _RECEIVE, describe(message.out, "out", True)
            peer = integer("source", message.source, allowed, 0, last)
            received.append(buffer.owner)
        else:
            raise InvalidArgumentError(
                f"batch: argument 'messages' holds a {type(message).__name__}, allowed are Send "
                "and Recv."
            )
        kept.append(buffer.kept)
        place = place or buffer.place
        rows.append(
            Message(
                kind=kind,
                data=buffer.pointer,
                count=buffer.count,
                dtype=_DTYPES[buffer.dtype],
                peer=peer,
            )
        )
    return rows, kept, received, place
