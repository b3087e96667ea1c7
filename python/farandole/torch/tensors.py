# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Collectives on torch tensors: argument checks, pointers for the native module, handles.

Tensors are dense and on the CPU. A tensor that is not contiguous is copied by the operations
that return a new tensor and refused by those that work in place. Operations run in the order
of the calls, which must be the same on every rank. Every call that waits releases the GIL.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

import farandole
from farandole import _native
from farandole._arrays import COLLECTIVE_INDEX, DTYPE_INDEX, REDUCTION_INDEX
from farandole.errors import (
    FarandoleError,
    InvalidArgumentError,
    MismatchError,
    UnsupportedError,
)

# PyTorch says in the name that its float8_e4m3 has no infinities, as ours has none.
_TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn"}
_DTYPES = {
    getattr(torch, _TORCH_NAMES.get(name, name)): index for name, index in DTYPE_INDEX.items()
}
_DIMENSIONS_MAX = 8
Returned = TypeVar("Returned")


class ReduceOp(enum.Enum):
    """What an allreduce or reducescatter computes; the values are the native names."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


@dataclass(frozen=True)
class Scaling:
    """A native reduction with its factor, and what the result is multiplied by afterwards."""

    reduction: str
    factor: float = 1.0
    after: float = 1.0

    @staticmethod
    def of(op: ReduceOp, prescale: float, postscale: float) -> Scaling:
        if prescale == 1.0:
            return Scaling(op.value, after=postscale)
        if op is Sum:
            return Scaling("premultiplied_sum", prescale, postscale)
        if op is Average:
            return Scaling("premultiplied_sum", prescale, postscale / farandole.size())
        raise InvalidArgumentError(
            f"prescale_factor is {prescale} with op {op.name}; only SUM and AVERAGE take one"
        )


@dataclass(frozen=True, eq=False)
class Operation:
    """One native call, the tensors it needs alive, and how its result is made in the end."""

    collective: str
    input: torch.Tensor
    output: torch.Tensor
    count: int  # elements, in the native module's terms
    finish: Callable[[], torch.Tensor]
    reduction: str = "sum"
    factor: float = 1.0
    root: int = 0
    name: str = ""

    def run(self) -> torch.Tensor:
        _release_orphans()
        self._call(farandole.world().native.run)
        return self.finish()

    def start(self) -> Handle:
        _release_orphans()
        return Handle(self._call(farandole.world().native.start), self)

    def _call(self, native: Callable[..., Returned]) -> Returned:
        return native(
            COLLECTIVE_INDEX[self.collective],
            self.input.data_ptr(),
            self.output.data_ptr(),
            self.count,
            _DTYPES[self.input.dtype],
            reduction=REDUCTION_INDEX[self.reduction],
            root=self.root,
            name=self.name,
            factor=self.factor,
        )


class Handle:
    """An operation in flight; owns its tensors until it is over, even when it is dropped early."""

    def __init__(self, request: _native.Request, operation: Operation) -> None:
        self._request = request
        self._operation = operation
        self._result: torch.Tensor | None = None

    def done(self) -> bool:
        """True when finished; raises what the operation failed with. Does not block."""
        return self._result is not None or self._request.test()

    def wait(self) -> torch.Tensor:
        """The result. Blocks without the GIL; a second call returns the same tensor."""
        if self._result is None:
            self._request.wait()
            self._result = self._operation.finish()
        return self._result

    def __del__(self) -> None:
        if self._result is None:
            _orphans.add((self._request, self._operation))


# Operations whose handle was dropped before the end: their memory is still being written.
_orphans: set[tuple[_native.Request, Operation]] = set()


def _release_orphans() -> None:
    for orphan in tuple(_orphans):
        if _is_over(orphan[0]):
            _orphans.discard(orphan)


def _is_over(request: _native.Request) -> bool:
    try:
        return request.test()
    except FarandoleError:
        return True


def check_tensor(tensor: torch.Tensor, caller: str) -> None:
    """Raises unless `tensor` is dense, on the CPU and of a dtype that the library moves."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(
            f"{caller}: tensor is a {type(tensor).__name__}, allowed is a torch.Tensor"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{caller}: tensor is on device {tensor.device}, allowed is cpu")
    if tensor.layout != torch.strided:
        raise UnsupportedError(
            f"{caller}: tensor has layout {tensor.layout}, allowed is torch.strided"
        )
    if tensor.dtype not in _DTYPES:
        allowed = ", ".join(_native.DTYPES)
        raise UnsupportedError(f"{caller}: tensor has dtype {tensor.dtype}, allowed are {allowed}")


