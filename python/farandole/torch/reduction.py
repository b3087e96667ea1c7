# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What an allreduce or reducescatter computes, in the caller's and in the library's terms."""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass

from farandole._native import Reduction
from farandole.errors import InvalidArgumentError, WrongTypeError


class ReduceOp(enum.Enum):
    """What an allreduce or reducescatter computes.

    AVERAGE divides by the number of ranks; after join() those that have joined count too, as zeros.
    ACTIVE_AVERAGE leaves them out.
    """

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"
    ADASUM = "adasum"
    ACTIVE_AVERAGE = "active average"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = ReduceOp.ADASUM
ActiveAverage = ReduceOp.ACTIVE_AVERAGE


@dataclass(frozen=True)
class Scaling:
    """A native reduction, what every input is multiplied by, and what its result is."""

    reduction: Reduction
    prescale: float = 1.0
    postscale: float = 1.0
    leaves_out_joined: bool = False

    @staticmethod
    def of(op: ReduceOp, prescale: float = 1.0, postscale: float = 1.0) -> Scaling:
        others = {Adasum: Reduction.sum, ActiveAverage: Reduction.average}
        native = others.get(op) or Reduction[op.value]
        factors = _number("prescale_factor", prescale), _number("postscale_factor", postscale)
        return Scaling(native, *factors, op is ActiveAverage)


UNSCALED = Scaling(Reduction.sum)


def _number(argument: str, value: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # the last one of a tensor
        raise WrongTypeError(f"{argument} is {value!r}, allowed is a number") from error


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
