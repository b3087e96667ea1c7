# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of communication that are tried out while a job trains; the fastest ones stay.

One rank leads: it measures windows of steps, and asks Optuna's tree-structured Parzen estimator
[Bergstra11] what to try next. All ranks change to that between the same two steps.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from farandole import _native
from farandole.errors import InvalidArgumentError, UnsupportedError

_log = logging.getLogger("farandole.autotune")

SETTLING_STEPS = 2  # after a change, when plans and cache entries are new
GROUP_COUNTS = (0, 1, 2, 4, 8, 16, 32)
CYCLE_TIMES_US = (20, 20_000)
FUSION_THRESHOLDS_LOG2 = (16, 29)  # 64 KiB to 512 MiB
SIZE_SHIFTS = (-4, 4)
CONFIRMATIONS = 2  # windows for each of the two last candidates
FORMAT = 1


@dataclass(frozen=True)
class Choice:
    """What is tuned; every field is 0 or more, so that the largest of all ranks' is the leader's.

    Attributes:
        cycle_time_us: see FARANDOLE_CYCLE_TIME.
        fusion_threshold: bytes, see FARANDOLE_FUSION_THRESHOLD.
        size_shift_up: the thresholds between algorithms lie 2**(size_shift_up - 4) times lower.
        num_groups: of gradients; 0: as the script says.
    """

    cycle_time_us: int
    fusion_threshold: int
    size_shift_up: int
    num_groups: int = 0

    @property
    def size_shift(self) -> int:
        return self.size_shift_up + SIZE_SHIFTS[0]


@dataclass(frozen=True)
class Windows:
    """How long is measured: the variables of the same names."""

    warmup_samples: int
    steps_per_sample: int
    max_samples: int

    @classmethod
    def from_environment(cls) -> Windows:
        return cls(
            _native.setting("FARANDOLE_AUTOTUNE_WARMUP_SAMPLES"),
            _native.setting("FARANDOLE_AUTOTUNE_STEPS_PER_SAMPLE"),
            _native.setting("FARANDOLE_AUTOTUNE_MAX_SAMPLES"),
        )


class Search:
    """The leader's side: a choice at a time, each answered with seconds per step.

    The first is `start`. When `windows.max_samples` are measured, the fastest and `start` are
    measured again, alternately: a choice that was lucky once does not stay.

    Args:
        start: what holds so far, rounded to what is tried.
        group_counts: the numbers of groups to try.
        workload: what a saved result must agree on to be used: ranks, tensors, bytes.
        log: JSON file of results, read first and written after each sample; None: neither.

    Errors   InvalidArgumentError if the file is none of ours.
    """

    def __init__(
        self,
        start: Choice,
        group_counts: Sequence[int],
        workload: Mapping[str, int],
        windows: Windows,
        log: Path | None,
    ) -> None:
        self._start = start
        self._group_counts = list(group_counts)
        self._workload = dict(workload)
        self._max_samples = windows.max_samples
        self._log = log
        self._results = _read(log) if log is not None else []
        self._samples: list[tuple[Choice, float]] = []
        self._confirmed: dict[Choice, list[float]] = {}
        self._to_confirm: list[Choice] = []
        self._study: Any = None
        self._trial: Any = None
        self.choice = start
        self.finished = False
        for result in self._results:
            if result["workload"] == self._workload and result["finished"]:
                self.choice, self.finished = Choice(**result["best"]), True

    def tell(self, seconds: float) -> None:
        """What a step took with `choice`; makes `choice` the next one, or the one that stays."""
        if self._confirmed:
            self._confirmed[self.choice].append(seconds)
        else:
            self._samples.append((self.choice, seconds))
            if self._trial is not None:
                self._study.tell(self._trial, seconds)
            if len(self._samples) >= self._max_samples:
                self._begin_confirming()
        if not self._confirmed:
            self.choice = self._ask()
        elif self._to_confirm:
            self.choice = self._to_confirm.pop(0)
        else:
            self.choice = min(self._confirmed, key=self._confirmed_seconds)
            self.finished = True
        if self._log is not None:
            self._save(self._log)

    def _begin_confirming(self) -> None:
        fastest, _ = min(self._samples, key=lambda sample: sample[1])
        candidates = list(dict.fromkeys([fastest, self._start]))
        self._confirmed = {candidate: [] for candidate in candidates}
        self._to_confirm = candidates * (CONFIRMATIONS if len(candidates) > 1 else 0)

    def _confirmed_seconds(self, choice: Choice) -> float:
        return min(self._confirmed[choice], default=math.inf)

    def _ask(self) -> Choice:
        import optuna

        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=5)
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
        trial = self._trial = self._study.ask()
        return Choice(
            cycle_time_us=trial.suggest_int("cycle_time_us", *CYCLE_TIMES_US, log=True),
            fusion_threshold=1 << trial.suggest_int("log2(fusion)", *FUSION_THRESHOLDS_LOG2),
            size_shift_up=trial.suggest_int("shift", 0, SIZE_SHIFTS[1] - SIZE_SHIFTS[0]),
            num_groups=trial.suggest_categorical("num_groups", self._group_counts),
        )

    def _save(self, log: Path) -> None:
        result = {
            "workload": self._workload,
            "finished": self.finished,
            "best": asdict(self.choice) if self.finished else None,
            "samples": [asdict(c) | {"seconds_per_step": s} for c, s in self._samples],
            "confirmed": [asdict(c) | {"seconds_per_step": s} for c, s in self._confirmed.items()],
        }
        others = [other for other in self._results if other["workload"] != self._workload]
        text = json.dumps({"format": FORMAT, "results": [*others, result]}, indent=2)
        unfinished = log.with_name(f".{log.name}.{os.getpid()}")
        unfinished.write_text(text + "\n")
        unfinished.replace(log)


