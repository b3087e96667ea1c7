# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: ranks work in what a batch system's limits leave them, or say which limit is in the way; a
core dump holds none of the memory that they share.

Method: ranks limit themselves before init(), as `ulimit` in a job script would, and exchange arrays
in library-owned memory and outside it; they look up how the system has mapped it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Job

Start = Callable[..., Job]
Write = Callable[[str], Path]
MIB = 2**20

EXCHANGE = """
import os, resource
import numpy as np
import farandole
rank, size = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
for kind, value, ranks in {limits}:
    if rank in ranks:
        resource.setrlimit(kind, (value, value))
farandole.init()
owned = farandole.empty(1 << 18, "float32")
owned[:] = rank
assert np.all(farandole.allreduce(owned, out=owned) == sum(range(size)))
assert np.all(farandole.allreduce(np.full(300_000, rank + 1.0)) == sum(range(size + 1)))
blocks = farandole.alltoall(np.arange(float(size)))
assert np.all(blocks == rank)
"""
MAPPED = """
reserved, flags = 0, []
with open("/proc/self/smaps") as smaps:
    for line in smaps:
        if "-" in line.split()[0]:
            ours = "memfd:farandole" in line
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            reserved += ours * (last - first)
        elif ours and line.startswith("VmFlags"):
            flags.append("dd" in line.split())
assert flags and all(flags), "in core dumps"
os.write(1, f"{reserved}\\n".encode())
farandole.barrier()
"""


def limited(*limits: tuple[str, int, tuple[int, ...]]) -> str:
    listed = ", ".join(f"(resource.{kind}, {value}, {ranks})" for kind, value, ranks in limits)
    return EXCHANGE.format(limits=f"[{listed}]")


# Goal: every process maps all memories of its host within the limit. Method: a usual limit, one
# that hardly leaves anything, one of a single rank, whose peers must make room for it; a limit on
# files; none.
@pytest.mark.parametrize(
    ("limits", "reserved_max"),
    [
        ([], 4 * 64 * 1024 * MIB + 8 * MIB),
        ([("RLIMIT_AS", 40 * 1024 * MIB, (0, 1, 2, 3))], 20 * 1024 * MIB),
        ([("RLIMIT_AS", 1024 * MIB, (0, 1, 2, 3))], 512 * MIB),
        ([("RLIMIT_AS", 2048 * MIB, (2,))], 1024 * MIB),
        ([("RLIMIT_FSIZE", 64 * MIB, (0, 1, 2, 3))], 4 * 64 * MIB),
    ],
    ids=["none", "40 GiB", "1 GiB", "one rank", "files"],
)
def test_limits_are_kept(
    start: Start, write: Write, limits: list[tuple[str, int, tuple[int, ...]]], reserved_max: int
) -> None:
    job = start("-n", "4", write(limited(*limits) + MAPPED))
    assert job.finish() == 0, job.stderr
    reserved = [int(line) for line in job.stdout.split()]
    assert len(reserved) == 4
    assert len(set(reserved)) == 1
    assert 4 * 16 * MIB <= reserved[0] <= reserved_max


# Goal: where a limit leaves too little, the error names it, the setting, what there is and what was
# needed.
@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        ("RLIMIT_AS", "used + (40 << 20)", "ulimit -v"),
        ("RLIMIT_FSIZE", "2 << 20", "ulimit -f"),
        ("RLIMIT_FSIZE", "4096", "ulimit -f"),
    ],
)
def test_too_tight_limits_are_named(
    start: Start, write: Write, kind: str, value: str, named: str
) -> None:
    source = f"""
import resource
import farandole
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = {value}
resource.setrlimit(resource.{kind}, (limit, limit))
try:
    farandole.init()
except farandole.FarandoleError as error:
    text = str(error)
    assert "FARANDOLE_MEMORY" in text and f"({named}) is {{limit}} bytes" in text, text
else:
    raise SystemExit("no error")
"""
    job = start("-n", "2", write(source))
    assert job.finish() == 0, job.stderr
