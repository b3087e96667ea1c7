# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a collective needs at least on this machine, by what limits.cpp measures.

The longest of these, for n bytes, p ranks and C cores, k = min(p, C) of them in use:

- One hop: a line from one core to another, or a byte through a socket. Not of a broadcast: its
  root waits for nobody, so calls that follow each other overlap; over TCP it sends p-1 messages.
- What must cross, over the rate of the cores in use together. With shared memory that is between
  cores: (k-1) n, of an allreduce 2 (k-1) n, at the rate at which lines that another core wrote
  arrive. Over TCP it is between ranks, p in place of k, at the rate of sockets.
- What must come from memory and go there, each beyond what all caches together hold: reads over
  the rate of reads, writes over the rate of writes, the lesser of both over the rate of copies.

                    reads   writes
    allreduce       p n     p n        in place, and apart
    reducescatter   p n     n
    allgather       n       p n
    broadcast       n       (p-1) n    n is what the root has

With m cores in use, of C, a rate is that of one core times m, at most that of all.

It is a model. Its rates are the best that limits.cpp reached, less than the best possible where
others keep the machine busy. In measure.hpp nobody touches buffers between two calls, so part of
what must cross may have stayed in the cache of the core that needs it again. More ranks than cores
take turns, which is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Probe = Mapping[str, Any]


def better(one: Probe, other: Probe) -> dict[str, Any]:
    """The higher rates and the shorter hops of two."""
    found: dict[str, Any] = {}
    for key, value in one.items():
        if isinstance(value, dict):
            found[key] = {cores: max(rate, other[key][cores]) for cores, rate in value.items()}
        else:
            found[key] = min(value, other[key])
    return found


def cache_bytes() -> int:
    """All caches of the second and third level together; 0 where Linux does not say."""
    found = {}
    for index in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index[23]"):
        size = (index / "size").read_text().strip()
        shared = (index / "shared_cpu_list").read_text()
        found[index.name, shared] = int(size.removesuffix("K")) << 10
    return sum(found.values())


def limit_us(probe: Probe, collective: str, ranks: int, transport: str, size: int) -> float:
    """`probe`: what limits.cpp prints, and `cache_bytes`."""
    tcp = transport == "tcp"
    cores = min(ranks, probe["cores"])

    def us(amount: float, kind: str) -> float:
        rates = probe[kind]
        units = cores / 2 if kind == "sockets" else cores  # a pair of cores measured "one"
        return amount / min(units * rates["one"], rates["all"]) / 1e3  # 1 GB/s: 1000 bytes/us

    crossing = (
        ((ranks if tcp else cores) - 1) * size * (2 if collective.startswith("allreduce") else 1)
    )
    reads = size if collective in ("allgather", "broadcast") else ranks * size
    writes = {"reducescatter": 1, "broadcast": ranks - 1}.get(collective, ranks) * size
    reads, writes = (max(0, amount - probe["cache_bytes"]) for amount in (reads, writes))
    if collective == "broadcast":
        # Measurements before November 2026 lack it.
        hops = (ranks - 1) * probe.get("socket_send_us", 0.0) if tcp else 0.0
    else:
        hops = probe["socket_hop_us" if tcp else "line_hop_us"]
    return max(
        hops,
        us(crossing, "sockets" if tcp else "lines"),
        us(reads, "read"),
        us(writes, "write"),
        us(min(reads, writes), "copy"),
    )
