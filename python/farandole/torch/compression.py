# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What makes tensors smaller on their way between ranks."""

from __future__ import annotations

import torch

from farandole.errors import WrongTypeError


class Compressor:
    """Leaves tensors as they are. Subclasses may be passed wherever `compression` is asked for.

    compress() is given a tensor and returns what is to be sent, and anything that decompress()
    is to be given along with the result.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        return tensor


Compressing = type[Compressor] | Compressor  # a class or an object of it


class _Narrowing(Compressor):
    """Sends floating-point numbers that are wider than `wire` as `wire`, others as they are."""

    wire = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        wider = tensor.is_floating_point() and tensor.dtype.itemsize > cls.wire.itemsize
        return (tensor.to(cls.wire), tensor.dtype) if wider else (tensor, None)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        return tensor.to(ctx) if isinstance(ctx, torch.dtype) else tensor


class _Float16(_Narrowing):
    """IEEE half precision: 11 significant bits, up to 65,504."""


class _BFloat16(_Narrowing):
    """8 significant bits, the range of float32."""

    wire = torch.bfloat16


def name_of(compression: Compressing) -> str:
    """For messages, and for ranks to compare. Raises unless it compresses and decompresses."""
    methods = (getattr(compression, each, None) for each in ("compress", "decompress"))
    if not all(callable(method) for method in methods):
        raise WrongTypeError(
            f"compression is {compression!r}, allowed is a Compressor, as Compression.fp16"
        )
    kind = compression if isinstance(compression, type) else type(compression)
    return kind.__name__


class Compression:
    """The compressors that come with the library."""

    none = Compressor
    fp16 = _Float16
    bf16 = _BFloat16
