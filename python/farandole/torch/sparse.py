# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of sparse tensors, of which every rank has other elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from farandole.coordination.handles import Handle, start_group
from farandole.coordination.process_sets import ProcessSet, global_process_set
from farandole.errors import InvalidArgumentError
from farandole.torch.reduction import Average, ReduceOp, Sum, resolve_op
from farandole.torch.tasks import Task
from farandole.torch.tensors import allgather_task, name_or_number


@dataclass(frozen=True, eq=False)
class SparseSum:
    """A sum of COO tensors in two tasks, which belong into one group."""

    label: str  # part of that group's, since labels are compared too
    tasks: list[Task[Any]]
    shape: torch.Size
    divisor: int | None  # of an Average

    def result(self, gathered: list[Any]) -> torch.Tensor:
        """From what the tasks gave."""
        (values, _), (indices, _) = gathered
        # Nothing to check: coalesced tensors of this shape are what every rank has given.
        joint = torch.sparse_coo_tensor(indices.t(), values, self.shape, check_invariants=False)
        summed = joint.coalesce()
        return summed / self.divisor if self.divisor else summed


def sparse_sum(tensor: torch.Tensor, name: str, op: ReduceOp, process_set: ProcessSet) -> SparseSum:
    """The Average or Sum of a COO tensor over all ranks, to be started."""
    if op not in (Average, Sum):
        raise InvalidArgumentError(
            f"sparse_allreduce_async: op is {op.name}, allowed are AVERAGE and SUM"
        )
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        given = getattr(tensor, "layout", type(tensor).__name__)
        raise InvalidArgumentError(
            f"sparse_allreduce_async: tensor is {given}, allowed is torch.sparse_coo"
        )
    own = tensor.detach().coalesce()
    # The values have the name itself, so that a rank that asks for anything else of that name is
    # found out. Non-zeros are rows of both.
    tasks = [
        allgather_task(own.values(), name),
        allgather_task(own.indices().t(), f"{name}.indices"),
    ]
    label = f"{name}: {op.name} of shape {list(own.shape)}"
    divisor = len(process_set.members()) if op is Average else None
    return SparseSum(label, tasks, own.shape, divisor)


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts the Average, by default, or Sum of a COO tensor over all ranks.

    Indices and values of all ranks are gathered, so that the cost is that of all non-zeros. The
    result is coalesced: what several ranks have is added up.
    """
    name = name_or_number(name, "sparse_allreduce", process_set)
    combined = sparse_sum(tensor, name, resolve_op(op), process_set)
    return start_group(combined.tasks, process_set, combined.label).then(combined.result)
