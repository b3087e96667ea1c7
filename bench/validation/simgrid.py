# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Compares our simulator with SimGrid's, collective by collective, on a network of two levels.

    python bench/validation/simgrid.py [--json FILE]

Needs SimGrid (Debian: libsimgrid-dev). SMPI replays each collective with its own implementation
of the algorithm and without corrections: factors of latency and bandwidth are 1, messages have no
eager protocol, acknowledgements take no bandwidth. Both sides are simulated; nothing is measured.
Exits with 1 if any time differs by more than 10 %, and says where.

The platform: hosts of 4 devices on a switch (50 GB/s, 1 us per wire), which share one NIC
(10 GB/s each way, 2 us) to one network. A message within a host passes 2 wires (2 us), one between
hosts 2 wires and 2 NICs (6 us), on both sides; there is no start-up beyond the wires.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from farandole import _native
from farandole.report.tables import print_table

DEVICES = 4
WIRE_BYTES_PER_SECOND, WIRE_LATENCY = 50e9, 1e-6
NIC_BYTES_PER_SECOND, NIC_LATENCY = 10e9, 2e-6
RANKS = (16, 64, 256)
SIZES = (1 << 16, 1 << 20, 1 << 26)
LIMIT = 0.10
BYTE = 6  # SMPI's number of MPI_BYTE in a trace
PLAIN_MODEL = (
    "network/model:CM02",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "surf/precision:1e-12",
    "smpi/async-small-thresh:0",
    "smpi/send-is-detached-thresh:0",
)


@dataclass(frozen=True)
class Case:
    """One algorithm, here and there."""

    collective: str
    algorithm: str  # ours
    setting: str  # which of SMPI's
    action: Callable[[int, int], str]  # of a trace, by ranks and bytes
    reversed_bits: bool = False  # SMPI's rank r lives where ours with r's bits reversed does


def _allreduce(_: int, size: int) -> str:
    return f"allreduce {size} 0 {BYTE}"


# Rabenseifner: rab_rdb halves between neighbours first, as ours does. Pairwise: SMPI's "pair" is
# rank ^ i, its "ring" is rank + i, as ours is. Binomial: SMPI's root sends to the furthest rank
# first, ours to the nearest; with SMPI's ranks placed by reversed bits, the same devices meet in
# the same order.
CASES = (
    Case("allreduce", "ring", "allreduce:lr", _allreduce),
    Case("allreduce", "recursive_doubling", "allreduce:rdb", _allreduce),
    Case("allreduce", "rabenseifner", "allreduce:rab_rdb", _allreduce),
    Case(
        "alltoall",
        "pairwise",
        "alltoall:ring",
        lambda p, n: f"alltoall {n // p} {n // p} {BYTE} {BYTE}",
    ),
    Case(
        "broadcast",
        "binomial",
        "bcast:binomial_tree",
        lambda _, n: f"bcast {n} 0 {BYTE}",
        reversed_bits=True,
    ),
)


def reversed_bits(number: int, below: int) -> int:
    width = below.bit_length() - 1
    return int(f"{number:0{width}b}"[::-1], 2)


def platform_xml(host_count: int) -> str:
    hosts = range(host_count)
    lines = [
        '<?xml version="1.0"?>',
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1">',
        '<zone id="all" routing="Full">',
    ]
    lines += [
        f'<cluster id="h{h}" prefix="h{h}-" suffix="" radical="0-{DEVICES - 1}" speed="1Gf" '
        f'bw="{WIRE_BYTES_PER_SECOND}Bps" lat="{WIRE_LATENCY}s" sharing_policy="SPLITDUPLEX"/>'
        for h in hosts
    ]
    lines += [
        f'<link id="nic{h}{way}" bandwidth="{NIC_BYTES_PER_SECOND}Bps" '
        f'latency="{NIC_LATENCY}s" sharing_policy="SHARED"/>'
        for h in hosts
        for way in ("out", "in")
    ]
    lines += [
        f'<zoneRoute src="h{a}" dst="h{b}" gw_src="h{a}-h{a}_router" gw_dst="h{b}-h{b}_router" '
        f'symmetrical="NO"><link_ctn id="nic{a}out"/><link_ctn id="nic{b}in"/></zoneRoute>'
        for a in hosts
        for b in hosts
        if a != b
    ]
    return "\n".join([*lines, "</zone>", "</platform>"])


