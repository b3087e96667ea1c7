# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A machine as a tree for the terminal, and as JSON. The picture is in report/topology_svg.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from farandole.machines.description import Constant, Description, Ring
from farandole.report.tables import console_of_stdout
from farandole.report.topology_layout import Layout
from farandole.report.topology_svg import machine_svg
from farandole.topology.discover import Cache, Core, Host
from farandole.topology.gpus import Gpu

_CACHE_LETTERS = {"Data": "d", "Instruction": "i"}
_STYLES = {"cpu": "cyan", "gpu": "green", "nic": "magenta", "memory": "blue", "switch": "yellow"}


@dataclass
class Branch:
    text: str
    kind: str = ""  # of a node
    branches: list[Branch] = field(default_factory=list)

    def add(self, text: str, kind: str = "") -> Branch:
        self.branches.append(Branch(text, kind))
        return self.branches[-1]


def print_tree(tree: Branch) -> None:
    from rich.text import Text
    from rich.tree import Tree

    def grow(branch: Branch) -> Tree:
        grown = Tree(Text(branch.text, style=_STYLES.get(branch.kind, "")))
        grown.children += [grow(child) for child in branch.branches]
        return grown

    console_of_stdout().print(grow(tree))


def machine_json(description: Description) -> str:
    """The fields of struct Machine, in seconds and bytes per second, and every number's origin."""
    machine = description.machine()
    names = (name for name in dir(machine) if not name.startswith("_"))
    origins = [
        {"key": ".".join(map(str, path)), "value": c.value, "origin": c.origin, "note": c.note}
        for path, c in description.constants()
    ]
    fields = {name: getattr(machine, name) for name in names}
    fields["links"] = [
        (*link.ends, link.bytes_per_second, link.half_duplex, link.latency)
        for link in machine.links
    ]
    for cost in fields["hops"].values():
        cost["ring_rates"] = {str(Ring(*ring)): rate for ring, rate in cost["ring_rates"].items()}
    return json.dumps(fields | {"origins": origins}, indent=2)


# This host


def host_tree(host: Host) -> Branch:
    tree = Branch(host.name)
    for numa in sorted(host.numa_nodes()):
        size = host.memory_bytes.get(numa)
        text = f"NUMA node {numa}" + (f", memory {_gib(size)}" if size else "")
        branch = tree.add(text, "memory")
        cores = [core for core in host.cores if core.numa == numa]
        for socket in sorted({core.socket for core in cores}):
            _add_socket(branch, host, socket, [core for core in cores if core.socket == socket])
        for gpu in host.gpus:
            if gpu.numa == numa:
                branch.add(_gpu_text(gpu), "gpu")
        for nic in host.nics:
            if nic.numa == numa:
                speed = f"{nic.megabits:,} Mbit/s" if nic.megabits else "speed not known"
                branch.add(f"{nic.name}: {speed}", "nic")
    return tree


def _add_socket(branch: Branch, host: Host, socket: int, cores: list[Core]) -> None:
    """Cores under the largest caches that several of them share."""
    parent = branch.add(f"socket {socket}: {len(cores)} cores", "cpu")
    shared = [c for c in host.caches if _shares(c, cores) and len(c.threads) > 1]
    top = max((cache.level for cache in shared if len(_cores_of(cache, cores)) > 1), default=0)
    placed: set[int] = set()
    for cache in shared:
        if cache.level != top:
            continue
        below = parent.add(f"L{cache.level} {cache.size}", "memory")
        for core in _cores_of(cache, cores):
            placed.add(core.thread)
            below.add(_core_text(core, host, top), "cpu")
    for core in cores:
        if core.thread not in placed:
            parent.add(_core_text(core, host, top), "cpu")


def _shares(cache: Cache, cores: list[Core]) -> bool:
    return any(core.thread in cache.threads for core in cores)


def _cores_of(cache: Cache, cores: list[Core]) -> list[Core]:
    return [core for core in cores if core.thread in cache.threads]


def _core_text(core: Core, host: Host, shared_level: int) -> str:
    own = [c for c in host.caches if core.thread in c.threads and c.level != shared_level]
    own.sort(key=lambda cache: (cache.level, cache.kind))
    caches = ", ".join(f"L{c.level}{_CACHE_LETTERS.get(c.kind, '')} {c.size}" for c in own)
    threads = f", threads {' '.join(map(str, core.threads))}" if len(core.threads) > 1 else ""
    return f"core {core.thread}{threads}" + (f" ({caches})" if caches else "")


def _gpu_text(gpu: Gpu) -> str:
    links = "".join(f", NVLink {gbps:g} GB/s to {peer}" for peer, gbps in gpu.nvlink_gbps.items())
    memory = _gib(gpu.memory_bytes)
    return f"gpu{gpu.index}: {gpu.model}, {memory}, PCIe {gpu.pcie_gbps:.1f} GB/s{links}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


# A described machine


def machine_tree(description: Description) -> Branch:
    """Network and costs first, then one host: each node below what it hangs on, with its other
    links beside it."""
    tree = Branch(f"{description.name}: {description.summary}")
    for text in _network_lines(description):
        tree.add(text, "nic")
    for hop, given in description.hops.items():
        costs = [f"{key.split('_')[0]} {_number(key, c)}" for key, c in given.constants.items()]
        for ring, constant in given.ring_rates_GBps.items():
            stride = f" at stride {ring.stride}" if ring.stride else ""
            costs.append(f"ring of {ring.size}{stride} {_number('_GBps', constant)}")
        tree.add(f"{hop}: {', '.join(costs)}")
    layout = Layout(description)
    host = tree.add("one host")
    local_rank = {name: rank for rank, name in enumerate(description.devices)}

    def grow(parent: Branch, name: str) -> None:
        rank = f" (local rank {local_rank[name]})" if name in local_rank else ""
        link = layout.link_to_parent(name)
        rate = f", {_number('_GBps', link.rate_GBps)}" if link else ""
        others = "".join(
            f"; {_number('_GBps', group.rate_GBps)} to {', '.join(peers)}"
            for group, peers in layout.other_links(name)
        )
        branch = parent.add(f"{name}{rank}{rate}{others}", layout.kind[name])
        for child in layout.children.get(name, []):
            grow(branch, child)

    for root in (*layout.roots, *layout.below):
        grow(host, root)
    return tree


def _network_lines(description: Description) -> Iterator[str]:
    network = description.network
    hosts = network.get("hosts")
    if hosts is None:
        return
    racks = network.get("hosts_per_rack", Constant(0)).value
    switch = f"in racks of {racks:g}" if racks else "on one switch"
    rate = network.get("nic_rate_GBps")
    each = f", {_number('_GBps', rate)} each way at every NIC" if rate else ""
    yield f"{hosts.value:,} hosts {switch}{each}"
    if "uplinks" in network and "uplink_rate_GBps" in network:
        rate = network["uplink_rate_GBps"]
        yield f"{network['uplinks'].value:g} uplinks of a rack, {_number('_GBps', rate)} each"


def _number(key: str, constant: Constant) -> str:
    unit = {"_us": " us", "GBps": " GB/s", "unks": " messages"}
    ending = next((text for end, text in unit.items() if key.endswith(end)), "")
    return f"{constant.value:g}{ending}" + (" assumed" if constant.origin == "assumed" else "")


__all__ = ["Branch", "host_tree", "machine_json", "machine_svg", "machine_tree", "print_tree"]
