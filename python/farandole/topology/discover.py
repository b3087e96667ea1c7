# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What this host is made of, from sysfs, and from NVML where GPUs and its Python package are.

A list like "0-3,8" is sysfs's way to write numbers. What a container or an old kernel does not show
is left out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from farandole.topology.gpus import Gpu, find_gpus

_LOOPBACK = "772"  # ARPHRD_LOOPBACK


@dataclass(frozen=True)
class Cache:
    level: int
    kind: str  # Data, Instruction or Unified
    size: str  # as sysfs writes it, "32K"
    threads: tuple[int, ...]  # that share it


@dataclass(frozen=True)
class Core:
    """One with all its hardware threads, by the lowest of them."""

    thread: int
    threads: tuple[int, ...]
    socket: int
    numa: int


@dataclass(frozen=True)
class Nic:
    name: str
    megabits: int | None  # None: the driver does not say
    numa: int


@dataclass(frozen=True)
class Host:
    name: str
    cores: tuple[Core, ...]
    caches: tuple[Cache, ...]
    memory_bytes: dict[int, int]  # by NUMA node
    nics: tuple[Nic, ...]
    gpus: tuple[Gpu, ...] = ()

    def numa_nodes(self) -> set[int]:
        """All that something here belongs to."""
        found = set(self.memory_bytes) | {core.numa for core in self.cores}
        return found | {nic.numa for nic in self.nics} | {gpu.numa for gpu in self.gpus}


def discover(system: Path = Path("/sys")) -> Host:
    """This host, or the one whose sysfs lies under `system`."""
    memory = _memory(system)
    cores = _cores(system, _numa_of_threads(system))
    return Host(
        name=platform.node() or "this host",
        cores=cores,
        caches=_caches(system, cores),
        memory_bytes=memory,
        nics=tuple(_nics(system)),
        gpus=tuple(find_gpus(system)),
    )


def numbers(text: str) -> tuple[int, ...]:
    """ "0-2,8" as (0, 1, 2, 8)."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # not there, or an interface without a speed
        return ""


def _number(path: Path, default: int) -> int:
    """Negative numbers are sysfs's way to say that it does not know."""
    text = _read(path)
    return int(text) if text.isdigit() else default


def _numa_folders(system: Path) -> Iterable[tuple[int, Path]]:
    for folder in sorted((system / "devices/system/node").glob("node[0-9]*")):
        yield int(folder.name.removeprefix("node")), folder


def _numa_of_threads(system: Path) -> dict[int, int]:
    return {
        thread: numa
        for numa, folder in _numa_folders(system)
        for thread in numbers(_read(folder / "cpulist"))
    }


def _memory(system: Path) -> dict[int, int]:
    found = {}
    for numa, folder in _numa_folders(system):
        total = re.search(r"MemTotal:\s+(\d+) kB", _read(folder / "meminfo"))
        if total is not None:
            found[numa] = int(total[1]) * 1024
    return found


def _cores(system: Path, numa_of: dict[int, int]) -> tuple[Core, ...]:
    cores: dict[tuple[int, ...], Core] = {}
    folder = system / "devices/system/cpu"
    for thread in numbers(_read(folder / "online")):
        topology = folder / f"cpu{thread}/topology"
        threads = numbers(_read(topology / "thread_siblings_list")) or (thread,)
        socket = _number(topology / "physical_package_id", 0)
        cores.setdefault(threads, Core(threads[0], threads, socket, numa_of.get(thread, 0)))
    return tuple(sorted(cores.values(), key=lambda core: core.thread))


def _caches(system: Path, cores: Iterable[Core]) -> tuple[Cache, ...]:
    found: dict[tuple[int, str, tuple[int, ...]], Cache] = {}
    for core in cores:
        folder = system / f"devices/system/cpu/cpu{core.thread}/cache"
        for index in sorted(folder.glob("index[0-9]*")):
            level, kind = _number(index / "level", 0), _read(index / "type")
            shared = numbers(_read(index / "shared_cpu_list")) or core.threads
            found.setdefault(
                (level, kind, shared), Cache(level, kind, _read(index / "size"), shared)
            )
    return tuple(found.values())


def _nics(system: Path) -> Iterable[Nic]:
    """Network interfaces that lead out of the host, then InfiniBand ports."""
    for folder in sorted((system / "class/net").glob("*")):
        if _read(folder / "type") == _LOOPBACK or _read(folder / "operstate") == "down":
            continue
        speed = _number(folder / "speed", 0)
        yield Nic(folder.name, speed or None, _number(folder / "device/numa_node", 0))
    for port in sorted((system / "class/infiniband").glob("*/ports/*")):
        rate = re.match(r"(\d+) Gb/sec", _read(port / "rate"))
        adapter = port.parent.parent
        speed = int(rate[1]) * 1000 if rate else 0
        numa = _number(adapter / "device/numa_node", 0)
        yield Nic(f"{adapter.name}:{port.name}", speed or None, numa)
