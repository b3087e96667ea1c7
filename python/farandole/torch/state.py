# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that ranks share besides gradients: parameters, optimizer state, Python objects.

Objects travel as pickles, which run code when they are read: all ranks of a job trust each other.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch

import farandole
from farandole import errors
from farandole.coordination.process_sets import ProcessSet, check_process_set, global_process_set
from farandole.errors import FarandoleError, InvalidArgumentError, MismatchError, WrongTypeError
from farandole.torch.tasks import check_tensor
from farandole.torch.tensors import broadcast_, broadcast_group, gather_rows, name_or_number


@dataclass(frozen=True)
class _Failure:
    """What travels in place of an object that could not be made or pickled."""

    kind: str
    text: str

    def error(self) -> FarandoleError:
        known: type[FarandoleError] = getattr(errors, self.kind, InvalidArgumentError)
        return known(self.text)


def _pickled(make: Callable[[], Any], subject: str) -> tuple[torch.Tensor, Exception | None]:
    """What make() returns, or, since other ranks wait for something, how it failed."""
    failure: Exception | None = None
    try:
        data = pickle.dumps(make())
    except Exception as error:  # pickle lets through whatever an object's methods raise
        failure = error
        text = str(error)
        if not isinstance(error, FarandoleError):
            text = f"{subject} cannot be pickled: {type(error).__name__}: {text}"
        data = pickle.dumps(_Failure(type(error).__name__, text))
    return torch.frombuffer(bytearray(data), dtype=torch.uint8), failure


def _unpickled(data: torch.Tensor, cause: Exception | None = None) -> Any:
    """The object; raises where it is a failure, `cause` on the rank that had it."""
    value = pickle.loads(data.numpy().data)
    if isinstance(value, _Failure):
        raise value.error() from cause
    return value


def _from_root(
    make: Callable[[], Any], subject: str, root_rank: int, name: str, process_set: ProcessSet
) -> Any:
    """What make() returns on the root; what it raises there is raised on every rank."""
    process_set.position(root_rank, "root_rank")
    is_root = farandole.rank() == root_rank
    data, failure = _pickled(make, subject) if is_root else (torch.empty(0), None)
    length = torch.tensor([data.numel()])
    broadcast_(length, root_rank, f"{name}.length", process_set)
    if not is_root:
        data = torch.empty(int(length.item()), dtype=torch.uint8)
    broadcast_(data, root_rank, name, process_set)
    return _unpickled(data, failure)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank `root_rank`, which must be picklable; the others pass anything.

    Errors   InvalidArgumentError on every rank if it cannot be pickled.
    """
    name = name_or_number(name, "broadcast_object", process_set)
    subject = f"broadcast_object: obj of rank {root_rank}"
    received = _from_root(lambda: obj, subject, root_rank, name, process_set)
    return obj if farandole.rank() == root_rank else received


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks that have not joined, by rank; each must be picklable.

    Errors   InvalidArgumentError on every rank if one of them cannot be pickled.
    """
    name = name_or_number(name, "allgather_object", process_set)
    data, failure = _pickled(lambda: obj, f"allgather_object: obj of rank {farandole.rank()}")
    gathered, rows = gather_rows(data, name, process_set)
    return [_unpickled(piece, failure) for piece in gathered.split(rows) if len(piece)]


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


Parameters = (
    torch.nn.Module | torch.Tensor | Mapping[str, Any] | Iterable[tuple[str, Any] | torch.Tensor]
)


def broadcast_parameters(
    params: Parameters, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Gives every rank the parameters of rank `root_rank`, in place.

    `params` is a module, a state_dict, the result of named_parameters(), or a list of tensors.
    What a state_dict has besides tensors is left alone.

    Errors   WrongTypeError for anything else; InvalidArgumentError if there is no tensor in it, or
             one name twice; MismatchError on every rank if names, shapes or dtypes differ.
    """
    check_process_set(process_set, "broadcast_parameters")
    _broadcast_all(_named_tensors(params), root_rank, "broadcast_parameters", process_set)


def _named_tensors(params: Parameters) -> dict[str, torch.Tensor]:
    allowed = "allowed are a module, a state_dict, (name, tensor) pairs, or tensors"
    if isinstance(params, torch.nn.Module):
        params = params.state_dict()
    if isinstance(params, torch.Tensor):
        params = [params]
    if isinstance(params, str | bytes) or not isinstance(params, Iterable):
        raise WrongTypeError(
            f"broadcast_parameters: params is a {type(params).__name__}, {allowed}"
        )
    is_mapping = isinstance(params, Mapping)
    items = sorted(params.items()) if isinstance(params, Mapping) else list(params)
    named: dict[str, torch.Tensor] = {}
    for index, item in enumerate(items):
        is_pair = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
        name, value = item if is_pair else (f"parameter {index}", item)
        if name in named:
            raise InvalidArgumentError(
                f"broadcast_parameters: params has '{name}' twice, allowed are unique names"
            )
        if isinstance(value, torch.Tensor):
            named[name] = value
        elif not is_mapping or isinstance(value, Mapping | list | tuple):
            raise WrongTypeError(
                f"broadcast_parameters: '{name}' of params is a {type(value).__name__}, {allowed}; "
                "broadcast_optimizer_state() is for optimizers"
            )
    if not named and (items or not isinstance(params, Sized)):
        raise InvalidArgumentError(
            f"broadcast_parameters: params is a {type(params).__name__} without tensors, perhaps "
            f"one that was used up before; {allowed}"
        )
    return named


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
        copied = copy.copy(value)  # of whatever subclass
        copied.update((key, convert(part)) for key, part in value.items())
        return copied
    if isinstance(value, list | tuple | deque):
        parts = [convert(part) for part in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the state and the hyperparameters of rank `root_rank`'s optimizer, with the
    dtypes that they have there.

    Ranks that have made no step yet receive the state all the same. `model` is not needed; it is
    one of Horovod's arguments.

    Errors   MismatchError on every rank if the groups of parameters differ in number or length;
             what goes wrong on the root is raised on every rank.
    """
    name = "broadcast_optimizer_state"
    check_process_set(process_set, name)
    process_set.position(root_rank, "root_rank")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise WrongTypeError(
            f"{name}: optimizer is a {type(optimizer).__name__}, allowed is a torch optimizer"
        )
    groups = [
        f"group {index} has {len(group['params'])} parameters"
        for index, group in enumerate(optimizer.param_groups)
    ]
    check_same(f"{name}: the optimizer", groups, process_set)
    is_root = farandole.rank() == root_rank
    tensors: list[torch.Tensor] = []

    def skeleton() -> Any:
        stripped = _without_tensors(optimizer.state_dict(), tensors)
        for tensor in tensors:
            check_tensor(tensor, f"{name}: state of the optimizer")
        return stripped

    subject = f"{name}: the optimizer of rank {root_rank}"
    received = _from_root(skeleton, subject, root_rank, name, process_set)
    if not is_root:
        received = _with_tensors(received, tensors)
    numbered = {f"tensor {index}": tensor for index, tensor in enumerate(tensors)}
    _broadcast_all(numbered, root_rank, name, process_set)
    if not is_root:
        _load(optimizer, received)


def _load(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """load_state_dict() that leaves dtypes and containers of the state as they are: torch's
    converts to the dtype of the parameters, and knows no namedtuples."""
    optimizer.load_state_dict({**state_dict, "state": {}})
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=True))
    for key, value in state_dict["state"].items():
        optimizer.state[by_number.get(key, key)] = value
