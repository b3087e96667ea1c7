# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The machine that FARANDOLE_MACHINE names: rank 0 reads it, all ranks plan by it."""

from __future__ import annotations

import numpy as np

from farandole import _native
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError

_NONE, _TOML, _ERROR = range(3)


def adopt_machine(context: _native.Context, world: Communicator) -> _native.Machine | None:
    """Collective; the machine, if there is one. What rank 0's environment says counts, whatever
    the others' say. Raises the same InvalidArgumentError on every rank, naming file and line, for
    one that cannot be read."""
    kind, text = _read() if world.rank == 0 else (_NONE, "")
    if world.size > 1:
        kind, text = _from_rank_0(world, kind, text)
    if kind == _ERROR:
        raise InvalidArgumentError(f"FARANDOLE_MACHINE: {text}")
    if kind == _NONE:
        return None
    from farandole import machines

    machine = machines.parse(text, "rank 0's FARANDOLE_MACHINE").machine()
    context.set_machine(machine)
    return machine


def _read() -> tuple[int, str]:
    given = _native.setting("FARANDOLE_MACHINE")
    if not given:
        return _NONE, ""
    from farandole import machines

    try:
        return _TOML, machines.as_toml(machines.load(given))
    except InvalidArgumentError as error:
        return _ERROR, str(error)


def _from_rank_0(world: Communicator, kind: int, text: str) -> tuple[int, str]:
    encoded = np.frombuffer(text.encode(), np.uint8).copy()
    header = np.array([kind, encoded.size], np.int64)
    world.broadcast(header, header)
    kind, length = (int(number) for number in header)
    if length > 0:
        encoded = encoded if world.rank == 0 else np.empty(length, np.uint8)
        world.broadcast(encoded, encoded)
    return kind, encoded.tobytes().decode()
