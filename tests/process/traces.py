# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What processes hold in the kernel, to see whether it goes with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def socket_inodes(pids: Iterable[int]) -> set[str]:
    """Inodes of all sockets that these processes have open."""
    found = set()
    for pid in pids:
        try:
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue  # gone meanwhile
        found |= {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
    return found


def known_inodes() -> set[str]:
    """Inodes of all TCP and Unix sockets of this machine."""
    tcp = [line.split()[9] for name in ("tcp", "tcp6") for line in _table(name)]
    return set(tcp) | {line.split()[6] for line in _table("unix")}


def shared_memory_names() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "farandole" in path.name}


def _table(name: str) -> list[str]:
    path = Path("/proc/net") / name
    return path.read_text().splitlines()[1:] if path.exists() else []