def _read(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    try:
        content = json.loads(log.read_text())
        if content["format"] != FORMAT:
            raise InvalidArgumentError(
                f"FARANDOLE_AUTOTUNE_LOG is '{log}', of format {content['format']}, allowed is "
                f"{FORMAT}"
            )
        results = content["results"]
        for result in results:
            if result["finished"]:
                Choice(**result["best"])
            dict(result["workload"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"FARANDOLE_AUTOTUNE_LOG is '{log}', which is no log of autotuning ({error!r}); "
            "allowed are files that it wrote, or names of new ones"
        ) from error
    return list(results)


class Autotuner:
    """Every rank's side: counts steps, so that all ranks change settings between the same two.

    Args:
        search: on the rank that leads; None on the others.
        agree: collective; the largest of all ranks' numbers at each place, in which a rank that
            has no more data takes part with negative ones.

    Attributes:
        choice: what holds; None if the leader has left before the first.
        finished: nothing will change any more.

    Threads  one.
    """

    def __init__(
        self,
        search: Search | None,
        windows: Windows,
        agree: Callable[[Sequence[int]], Sequence[int]],
    ) -> None:
        self._search = search
        self._windows = windows
        self._agree = agree
        self.finished = False
        self._warmup_left = windows.warmup_samples
        self._times: list[float] = []
        self._steps_left = windows.steps_per_sample
        self.choice: Choice | None = self._exchange()

    def step(self) -> Choice | None:
        """To be called after each step, on every rank; what holds from now on if it changed."""
        if self.finished:
            return None
        self._times.append(time.perf_counter())
        self._steps_left -= 1
        if self._steps_left > 0:
            return None
        measured = self._times[-self._windows.steps_per_sample - 1 :]
        self._times = []
        if self._warmup_left > 0:
            self._warmup_left -= 1
            self._steps_left = self._windows.steps_per_sample + SETTLING_STEPS
            return None
        if self._search is not None:
            self._search.tell(statistics.median(b - a for a, b in pairwise(measured)))
        chosen = self._exchange()
        if chosen is None or chosen == self.choice:
            return None
        self.choice = chosen
        return chosen

    def _exchange(self) -> Choice | None:
        """What the leader says; None if it has left, which ends the search."""
        search = self._search
        mine = [-1] * (1 + len(fields(Choice)))
        if search is not None:
            mine = [int(search.finished), *astuple(search.choice)]
            if search.finished:
                _log.warning("autotuning keeps %s", search.choice)
        finished, *values = self._agree(mine)
        self.finished = finished != 0
        self._steps_left = self._windows.steps_per_sample + SETTLING_STEPS
        return Choice(*values) if finished >= 0 else None


def start_choice(options: Mapping[str, Any]) -> Choice:
    """The settings that a coordinator has, rounded to what is tried."""

    def clamp(value: float, limits: tuple[int, int]) -> int:
        return min(max(round(value), limits[0]), limits[1])

    log2 = math.log2(max(1, options["fusion_threshold"]))
    return Choice(
        cycle_time_us=clamp(options["cycle_time"] * 1e6, CYCLE_TIMES_US),
        fusion_threshold=1 << clamp(log2, FUSION_THRESHOLDS_LOG2),
        size_shift_up=clamp(options["size_shift"], SIZE_SHIFTS) - SIZE_SHIFTS[0],
    )


def enabled() -> bool:
    """Whether FARANDOLE_AUTOTUNE asks for it.

    Errors   UnsupportedError if it does and Optuna is not installed.
    """
    if not _native.setting("FARANDOLE_AUTOTUNE"):
        return False
    if importlib.util.find_spec("optuna") is None:
        raise UnsupportedError(
            "FARANDOLE_AUTOTUNE is on, which needs optuna: pip install 'farandole[autotune]'"
        )
    return True


def log_path() -> Path | None:
    """FARANDOLE_AUTOTUNE_LOG; None if it is empty."""
    name = _native.setting("FARANDOLE_AUTOTUNE_LOG")
    return Path(name) if name else None
