# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""How much communication the optimizer caused, and how much of it computation has hidden."""

from __future__ import annotations

import time
from typing import Any

import farandole


class Meter:
    """Sums over steps: bytes, seconds of communication, seconds in which nothing else was done.

    A step begins with its first bucket and ends when the last one is back. `seconds_active` is
    the time in it during which this rank had at least one operation in flight; waiting for a
    slower rank counts. `seconds_exposed` is the part that synchronize() was blocked for.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._bytes = 0
        self._seconds_active = 0.0
        self._seconds_exposed = 0.0
        self._plans: dict[str, dict[str, int]] = {}
        self._before: dict[str, Any] = {}
        self._blocked_since = 0.0

    def begin_step(self) -> None:
        self._before = farandole.context().statistics()

    def begin_waiting(self) -> None:
        self._blocked_since = time.perf_counter()

    def end_step(self, byte_count: int) -> None:
        self._seconds_exposed += time.perf_counter() - self._blocked_since
        after = farandole.context().statistics()
        self._steps += 1
        self._bytes += byte_count
        self._seconds_active += after["active_seconds"] - self._before["active_seconds"]
        for plan, counters in after["plans"].items():
            earlier = self._before["plans"].get(plan, {})
            for counter, value in counters.items():
                if value > earlier.get(counter, 0):
                    totals = self._plans.setdefault(plan, dict.fromkeys(counters, 0))
                    totals[counter] += value - earlier.get(counter, 0)

    def summary(self) -> dict[str, Any]:
        hidden = 0.0
        if self._seconds_active > 0.0:
            hidden = max(0.0, 1.0 - self._seconds_exposed / self._seconds_active)
        return {
            "steps": self._steps,
            "bytes": self._bytes,
            "seconds_active": self._seconds_active,
            "seconds_exposed": self._seconds_exposed,
            "hidden_fraction": hidden,
            "plans": {plan: dict(counters) for plan, counters in self._plans.items()},
        }
