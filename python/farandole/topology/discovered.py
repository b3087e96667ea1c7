# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A machine of one host from what was discovered: ranks on its cores."""

from __future__ import annotations

from collections.abc import Iterator

from farandole.machines.description import Constant, Description, LinkGroup, NodeGroup
from farandole.topology.discover import Host
from farandole.topology.gpus import SWITCH

_PROBE = "farandole probe measures it"
_CORE_RATE = Constant(10.0, "assumed", f"what a core copies; {_PROBE}")
_NUMA_RATE = Constant(20.0, "assumed", f"between sockets; {_PROBE}")
_NIC_RATE_GBPS = 0.125  # 1 Gbit/s


def describe_host(host: Host) -> Description:
    """Cores around the memory of their NUMA node; the first NIC leads out. Rates that nothing
    tells are assumed, and say so."""
    numas = sorted(host.numa_nodes())
    cores = tuple(f"core{core.thread}" for core in host.cores)
    groups = (
        ("cpu", cores),
        ("memory", tuple(f"memory{numa}" for numa in numas)),
        ("gpu", tuple(f"gpu{gpu.index}" for gpu in host.gpus)),
        ("switch", (SWITCH,) if any(SWITCH in gpu.nvlink_gbps for gpu in host.gpus) else ()),
        ("nic", tuple(nic.name for nic in host.nics)),
    )
    nics = (host.nics[0].name,) * len(cores) if host.nics else ()
    network = {"nic_rate_GBps": _nic_rate(host.nics[0].megabits)} if host.nics else {}
    return Description(
        name=host.name,
        summary=f"{len(cores)} cores, discovered",
        sources={"sysfs": "Linux, as its drivers say", "NVML": "NVIDIA, as its driver says"},
        nodes=tuple(NodeGroup(kind, names) for kind, names in groups if names),
        links=tuple(_links(host, numas)),
        devices=cores,
        nics=nics,
        network=network,
    )


def _links(host: Host, numas: list[int]) -> Iterator[LinkGroup]:
    yield LinkGroup(tuple((f"core{c.thread}", f"memory{c.numa}") for c in host.cores), _CORE_RATE)
    pairs = [(f"memory{a}", f"memory{b}") for a in numas for b in numas if a < b]
    if pairs:
        yield LinkGroup(tuple(pairs), _NUMA_RATE)
    for nic in host.nics:
        yield LinkGroup(((nic.name, f"memory{nic.numa}"),), _nic_rate(nic.megabits))
    for gpu in host.gpus:
        rate = Constant(round(gpu.pcie_gbps, 3), "printed", "NVML, generation and lanes of PCIe")
        yield LinkGroup(((f"gpu{gpu.index}", f"memory{gpu.numa}"),), rate)
        for peer, gbps in gpu.nvlink_gbps.items():
            if peer == SWITCH or int(peer.removeprefix("gpu")) > gpu.index:  # both ends tell
                rate = Constant(gbps, "printed", "NVML, number and version of NVLinks")
                yield LinkGroup(((f"gpu{gpu.index}", peer),), rate)


def _nic_rate(megabits: int | None) -> Constant:
    if megabits is None:
        return Constant(_NIC_RATE_GBPS, "assumed", f"the driver names no speed; {_PROBE}")
    return Constant(megabits / 8000, "printed", "sysfs, speed of the interface")
