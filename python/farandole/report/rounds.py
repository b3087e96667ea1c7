# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""An expanded schedule as drawings need it: who hands what to whom in which round."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# As farandole._native.Schedule.expand() gives it: [rank][round][action].
Expanded = Sequence[Sequence[Sequence[dict[str, Any]]]]


@dataclass(frozen=True)
class Span:
    """`count` consecutive chunks of a buffer, from `first` on."""

    buffer: str
    first: int
    count: int

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.buffer}[{self.first}]"
        return f"{self.buffer}[{self.first}-{self.first + self.count - 1}]"


@dataclass(frozen=True)
class Step:
    """What one rank writes in one round: a message it receives, or a copy of its own.

    sender   None for a local step.
    operand  What the arriving elements are added to; None if they are kept as they are.
    """

    round: int
    rank: int
    sender: int | None
    source: Span | None
    target: Span | None
    operand: Span | None

    @property
    def reduces(self) -> bool:
        return self.operand is not None

    @property
    def label(self) -> str:
        """Short: where it ends up; "+" if it is added to what is there, "+ in" if it is added
        to the same chunk of the rank's input."""
        if self.target is None:
            return "signal"
        incoming = f" {self.source}" if self.sender is None else ""
        if self.operand is None:
            return f"{self.target} ={incoming}" if incoming else str(self.target)
        if self.operand == self.target:
            return f"{self.target} +{incoming}"
        if (self.operand.first, self.operand.count) == (self.target.first, self.target.count):
            return f"{self.target} + {self.operand.buffer}{incoming and ' +'}{incoming}"
        return f"{self.target} = {self.operand} +{incoming}"


@dataclass(frozen=True)
class Drawing:
    """All steps of a schedule, in order of round, then rank."""

    rank_count: int
    round_count: int
    steps: tuple[Step, ...]

    def rounds(self) -> list[list[Step]]:
        by_round: list[list[Step]] = [[] for _ in range(self.round_count)]
        for step in self.steps:
            by_round[step.round].append(step)
        return by_round


def drawing_of(expanded: Expanded) -> Drawing:
    """Pairs the i-th send from a to b on a lane with the i-th receive at b from a on that lane;
    a message is drawn in the round of its receive."""
    sources: dict[tuple[int, int, int], deque[Span | None]] = defaultdict(deque)
    for rank, rounds in enumerate(expanded):
        for actions in rounds:
            for action in actions:
                if action["kind"] == "send":
                    key = (rank, action["peer"], action["lane"])
                    sources[key].append(_span(action["source"]))
    steps = []
    for rank, rounds in enumerate(expanded):
        for index, actions in enumerate(rounds):
            for action in actions:
                if action["kind"] == "send":
                    continue
                sender = action["peer"] if action["kind"] == "receive" else None
                source = (
                    _span(action["source"])
                    if sender is None
                    else sources[sender, rank, action["lane"]].popleft()
                )
                target, operand = _span(action["target"]), _span(action["operand"])
                steps.append(Step(index, rank, sender, source, target, operand))
    steps.sort(key=lambda step: (step.round, step.rank))
    return Drawing(len(expanded), max(map(len, expanded), default=0), tuple(steps))


def _span(value: tuple[str, int, int, int] | None) -> Span | None:
    return None if value is None else Span(*value[:3])
