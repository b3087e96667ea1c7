# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Which gradients travel together.

The backward pass makes the gradients of the last parameters first. Plans list the groups in the
order in which it completes them, each with its parameters' indices, the last parameter first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def plan_buckets(
    sizes: Sequence[tuple[int, torch.dtype]], bucket_bytes: int, first_bucket_bytes: int
) -> list[list[int]]:
    """Groups of one dtype and of at most `bucket_bytes`, unless it is a single larger parameter;
    the first one to fill has `first_bucket_bytes`, so that communication starts early."""
    filling: dict[torch.dtype, tuple[list[int], int]] = {}
    filled: list[list[int]] = []
    for index in reversed(range(len(sizes))):
        byte_count, dtype = sizes[index]
        limit = bucket_bytes if filled else min(first_bucket_bytes, bucket_bytes)
        bucket, bucket_size = filling.get(dtype, ([], 0))
        if bucket and bucket_size + byte_count > limit:
            filled.append(bucket)
            bucket, bucket_size = [], 0
        bucket.append(index)
        filling[dtype] = (bucket, bucket_size + byte_count)
    filled.extend(bucket for bucket, _ in filling.values())
    return sorted(filled, key=lambda bucket: -bucket[-1])


def plan_equal_groups(byte_counts: Sequence[int], group_count: int) -> list[list[int]]:
    """`group_count` groups of as equal bytes as can be without splitting or reordering
    parameters; fewer if there are fewer parameters."""
    left = sum(byte_counts)
    groups: list[list[int]] = []
    group: list[int] = []
    group_bytes = 0
    for index in reversed(range(len(byte_counts))):
        groups_left = group_count - len(groups)
        share = left / groups_left  # of this group, of what it and those after it get
        too_much = group_bytes + byte_counts[index] - share > share - group_bytes
        must_end = index + 1 < groups_left  # each group after this one gets a parameter
        if group and groups_left > 1 and (too_much or must_end):
            groups.append(group)
            left -= group_bytes
            group, group_bytes = [], 0
        group.append(index)
        group_bytes += byte_counts[index]
    return [*groups, group] if group else groups


def plan_explicit_groups(
    parameters: Sequence[torch.Tensor], groups: Sequence[Sequence[torch.Tensor]]
) -> list[list[int]]:
    """The caller's groups, as far as they are among `parameters`; all others alone."""
    places = {parameter: index for index, parameter in enumerate(parameters)}
    plan = [
        sorted((places.pop(parameter) for parameter in group if parameter in places), reverse=True)
        for group in groups
    ]
    plan.extend([index] for index in places.values())
    return sorted((group for group in plan if group), key=lambda group: -group[-1])