def simgrid_seconds(case: Case, ranks: int, size: int, folder: Path) -> float:
    platform, hostfile = folder / f"platform{ranks}.xml", folder / "hosts"
    if not platform.exists():
        platform.write_text(platform_xml(ranks // DEVICES))
    places = [reversed_bits(rank, ranks) if case.reversed_bits else rank for rank in range(ranks)]
    hostfile.write_text("".join(f"h{place // DEVICES}-{place % DEVICES}\n" for place in places))
    traces = []
    for rank in range(ranks):
        actions = ["init", case.action(ranks, size), "finalize"]
        traces.append(folder / f"trace{rank}")
        traces[-1].write_text("".join(f"{rank} {action}\n" for action in actions))
    index = folder / "traces"
    index.write_text("".join(f"{trace}\n" for trace in traces))
    settings = [*PLAIN_MODEL, f"smpi/{case.setting}"]
    job = subprocess.run(
        [
            *("smpirun", "-np", str(ranks), "-platform", platform, "-hostfile", hostfile),
            *("-replay", index, *(f"--cfg={setting}" for setting in settings)),
            *("--log=replay.thresh:critical", "--log=root.fmt:%m%n"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Simulation time ([\d.e+-]+)", job.stdout + job.stderr)
    if found is None:
        sys.exit(f"SimGrid failed on {case.algorithm}:\n{job.stdout}\n{job.stderr}")
    return float(found.group(1))


def machine(host_count: int) -> _native.Machine:
    """The same platform. The NIC's own wire to the switch takes no time."""
    nodes = [("switch", "switch"), ("nic", "nic")]
    nodes += [(f"gpu{device}", "gpu") for device in range(DEVICES)]
    wires = [(node, 0, WIRE_BYTES_PER_SECOND, False, WIRE_LATENCY) for node in range(2, len(nodes))]
    return _native.Machine(
        name="two levels",
        nodes=nodes,
        links=[(1, 0, 1e18, False, 0.0), *wires],
        devices=list(range(2, len(nodes))),
        nic_of=[1] * DEVICES,
        hosts=host_count,
        nic_bytes_per_second=NIC_BYTES_PER_SECOND,
        nic_latency=NIC_LATENCY,
    )


@dataclass(frozen=True)
class Comparison:
    """Times in seconds, both simulated."""

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    simgrid_seconds: float
    seconds: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.simgrid_seconds

    def agrees(self) -> bool:
        return abs(self.ratio - 1) <= LIMIT

    def row(self) -> dict[str, str]:
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "ranks": str(self.ranks),
            "bytes": f"{self.bytes:,}",
            "SimGrid, us": f"{self.simgrid_seconds * 1e6:,.1f}",
            "ours, us": f"{self.seconds * 1e6:,.1f}",
            "ratio": f"{self.ratio:.4f}",
        }


def comparisons(folder: Path) -> Iterator[Comparison]:
    for ranks in RANKS:
        simulator = _native.Simulator(machine(ranks // DEVICES), ranks)
        for case in CASES:
            schedule = _native.Schedule.build(case.collective, case.algorithm, ranks)
            for size in SIZES:
                ours = simulator.run([(schedule, size, [], [])])["seconds"]
                theirs = simgrid_seconds(case, ranks, size, folder)
                yield Comparison(case.collective, case.algorithm, ranks, size, theirs, ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the table there")
    arguments = parser.parse_args()
    if shutil.which("smpirun") is None:
        parser.error("smpirun is missing; Debian has it in libsimgrid-dev")
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for comparison in comparisons(Path(folder)):
            print(".", end="", file=sys.stderr, flush=True)
            found.append(comparison)
    print(file=sys.stderr)
    rows = [comparison.row() for comparison in found]
    print("simulated, by SimGrid and by farandole:")
    print_table(rows, list(rows[0]), ())
    if arguments.json is not None:
        table = [{**asdict(comparison), "ratio": comparison.ratio} for comparison in found]
        arguments.json.write_text(json.dumps(table, indent=2) + "\n")
    misses = [comparison for comparison in found if not comparison.agrees()]
    for miss in misses:
        print(
            f"beyond {LIMIT:.0%}: {miss.collective} {miss.algorithm}, {miss.ranks} ranks, "
            f"{miss.bytes:,} bytes: ratio {miss.ratio:.4f}",
            file=sys.stderr,
        )
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
