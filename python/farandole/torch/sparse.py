# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of sparse tensors, of which every rank has other elements."""

from __future__ import annotations

import torch

from farandole.errors import InvalidArgumentError
from farandole.process_sets import ProcessSet, global_process_set
from farandole.torch.handles import Handle, start_group
from farandole.torch.reduction import Average, ReduceOp, Sum, resolve_op
from farandole.torch.tensors import allgather_task, name_or_number


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
    op = resolve_op(op)
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
    shape, rank_count = own.shape, len(process_set.members())
    # The values have the name itself, so that a rank that asks for anything else of that name is
    # found out. Non-zeros are rows of both.
    tasks = [
        allgather_task(own.values(), name),
        allgather_task(own.indices().t(), f"{name}.indices"),
    ]

    def sum_up(gathered: list[tuple[torch.Tensor, list[int]]]) -> torch.Tensor:
        (values, _), (indices, _) = gathered
        # Nothing to check: coalesced tensors of this shape are what every rank has given.
        joint = torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)
        summed = joint.coalesce()
        return summed / rank_count if op is Average else summed

    # The label is compared too.
    group = f"{name}: {op.name} of shape {list(shape)}"
    return start_group(tasks, process_set, group).then(sum_up)
