# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a machine file says: a machine, and where each of its numbers comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from farandole import _native
from farandole.machines.positions import Path

ORIGINS = ("printed", "measured", "fitted", "assumed")

# Keys of the file, the field of struct Machine that each sets, and the field's unit in the file's.
NETWORK_KEYS = {
    "hosts": ("hosts", 1.0),
    "nic_rate_GBps": ("nic_bytes_per_second", 1e9),
    "nic_latency_us": ("nic_latency", 1e-6),
    "hosts_per_rack": ("hosts_per_rack", 1.0),
    "uplinks": ("uplinks", 1.0),
    "uplink_rate_GBps": ("uplink_bytes_per_second", 1e9),
    "uplink_latency_us": ("uplink_latency", 1e-6),
}
COUNTS = ("hosts", "hosts_per_rack", "uplinks")
HOP_KEYS = {
    "alpha_us": ("alpha", 1e-6),
    "call_us": ("call", 1e-6),
    "fill_chunks": ("fill_chunks", 1.0),
    "overhead_us": ("overhead", 1e-6),
    "crowding_us": ("crowding", 1e-6),
    "efficiency": ("efficiency", 1.0),
    "fan_efficiency": ("fan_efficiency", 1.0),
}
LOCAL_KEYS = {  # rates here, seconds per byte there
    "reduce_rate_GBps": "reduce_seconds_per_byte",
    "copy_rate_GBps": "copy_seconds_per_byte",
}


@dataclass(frozen=True)
class Constant:
    """A number in the file's unit. `origin` is one of ORIGINS, or empty where the file is silent;
    `note` is what it says about it, and begins with the tag of a source if it is printed."""

    value: float
    origin: str = ""
    note: str = ""


@dataclass(frozen=True)
class LinkGroup:
    """Links that are alike. With half_duplex the directions share the rate."""

    between: tuple[tuple[str, str], ...]
    rate_GBps: Constant  # noqa: N815 - the key of the file
    latency_us: Constant | None = None
    half_duplex: bool = False


class Ring(NamedTuple):
    """Of `size` ranks, each `stride` ranks from the next one; 0: any."""

    size: int
    stride: int = 0

    def __str__(self) -> str:
        """The key of the file."""
        return f"{self.size}/{self.stride}" if self.stride else str(self.size)


@dataclass(frozen=True)
class HopConstants:
    constants: Mapping[str, Constant] = field(default_factory=dict)  # by HOP_KEYS
    ring_rates_GBps: Mapping[Ring, Constant] = field(default_factory=dict)  # noqa: N815


@dataclass(frozen=True)
class NodeGroup:
    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """A machine file, in memory. Fields are those of docs/formats/machine.md."""

    name: str
    nodes: tuple[NodeGroup, ...]
    links: tuple[LinkGroup, ...]
    devices: tuple[str, ...]
    nics: tuple[str, ...] = ()
    summary: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    network: Mapping[str, Constant] = field(default_factory=dict)
    hops: Mapping[str, HopConstants] = field(default_factory=dict)
    local: Mapping[str, Constant] = field(default_factory=dict)

    def machine(self) -> _native.Machine:
        """Raises InvalidArgumentError, beginning with the field, if it makes no sense."""
        numbers = {name: index for index, name in enumerate(self.node_names())}
        links = [
            _native.Link(
                ends=(numbers[a], numbers[b]),
                bytes_per_second=group.rate_GBps.value * 1e9,
                half_duplex=group.half_duplex,
                latency=(group.latency_us.value if group.latency_us else 0.0) * 1e-6,
            )
            for group in self.links
            for a, b in group.between
        ]
        fields: dict[str, Any] = {
            LOCAL_KEYS[key]: 1e-9 / given.value for key, given in self.local.items()
        }
        for key, given in self.network.items():
            name, unit = NETWORK_KEYS[key]
            fields[name] = int(given.value) if key in COUNTS else given.value * unit
        return _native.Machine(
            name=self.name,
            nodes=[(name, group.kind) for group in self.nodes for name in group.names],
            links=links,
            devices=[numbers[name] for name in self.devices],
            nic_of=[numbers[name] for name in self.nics],
            hops={hop: _hop_arguments(given) for hop, given in self.hops.items()},
            **fields,
        )

    def node_names(self) -> list[str]:
        return [name for group in self.nodes for name in group.names]

    def constants(self) -> Iterator[tuple[Path, Constant]]:
        """Every number of the file, with its place there."""
        for index, group in enumerate(self.links):
            yield ("links", index, "rate_GBps"), group.rate_GBps
            if group.latency_us is not None:
                yield ("links", index, "latency_us"), group.latency_us
        for key, constant in self.network.items():
            yield ("network", key), constant
        for hop, given in self.hops.items():
            for key, constant in given.constants.items():
                yield ("hops", hop, key), constant
            for ring, constant in given.ring_rates_GBps.items():
                yield ("hops", hop, "ring_rates_GBps", str(ring)), constant
        for key, constant in self.local.items():
            yield ("local", key), constant

    def places(self) -> dict[str, Path]:
        """Where the file sets each field of struct Machine, by the names that errors begin with."""
        found: dict[str, Path] = {"devices": ("devices", "nodes"), "nic_of": ("devices", "nics")}
        names = [(g, n) for g, group in enumerate(self.nodes) for n in range(len(group.names))]
        for index, (group, position) in enumerate(names):
            found[f"nodes[{index}].name"] = ("nodes", group, "names", position)
        pairs = [(g, p) for g, links in enumerate(self.links) for p in range(len(links.between))]
        for index, (group, pair) in enumerate(pairs):
            found[f"links[{index}].bytes_per_second"] = ("links", group, "rate_GBps")
            found[f"links[{index}].latency"] = ("links", group, "latency_us")
            found[f"links[{index}].to"] = ("links", group, "between", pair)
        for index in range(len(self.devices)):
            found[f"devices[{index}]"] = ("devices", "nodes", index)
            found[f"nic_of[{index}]"] = ("devices", "nics", index)
        found |= {name: ("network", key) for key, (name, _) in NETWORK_KEYS.items()}
        found |= {name: ("local", key) for key, name in LOCAL_KEYS.items()}
        for hop, given in self.hops.items():
            for key, (name, _) in HOP_KEYS.items():
                found[f"hops.{hop}.{name}"] = ("hops", hop, key)
            for index, ring in enumerate(sorted(given.ring_rates_GBps)):
                for name in ("ring_size", "stride", "bytes_per_second"):
                    place = ("hops", hop, "ring_rates_GBps", str(ring))
                    found[f"hops.{hop}.ring_rates[{index}].{name}"] = place
        return found


def _hop_arguments(given: HopConstants) -> dict[str, float | dict[Ring, float]]:
    arguments: dict[str, float | dict[Ring, float]] = {
        HOP_KEYS[key][0]: constant.value * HOP_KEYS[key][1]
        for key, constant in given.constants.items()
    }
    arguments["ring_rates"] = {
        ring: constant.value * 1e9 for ring, constant in given.ring_rates_GBps.items()
    }
    return arguments
