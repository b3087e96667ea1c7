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
from farandole.torch.tensors import (
    Handle,
    broadcast_,
    broadcast_async_,
    check_root,
    gather_equal,
    gather_rows,
)


def _to_bytes(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _from_bytes(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().data)


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of rank `root_rank`, which must be picklable; the others pass anything."""
    check_root(root_rank, "broadcast_object")
    is_root = farandole.rank() == root_rank
    data, failure = torch.empty(0, dtype=torch.uint8), None
    if is_root:
        try:
            data = _to_bytes(obj)
        except Exception as error:  # pickle lets through whatever an object's methods raise
            failure = error
    length = torch.tensor([-1 if failure else data.numel()])
    broadcast_(length, root_rank, name or "broadcast_object length")
    if length.item() < 0:
        raise InvalidArgumentError(
            f"broadcast_object: obj of rank {root_rank} cannot be pickled"
        ) from failure
    if not is_root:
        data = data.new_empty(int(length.item()))
    broadcast_(data, root_rank, name or "broadcast_object")
    return obj if is_root else _from_bytes(data)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, by rank; each must be picklable."""
    operation, pieces = gather_rows(_to_bytes(obj), name or "allgather_object")
    operation.run()
    return [_from_bytes(piece) for piece in pieces()]


def check_same(subject: str, lines: Sequence[str]) -> None:
    """Raises MismatchError on every rank, with the first difference, unless `lines` agree."""
    digest = hashlib.sha256("\n".join(lines).encode()).digest()
    digests = gather_equal(torch.frombuffer(bytearray(digest), dtype=torch.uint8), subject)
    if bool((digests == digests[0]).all()):
        return
    everyone = allgather_object(list(lines), subject)
    different = [rank for rank, theirs in enumerate(everyone) if theirs != everyone[0]]
    theirs, ours = _first_difference(everyone[different[0]], everyone[0])
    ranks = f"rank {different[0]}" if len(different) == 1 else f"ranks {different}"
    raise MismatchError(
        f"{subject} of {ranks} differs from that of rank 0. "
        f"Rank {different[0]}: {theirs}. Rank 0: {ours}."
    )


def _first_difference(theirs: list[str], ours: list[str]) -> tuple[str, str]:
    length = max(len(theirs), len(ours))
    padded = [lines + ["nothing more"] * (length - len(lines)) for lines in (theirs, ours)]
    return next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any] | torch.Tensor], root_rank: int
) -> None:
    """Gives every rank the parameters of rank `root_rank`, in place.

    `params` is a state_dict, the result of named_parameters(), or a list of tensors. Entries
    that are not tensors are left alone.

    Errors   MismatchError on every rank if names, shapes or dtypes differ between ranks.
    """
    check_root(root_rank, "broadcast_parameters")
    items = sorted(params.items()) if isinstance(params, Mapping) else list(params)
    named = [
        item if isinstance(item, tuple) else (f"parameter {index}", item)
        for index, item in enumerate(items)
    ]
    tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    check_same(
        "broadcast_parameters: the list",
        [f"'{name}' of {_shape_in_words(tensor)}" for name, tensor in tensors.items()],
    )
    _broadcast_all(tensors, root_rank)


def _shape_in_words(tensor: torch.Tensor) -> str:
    return f"dtype {tensor.dtype} and shape {list(tensor.shape)}"


def _broadcast_all(tensors: Mapping[str, torch.Tensor], root_rank: int) -> None:
    """In place; those that are not contiguous go through a copy."""
    started: list[tuple[torch.Tensor, Handle]] = []
    for name, tensor in tensors.items():
        memory = tensor.detach().contiguous()
        started.append((tensor, broadcast_async_(memory, root_rank, name)))
    for tensor, handle in started:
        received = handle.wait()
        if received.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(received)


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


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Gives every rank the state and the hyperparameters of rank `root_rank`'s optimizer.

    Ranks that have made no step yet receive the state all the same.
    """
    check_root(root_rank, "broadcast_optimizer_state")
    is_root = farandole.rank() == root_rank
    tensors: list[torch.Tensor] = []
    skeleton = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, "optimizer state")
    received = None if is_root else _with_tensors(skeleton, tensors)
    names = (f"optimizer state tensor {index}" for index in range(len(tensors)))
    _broadcast_all(dict(zip(names, tensors, strict=True)), root_rank)
    if received is not None:
        optimizer.load_state_dict(received)
