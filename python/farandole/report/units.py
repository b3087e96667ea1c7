# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Times and sizes as people read them."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def seconds_text(seconds: float) -> str:
    """Four digits, in s, ms or us."""
    scale, unit = next(((s, u) for s, u in _TIMES if seconds >= s), _TIMES[-1])
    value = seconds / scale
    digits = max(0, 3 - len(str(int(value))) + (value < 1))
    return f"{value:,.{digits}f} {unit}"


def size_text(size_bytes: int) -> str:
    """In the largest unit that has no fraction."""
    scale, unit = next(((s, u) for s, u in _SIZES if size_bytes and size_bytes % s == 0), (1, "B"))
    return f"{size_bytes // scale:,} {unit}"
