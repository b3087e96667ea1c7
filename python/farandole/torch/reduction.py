# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What an allreduce or reducescatter computes, in the caller's and in the library's terms."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass

import torch

from farandole.errors import InvalidArgumentError


class ReduceOp(enum.Enum):
    """What an allreduce or reducescatter computes; the values but Adasum's are native names."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"
    ADASUM = "adasum"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = ReduceOp.ADASUM


@dataclass(frozen=True)
class Scaling:
    """A native reduction with its factor, and what is multiplied before and after it.

    An average is not a sum with a factor: after join() the library knows how many ranks it is of.
    """

    reduction: str
    factor: float = 1.0
    before: float = 1.0
    after: float = 1.0

    @staticmethod
    def of(op: ReduceOp, prescale: float = 1.0, postscale: float = 1.0) -> Scaling:
        if op is Adasum:
            return Scaling("sum", before=prescale, after=postscale)
        if prescale == 1.0:
            return Scaling(op.value, after=postscale)
        if op is Sum:
            return Scaling("premultiplied_sum", prescale, after=postscale)
        if op is Average:
            return Scaling("average", before=prescale, after=postscale)
        raise InvalidArgumentError(
            f"prescale_factor is {prescale} with op {op.name}; "
            "only SUM, AVERAGE and ADASUM take one"
        )


def resolve_op(op: ReduceOp | None, average: bool | None = None, level: int = 3) -> ReduceOp:
    """The reduction that is meant; `level` is where the caller is that is told of `average`."""
    if average is not None:
        if op is not None:
            raise InvalidArgumentError(
                f"average is {average} and op is {op.name}; allowed is one of the two"
            )
        warnings.warn("average= is deprecated, pass op=", DeprecationWarning, stacklevel=level + 1)
        return Average if average else Sum
    if op is not None and not isinstance(op, ReduceOp):
        allowed = ", ".join(each.name for each in ReduceOp)
        raise InvalidArgumentError(f"op is {op!r}, allowed is a ReduceOp: {allowed}")
    return op or Average


def check_scales(tensor: torch.Tensor, prescale: float, postscale: float, caller: str) -> None:
    """Raises if a tensor of integers is to be scaled."""
    scaled = prescale != 1.0 or postscale != 1.0
    if scaled and not (tensor.is_floating_point() or tensor.is_complex()):
        raise InvalidArgumentError(
            f"{caller}: prescale_factor is {prescale} and postscale_factor is {postscale} for "
            f"dtype {tensor.dtype}; allowed for integers is 1.0"
        )
