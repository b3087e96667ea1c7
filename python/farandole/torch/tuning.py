# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Autotuning of an optimizer's exchange of gradients while it trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from farandole.coordination import autotune
from farandole.coordination.process_sets import ProcessSet
from farandole.torch.buckets import GradientExchange
from farandole.torch.reduction import Max
from farandole.torch.tensors import allreduce_


class TunedExchange:
    """Changes how `exchange` and its process set's coordinator work, if autotuning is on.

    One at a time per process set, whose coordinator has one cycle time. Made collectively; step()
    is to be called after every step, with nothing in flight.

    Args:
        tunes_groups: the script leaves it open how many groups gradients travel in.
    """

    def __init__(
        self, exchange: GradientExchange, process_set: ProcessSet, tunes_groups: bool
    ) -> None:
        self._exchange = exchange
        self._process_set = process_set
        windows = autotune.Windows.from_environment()
        search = None
        if process_set.rank() == 0:
            tensors = exchange.tensor_count
            search = autotune.Search(
                autotune.start_choice(process_set.coordinator.options()),
                [n for n in autotune.GROUP_COUNTS if n <= tensors] if tunes_groups else [0],
                {
                    "ranks": len(process_set.members()),
                    "tensors": tensors,
                    "bytes": exchange.byte_count,
                    "tunes_groups": int(tunes_groups),
                },
                windows,
                autotune.log_path(),
            )
        process_set.is_tuned = True
        self._tuner = autotune.Autotuner(search, windows, self._largest)
        self._apply(self._tuner.choice)

    def step(self) -> bool:
        """False once nothing will change any more."""
        self._apply(self._tuner.step())
        if self._tuner.finished:
            self._process_set.is_tuned = False
        return not self._tuner.finished

    def _largest(self, values: Sequence[int]) -> list[int]:
        numbers = torch.tensor(values, dtype=torch.int64)
        allreduce_(numbers, name="autotune", op=Max, process_set=self._process_set)
        return [int(number) for number in numbers]

    def _apply(self, choice: autotune.Choice | None) -> None:
        if choice is None:
            return
        if self._process_set.rank() == 0:
            self._process_set.coordinator.configure(
                cycle_time=choice.cycle_time_us / 1e6,
                fusion_threshold=choice.fusion_threshold,
                size_shift=choice.size_shift,
            )
        self._exchange.regroup(choice.num_groups)
