# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules that a person wrote, in the format of docs/formats/schedule.md.

schedule = farandole.Schedule.load("two_rings.txt")
farandole.allreduce(array, algorithm=schedule.register())
"""

from __future__ import annotations

import os

from farandole import _native
from farandole.errors import InvalidArgumentError


class Schedule:
    """A schedule from a file, proved to be right for its number of ranks.

    `collective`, `algorithm` (the name in the file), `rank_count`, `root` (0 if the collective has
    none) say what it is for; `proof` holds the rounds, transfers and reductions that the proof
    covered. Immutable; any thread may use it.
    """

    __slots__ = ("_verified", "native")

    def __init__(self, verified: _native.VerifiedSchedule) -> None:
        self._verified = verified
        self.native = verified.schedule

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """Reads and proves a file. Raises InvalidArgumentError naming the file and the line that
        is wrong, or the rank and the round at which the proof fails."""
        if not isinstance(path, str | os.PathLike):
            raise InvalidArgumentError(f"argument 'path' is {path!r}, allowed is a path.")
        return cls(_native.VerifiedSchedule.load(os.fspath(path)))

    @property
    def collective(self) -> str:
        return self.native.collective

    @property
    def algorithm(self) -> str:
        return self.native.algorithm

    @property
    def rank_count(self) -> int:
        return self.native.rank_count

    @property
    def root(self) -> int:
        return self._verified.root

    @property
    def proof(self) -> dict[str, int]:
        return self._verified.proof

    def text(self) -> str:
        """In the format of the file, without its comments."""
        return self.native.text()

    def register(self) -> str:
        """Adds it to the algorithms of this process and returns its name, which calls then take as
        `algorithm`. All ranks must register equal schedules before they call it; unequal ones end
        the call with MismatchError. Raises InvalidArgumentError if the name is that of an
        algorithm of the library, or of another schedule for the same collective, ranks and
        root."""
        self._verified.register()
        return self.algorithm

    def __repr__(self) -> str:
        return f"<Schedule {self.collective} {self.algorithm} for {self.rank_count} ranks>"
