# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them: 4, 8K, 256MiB."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "B": 1,
    "K": 2**10,
    "KIB": 2**10,
    "M": 2**20,
    "MIB": 2**20,
    "G": 2**30,
    "GIB": 2**30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "T": 2**40,
    "TIB": 2**40,
    "TB": 10**12,
}
BYTES_MAX = 10**15  # far beyond any message; what is computed from it fits 64 bits


def parse_size(text: str) -> int:
    """Bytes; K, M, G and T count by 1024, as KiB and so on do. ValueError for anything else."""
    match = re.fullmatch(r"([0-9]{1,18})\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"a size is {text[:80]!r}, allowed are forms like 4, 8K, 256M or 1GiB")
    size_bytes = int(match[1]) * _UNITS[match[2].upper()]
    if size_bytes > BYTES_MAX:
        raise ValueError(f"a size is {text!r}, allowed is {BYTES_MAX // 10**12} TB at most")
    return size_bytes


def size_steps(begin: int, end: int, factor: int) -> list[int]:
    """begin, begin * factor, ... up to end."""
    if begin < 1 or factor < 2:
        raise ValueError(f"sizes begin at {begin} and grow by {factor}, allowed are 1 and 2 up")
    if begin > end:
        raise ValueError(f"sizes begin at {begin}, above the last, {end}")
    steps = []
    while begin <= end:
        steps.append(begin)
        begin *= factor
    return steps