def readable(tensor: torch.Tensor, caller: str) -> torch.Tensor:
    """`tensor`, or a copy of it, whose memory holds its elements in order."""
    check_tensor(tensor, caller)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def writable(tensor: torch.Tensor, caller: str) -> torch.Tensor:
    """`tensor` detached, sharing memory; raises if its memory is not its elements in order."""
    check_tensor(tensor, caller)
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"{caller}: tensor of shape {list(tensor.shape)} with strides {list(tensor.stride())} "
            "is not contiguous; allowed in place are contiguous tensors"
        )
    return tensor.detach()


def check_root(root_rank: int, caller: str) -> None:
    size = farandole.size()
    if not 0 <= root_rank < size:
        raise InvalidArgumentError(
            f"{caller}: root_rank is {root_rank}, allowed is 0 to {size - 1}"
        )


def _resolve_op(op: ReduceOp | None, average: bool | None) -> ReduceOp:
    if average is not None:
        if op is not None:
            raise InvalidArgumentError(
                f"average is {average} and op is {op.name}; allowed is one of the two"
            )
        warnings.warn("average= is deprecated, pass op=", DeprecationWarning, stacklevel=4)
        return Average if average else Sum
    if op is not None and not isinstance(op, ReduceOp):
        allowed = ", ".join(each.name for each in ReduceOp)
        raise InvalidArgumentError(f"op is {op!r}, allowed is a ReduceOp: {allowed}")
    return op or Average


def _allreduce(
    source: torch.Tensor,
    target: torch.Tensor,
    returned: torch.Tensor,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    name: str | None,
) -> Operation:
    scaled = prescale != 1.0 or postscale != 1.0
    if scaled and not (source.is_floating_point() or source.is_complex()):
        raise InvalidArgumentError(
            f"allreduce: prescale_factor is {prescale} and postscale_factor is {postscale} for "
            f"dtype {source.dtype}; allowed for integers is 1.0"
        )
    scaling = Scaling.of(op, prescale, postscale)

    def finish() -> torch.Tensor:
        if scaling.after != 1.0:
            target.mul_(scaling.after)
        return returned

    return Operation(
        "allreduce",
        source,
        target,
        source.numel(),
        finish,
        scaling.reduction,
        scaling.factor,
        name=name or "allreduce",
    )


def _allreduce_copy(
    tensor: torch.Tensor,
    average: bool | None,
    name: str | None,
    op: ReduceOp | None,
    prescale_factor: float,
    postscale_factor: float,
) -> Operation:
    source = readable(tensor, "allreduce")
    target = torch.empty_like(source)
    op = _resolve_op(op, average)
    return _allreduce(source, target, target, op, prescale_factor, postscale_factor, name)


def _allreduce_in_place(
    tensor: torch.Tensor,
    average: bool | None,
    name: str | None,
    op: ReduceOp | None,
    prescale_factor: float,
    postscale_factor: float,
) -> Operation:
    target = writable(tensor, "allreduce_")
    op = _resolve_op(op, average)
    return _allreduce(target, target, tensor, op, prescale_factor, postscale_factor, name)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    *,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """A new tensor: the reduction (Average by default) of `tensor` over all ranks.

    `prescale_factor` multiplies every input, `postscale_factor` the result.
    """
    return _allreduce_copy(tensor, average, name, op, prescale_factor, postscale_factor).run()


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Starts an allreduce(); leave `tensor` unchanged until the handle is synchronized."""
    return _allreduce_copy(tensor, average, name, op, prescale_factor, postscale_factor).start()


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """allreduce() whose result replaces `tensor`."""
    return _allreduce_in_place(tensor, average, name, op, prescale_factor, postscale_factor).run()


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    *,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Starts an allreduce_(); leave `tensor` alone until the handle is synchronized."""
    return _allreduce_in_place(tensor, average, name, op, prescale_factor, postscale_factor).start()


def _first_dimensions(tensor: torch.Tensor) -> list[int]:
    """First dimension of `tensor` on every rank; checks that the rest agrees. Blocks."""
    if not 1 <= tensor.dim() <= _DIMENSIONS_MAX:
        raise InvalidArgumentError(
            f"allgather: tensor has {tensor.dim()} dimensions, allowed is 1 to {_DIMENSIONS_MAX}"
        )
    header = torch.full((2 + _DIMENSIONS_MAX,), -1, dtype=torch.int64)
    header[:2] = torch.tensor([_DTYPES[tensor.dtype], tensor.dim()])
    header[2 : 2 + tensor.dim()] = torch.tensor(tensor.shape)
    headers = gather_equal(header, "allgather sizes").tolist()
    for rank, other in enumerate(headers):
        if other[:2] != headers[0][:2] or other[3:] != headers[0][3:]:
            raise MismatchError(
                f"allgather: rank {rank} gave {_described(other)} and rank 0 gave "
                f"{_described(headers[0])}; allowed to differ is the first dimension only"
            )
    return [other[2] for other in headers]


def _described(header: list[int]) -> str:
    return f"{_native.DTYPES[header[0]]} of shape {header[2 : 2 + header[1]]}"


