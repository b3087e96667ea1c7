# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""From measurements to a machine file, and to tables that put what was measured beside the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole import _native
from farandole.machines.description import (
    Constant,
    Description,
    HopConstants,
    LinkGroup,
    NodeGroup,
    Ring,
)
from farandole.measure.fit import Fit, Sample, bytes_per_second, fit
from farandole.measure.probe import Measurements

_DIGITS = 4
_NAMES = {"host": "within a host", "rack": "between hosts"}


@dataclass(frozen=True)
class RingRate:
    ranks: int
    groups: int  # at once
    bytes_per_second: float  # of each rank, in each direction


@dataclass(frozen=True)
class Hop:
    """What the samples of one hop come to: the fit to one ring of all ranks, and the rates of
    smaller rings and of several at once."""

    costs: Fit
    samples: tuple[Sample, ...]
    rates: tuple[RingRate, ...]

    def rate(self, ranks: int, groups: int) -> float:
        (found,) = (
            r.bytes_per_second for r in self.rates if (r.ranks, r.groups) == (ranks, groups)
        )
        return found

    def fitted(self) -> list[Sample]:
        """The samples that the costs were fitted to."""
        ranks, groups = self.rates[0].ranks, self.rates[0].groups
        return [s for s in self.samples if (s.ranks, s.groups) == (ranks, groups)]


def hops(measured: Measurements) -> dict[str, Hop]:
    found = {}
    for name in dict.fromkeys(sample.hop for sample in measured.samples):
        samples = tuple(sample for sample in measured.samples if sample.hop == name)
        kinds = list(dict.fromkeys((sample.ranks, sample.groups) for sample in samples))
        of_kind = {kind: [s for s in samples if (s.ranks, s.groups) == kind] for kind in kinds}
        costs = fit(of_kind[kinds[0]], measured.reduce_per_byte)
        rates = [RingRate(*kinds[0], 1 / costs.per_byte)]
        rates += [RingRate(*kind, bytes_per_second(of_kind[kind], costs)) for kind in kinds[1:]]
        found[name] = Hop(costs, samples, tuple(rates))
    return found


def describe(measured: Measurements, found: Mapping[str, Hop], name: str) -> Description:
    """A host is a star around its memory, or its loopback interface. Between hosts the NIC's rate
    is what all ranks of a host get together; where one rank gets less, its own way to the NIC is
    narrower."""
    ranks = tuple(f"rank{index}" for index in range(measured.local_size))
    nodes, links = [NodeGroup("cpu", ranks)], []
    network: dict[str, Constant] = {}
    nics: tuple[str, ...] = ()
    if "host" in found:
        rate = found["host"].rates[0].bytes_per_second
        in_memory = {name for name, _, through_memory in _native.transports() if through_memory}
        meet = not in_memory.isdisjoint(measured.transports)
        kind, hub = ("memory", "memory") if meet else ("switch", "loopback")
        nodes.append(NodeGroup(kind, (hub,)))
        between = tuple((rank, hub) for rank in ranks)
        links.append(LinkGroup(between, _rate(rate, "ring of all ranks of a host")))
    if "rack" in found:
        alone, together = _network_rates(measured, found["rack"])
        ways = ranks
        if (
            len(ranks) > 1
        ):  # apart from the memory, through which ranks of the host reach each other
            ways = tuple(f"stack{index}" for index in range(len(ranks)))
            nodes.append(NodeGroup("switch", ways))
        nodes.append(NodeGroup("nic", ("nic",)))
        between = tuple((rank, way) for rank, way in zip(ranks, ways, strict=True) if rank != way)
        between += tuple((way, "nic") for way in ways)
        links.append(LinkGroup(between, _rate(alone, "one rank of each host in a ring")))
        network = {
            "hosts": Constant(measured.hosts, "measured", "hosts of the ranks that ran"),
            "nic_rate_GBps": _rate(together, "all ranks of a host together"),
        }
        nics = ("nic",) * len(ranks)
    return Description(
        name=name,
        summary=f"Measured by farandole probe with {measured.hosts} x {measured.local_size} ranks "
        f"over {' and '.join(measured.transports) or 'nothing'}",
        nodes=tuple(nodes),
        links=tuple(links),
        devices=ranks,
        nics=nics,
        network=network,
        hops={hop: _hop_constants(hop, values) for hop, values in found.items()},
        local={
            "reduce_rate_GBps": _rate(1 / measured.reduce_per_byte, "4 MiB on all ranks at once"),
            "copy_rate_GBps": _rate(1 / measured.copy_per_byte, "4 MiB on all ranks at once"),
        },
    )


