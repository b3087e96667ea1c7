# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that ranks share besides gradients: parameters, optimizer state, Python objects.

Objects travel as pickles, which run code when they are read: all ranks of a job trust each other.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import farandole
from farandole.errors import InvalidArgumentError, MismatchError
from farandole.process_sets import ProcessSet, global_process_set
from farandole.torch.tensors import broadcast_, broadcast_group, gather_rows, name_or_number


def _to_bytes(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _from_bytes(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().data)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank `root_rank`, which must be picklable; the others pass anything."""
    name = name_or_number(name, "broadcast_object", process_set)
    process_set.position(root_rank, "root_rank")
    is_root = farandole.rank() == root_rank
    data, failure = torch.empty(0, dtype=torch.uint8), None
    if is_root:
        try:
            data = _to_bytes(obj)
        except Exception as error:  # pickle lets through whatever an object's methods raise
            failure = error
    length = torch.tensor([-1 if failure else data.numel()])
    broadcast_(length, root_rank, f"{name}.length", process_set)
    if length.item() < 0:
        raise InvalidArgumentError(
            f"broadcast_object: obj of rank {root_rank} cannot be pickled"
        ) from failure
    if not is_root:
        data = data.new_empty(int(length.item()))
    broadcast_(data, root_rank, name, process_set)
    return obj if is_root else _from_bytes(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks that have not joined, by rank; each must be picklable."""
    name = name_or_number(name, "allgather_object", process_set)
    gathered, rows = gather_rows(_to_bytes(obj), name, process_set)
    return [_from_bytes(piece) for piece in gathered.split(rows) if len(piece)]


def check_same(subject: str, lines: Sequence[str], process_set: ProcessSet) -> None:
    """Raises MismatchError on every rank, with the first difference, unless `lines` agree."""
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    digests = allgather_object(digest, f"{subject}: digest", process_set)
    if len(set(digests)) == 1:
        return
    everyone = allgather_object(list(lines), f"{subject}: all", process_set)
    ranks = process_set.members()
    different = [place for place, theirs in enumerate(everyone) if theirs != everyone[0]]
    theirs, ours = _first_difference(everyone[different[0]], everyone[0])
    who = [ranks[place] for place in different]
    raise MismatchError(
        f"{subject} of {f'rank {who[0]}' if len(who) == 1 else f'ranks {who}'} differs from that "
        f"of rank {ranks[0]}. Rank {who[0]}: {theirs}. Rank {ranks[0]}: {ours}."
    )


def _first_difference(theirs: list[str], ours: list[str]) -> tuple[str, str]:
    length = max(len(theirs), len(ours))
    padded = [lines + ["nothing more"] * (length - len(lines)) for lines in (theirs, ours)]
    return next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any] | torch.Tensor],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the parameters of rank `root_rank`, in place.

    `params` is a state_dict, the result of named_parameters(), or a list of tensors. Entries
    that are not tensors are left alone.

    Errors   MismatchError on every rank if names, shapes or dtypes differ between ranks.
    """
    items = sorted(params.items()) if isinstance(params, Mapping) else list(params)
    named = [
        item if isinstance(item, tuple) else (f"parameter {index}", item)
        for index, item in enumerate(items)
    ]
    tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    _broadcast_all(tensors, root_rank, "broadcast_parameters", process_set)


def _broadcast_all(
    tensors: Mapping[str, torch.Tensor], root_rank: int, group: str, process_set: ProcessSet
) -> None:
    """In place, all or none; those that are not contiguous go through a copy."""
    memory = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    broadcast_group(memory, root_rank, group, process_set)
    for name, tensor in tensors.items():
        if memory[name].data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(memory[name])


@dataclass(frozen=True)
class _Placeholder:
    """Stands for a tensor in an object that is sent without its tensors."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A copy of `value` with placeholders; its tensors are appended in order."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Placeholder(tuple(value.shape), value.dtype)
    return _rebuilt(value, lambda part: _without_tensors(part, tensors))


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse: fresh tensors in place of placeholders, appended in order."""
    if isinstance(value, _Placeholder):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    return _rebuilt(value, lambda part: _with_tensors(part, tensors))


def _rebuilt(value: Any, convert: Any) -> Any:
    if isinstance(value, dict):
        return {key: convert(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(convert(part) for part in value)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the state and the hyperparameters of rank `root_rank`'s optimizer.

    Ranks that have made no step yet receive the state all the same. `model` is not needed; it is
    one of Horovod's arguments.
    """
    process_set.position(root_rank, "root_rank")
    is_root = farandole.rank() == root_rank
    tensors: list[torch.Tensor] = []
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, "broadcast_optimizer_state", process_set)
    received = None if is_root else _with_tensors(skeleton, tensors)
    numbered = {f"tensor {index}": tensor for index, tensor in enumerate(tensors)}
    _broadcast_all(numbered, root_rank, "broadcast_optimizer_state", process_set)
    if received is not None:
        optimizer.load_state_dict(received)