def gather_equal(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """`tensor`, contiguous and of one shape on every rank, stacked: [rank_count, *shape]."""
    gathered = tensor.new_empty((farandole.size(), *tensor.shape))
    return Operation(
        "allgather", tensor, gathered, tensor.numel(), lambda: gathered, name=name
    ).run()


def gather_rows(
    tensor: torch.Tensor, name: str
) -> tuple[Operation, Callable[[], list[torch.Tensor]]]:
    """An allgather of tensors that differ in the first dimension, and its result by rank.

    Blocks until every rank has told its size; the returned operation is not started. It moves
    blocks of the largest size, the smaller ones padded.
    """
    source = readable(tensor, "allgather")
    rows = _first_dimensions(source)
    block = (max(rows), *source.shape[1:])
    if source.shape[0] < block[0]:
        padded = source.new_zeros(block)
        padded[: source.shape[0]] = source
        source = padded
    gathered = source.new_empty((len(rows), *block))

    def pieces() -> list[torch.Tensor]:
        return [gathered[rank, :count] for rank, count in enumerate(rows)]

    def finish() -> torch.Tensor:
        if min(rows) == block[0]:
            return gathered.flatten(0, 1)
        return torch.cat(pieces())

    count = math.prod(block)
    return Operation("allgather", source, gathered, count, finish, name=name), pieces


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The tensors of all ranks one after the other along the first dimension.

    First dimensions may differ: ranks exchange them first, then blocks padded to the largest
    are gathered and trimmed, so a single long tensor makes every rank's share as expensive.
    """
    return gather_rows(tensor, name or "allgather")[0].run()


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> Handle:
    """Starts an allgather(). The exchange of the first dimensions is over when this returns."""
    return gather_rows(tensor, name or "allgather")[0].start()


def _broadcast(
    target: torch.Tensor, returned: torch.Tensor, root_rank: int, name: str | None
) -> Operation:
    check_root(root_rank, "broadcast")
    return Operation(
        "broadcast",
        target,
        target,
        target.numel(),
        lambda: returned,
        root=root_rank,
        name=name or "broadcast",
    )


def _broadcast_copy(tensor: torch.Tensor, root_rank: int, name: str | None) -> Operation:
    target = readable(tensor, "broadcast").clone()
    return _broadcast(target, target, root_rank, name)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """A new tensor: that of rank `root_rank`. `tensor` has the same shape and dtype everywhere."""
    return _broadcast_copy(tensor, root_rank, name).run()


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Starts a broadcast()."""
    return _broadcast_copy(tensor, root_rank, name).start()


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """broadcast() into `tensor` itself."""
    return _broadcast(writable(tensor, "broadcast_"), tensor, root_rank, name).run()


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Starts a broadcast_(); leave `tensor` alone until the handle is synchronized."""
    return _broadcast(writable(tensor, "broadcast_"), tensor, root_rank, name).start()


def _reducescatter(tensor: torch.Tensor, op: ReduceOp | None, name: str | None) -> Operation:
    source = readable(tensor, "reducescatter")
    if source.dim() == 0:
        raise InvalidArgumentError("reducescatter: tensor has 0 dimensions, allowed is 1 or more")
    size, rank = farandole.size(), farandole.rank()
    shares = [len(range(each, source.shape[0], size)) for each in range(size)]
    block = (shares[0], *source.shape[1:])
    if shares[-1] < shares[0]:
        padded = source.new_zeros((size, *block))
        for target, share in zip(padded, source.split(shares), strict=True):
            target[: share.shape[0]] = share
        source = padded
    result = source.new_empty(block)
    return Operation(
        "reducescatter",
        source,
        result,
        result.numel(),
        lambda: result[: shares[rank]],
        _resolve_op(op, None).value,
        name=name or "reducescatter",
    )


def reducescatter(
    tensor: torch.Tensor, op: ReduceOp | None = None, name: str | None = None
) -> torch.Tensor:
    """This rank's rows of the reduction (Average by default) of `tensor` over all ranks.

    The first dimension is split evenly; what is left over goes to the first ranks, a row each
    (the others' blocks are padded on the way).
    """
    return _reducescatter(tensor, op, name).run()


def reducescatter_async(
    tensor: torch.Tensor, op: ReduceOp | None = None, name: str | None = None
) -> Handle:
    """Starts a reducescatter()."""
    return _reducescatter(tensor, op, name).start()


def barrier() -> None:
    """Returns when every rank has called it."""
    nothing = torch.empty(0)
    Operation("barrier", nothing, nothing, 0, lambda: nothing, name="barrier").run()


def synchronize(handle: Handle) -> torch.Tensor:
    """Waits for an operation and returns its result, or raises what it failed with."""
    return handle.wait()


def poll(handle: Handle) -> bool:
    """True when synchronize() would not block; raises what the operation failed with."""
    return handle.done()