def _network_rates(measured: Measurements, rack: Hop) -> tuple[float, float]:
    """Bytes per second of one rank of a host by itself, and of all of them together."""
    alone = rack.rate(measured.hosts, 1)
    if measured.local_size == 1:
        return alone, alone
    return alone, max(alone, rack.rate(measured.hosts, measured.local_size) * measured.local_size)


def _hop_constants(name: str, hop: Hop) -> HopConstants:
    worst = max(abs(hop.costs.error(sample)) for sample in hop.fitted())
    note = f"{len(hop.fitted())} times, largest error {worst:.0%}"
    constants = {
        "alpha_us": Constant(_rounded(hop.costs.alpha * 1e6), "fitted", note),
        "call_us": Constant(_rounded(hop.costs.call * 1e6), "fitted", note),
        "fill_chunks": Constant(_rounded(hop.costs.fill_chunks), "fitted", note),
        "overhead_us": Constant(_rounded(hop.costs.overhead * 1e6), "fitted", note),
        "crowding_us": Constant(_rounded(hop.costs.crowding * 1e6), "fitted", note),
        "fan_efficiency": Constant(_rounded(hop.costs.fan_efficiency), "fitted", note),
    }
    rings = {}
    if name == "host":  # between hosts the NICs say it
        whole = hop.rates[0].ranks
        rings = {
            Ring(r.ranks): _rate(r.bytes_per_second, "all such rings of a host at once")
            for r in hop.rates
            if r.ranks * r.groups == whole
        }
    return HopConstants(constants, rings)


def _rate(bytes_per_second: float, note: str) -> Constant:
    return Constant(_rounded(bytes_per_second / 1e9), "measured", note)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def sample_rows(found: Mapping[str, Hop]) -> list[dict[str, str]]:
    """Every time that was fitted to: measured, fitted, and the error."""
    return [
        {
            "hop": _NAMES[name],
            "pattern": sample.pattern,
            "ranks": str(sample.ranks),
            "bytes": f"{sample.size_bytes:,}",
            "measured": f"{sample.seconds * 1e6:,.1f} us",
            "fitted": f"{hop.costs.seconds(sample) * 1e6:,.1f} us",
            "error": f"{hop.costs.error(sample):+.0%}",
        }
        for name, hop in found.items()
        for sample in hop.fitted()
    ]


def rate_rows(found: Mapping[str, Hop]) -> list[dict[str, str]]:
    """How rings of several sizes share what is there."""
    return [
        {
            "hop": _NAMES[name],
            "ring of": str(rate.ranks),
            "at once": str(rate.groups),
            "measured rate of each rank": f"{rate.bytes_per_second / 1e9:.4g} GB/s",
        }
        for name, hop in found.items()
        for rate in hop.rates
    ]


def cost_rows(found: Mapping[str, Hop]) -> list[dict[str, str]]:
    return [
        {
            "hop": _NAMES[name],
            "alpha": f"{hop.costs.alpha * 1e6:.1f} us",
            "call": f"{hop.costs.call * 1e6:.1f} us",
            "fill": f"{hop.costs.fill_chunks:.2f} messages",
            "overhead": f"{hop.costs.overhead * 1e6:.1f} us",
            "crowding": f"{hop.costs.crowding * 1e6:.2f} us",
            "fan": f"{hop.costs.fan_efficiency:.0%}",
            "fitted rate": f"{1e-9 / hop.costs.per_byte:.4g} GB/s",
            "median error": f"{_median([abs(hop.costs.error(s)) for s in hop.fitted()]):.0%}",
        }
        for name, hop in found.items()
    ]


def line_rows(measured: Measurements) -> list[dict[str, str]]:
    """How far from each other the cores of rank 0's host are; none if its ranks share one core."""
    return [
        {
            "from core": str(line.core),
            "to core": str(line.other),
            "a cache line takes": f"{line.seconds * 1e9:.0f} ns",
        }
        for line in measured.lines
    ]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
