# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: `farandole topo` finds what this host is made of, and shows it and every machine file.

Method: a sysfs made of files, with two sockets, hardware threads and a NIC at each; a stand-in for
NVML with its names; pictures read back as XML, whose boxes may not lie on each other.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farandole import machines
from farandole.cli.app import app
from farandole.report.topology import Branch, host_tree, machine_svg, machine_tree
from farandole.topology.discover import discover, numbers
from farandole.topology.discovered import describe_host
from farandole.topology.gpus import find_gpus

SVG = "{http://www.w3.org/2000/svg}"


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def threads_of_half(half: int) -> str:
    first = 2 * half
    return f"{first}-{first + 1},{first + 4}-{first + 5}"


def two_sockets(root: Path) -> Path:
    """8 threads on 4 cores, thread t and t + 4 on one core; cores 0, 1 on socket and node 0."""
    files = {"devices/system/cpu/online": "0-7"}
    for thread in range(8):
        core, socket = thread % 4, thread % 4 // 2
        folder = f"devices/system/cpu/cpu{thread}"
        files |= {
            f"{folder}/topology/thread_siblings_list": f"{core},{core + 4}",
            f"{folder}/topology/physical_package_id": str(socket),
        }
        for index, (level, kind, size, shared) in enumerate(
            [
                (1, "Data", "32K", f"{core},{core + 4}"),
                (3, "Unified", "16384K", threads_of_half(socket)),
            ]
        ):
            cache = f"{folder}/cache/index{index}"
            files |= {
                f"{cache}/level": str(level),
                f"{cache}/type": kind,
                f"{cache}/size": size,
                f"{cache}/shared_cpu_list": shared,
            }
    for node in range(2):
        folder = f"devices/system/node/node{node}"
        files |= {
            f"{folder}/cpulist": threads_of_half(node),
            f"{folder}/meminfo": f"Node {node} MemTotal:       {(node + 1) * 1048576} kB",
        }
    for name, kind, state, speed, node in (
        ("eth0", "1", "up", "25000", "1"),
        ("eth1", "1", "down", "-1", "0"),
        ("lo", "772", "unknown", "", "0"),
        ("veth0", "1", "up", "-1", "-1"),
    ):
        folder = f"class/net/{name}"
        files |= {
            f"{folder}/type": kind,
            f"{folder}/operstate": state,
            f"{folder}/speed": speed,
            f"{folder}/device/numa_node": node,
        }
    files["class/infiniband/mlx5_0/ports/1/rate"] = "100 Gb/sec (4X EDR)"
    files["class/infiniband/mlx5_0/device/numa_node"] = "1"
    return put(root, files)


def texts(branch: Branch) -> list[str]:
    return [branch.text, *(text for child in branch.branches for text in texts(child))]


def output_of(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["topo", *arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize(
    ("text", "expected"), [("", ()), ("3", (3,)), ("0-2,8,10-11\n", (0, 1, 2, 8, 10, 11))]
)
def test_lists_of_sysfs(text: str, expected: tuple[int, ...]) -> None:
    assert numbers(text) == expected


def test_a_host_is_found_in_sysfs(tmp_path: Path) -> None:
    host = discover(two_sockets(tmp_path))
    assert [(c.thread, c.threads, c.socket, c.numa) for c in host.cores] == [
        (0, (0, 4), 0, 0),
        (1, (1, 5), 0, 0),
        (2, (2, 6), 1, 1),
        (3, (3, 7), 1, 1),
    ]
    assert host.memory_bytes == {0: 2**30, 1: 2**31}
    assert [(nic.name, nic.megabits, nic.numa) for nic in host.nics] == [
        ("eth0", 25000, 1),
        ("veth0", None, 0),
        ("mlx5_0:1", 100_000, 1),
    ]
    assert sorted((c.level, c.threads) for c in host.caches) == [
        (1, (0, 4)),
        (1, (1, 5)),
        (1, (2, 6)),
        (1, (3, 7)),
        (3, (0, 1, 4, 5)),
        (3, (2, 3, 6, 7)),
    ]


def test_a_host_becomes_a_tree_and_a_machine(tmp_path: Path) -> None:
    host = discover(two_sockets(tmp_path))
    lines = texts(host_tree(host))
    assert "NUMA node 1, memory 2.0 GiB" in lines
    assert "core 3, threads 3 7 (L1d 32K)" in lines
    assert lines.count("L3 16384K") == 2
    assert "mlx5_0:1: 100,000 Mbit/s" in lines
    description = describe_host(host)
    machine = description.machine()
    names = [name for name, _ in machine.nodes]
    assert [names[device] for device in machine.devices] == ["core0", "core1", "core2", "core3"]
    links = {
        tuple(names[end] for end in link.ends): link.bytes_per_second for link in machine.links
    }
    assert links["eth0", "memory1"] == 25e9 / 8
    assert ("core3", "memory1") in links
    assert ("memory0", "memory1") in links
    assert all(constant.origin for _, constant in description.constants())
    assert machines.parse(machines.as_toml(description), "host") == description


# Goal: this very host is found. Method: it has at least the cores that this process may use.
def test_this_host() -> None:
    host = discover()
    threads = {thread for core in host.cores for thread in core.threads}
    assert threads >= os.sched_getaffinity(0)
    assert describe_host(host).machine().devices_per_host == len(host.cores)


class StandInForNvml(types.ModuleType):
    """Two GPUs with two NVLinks between them and one to a switch each, as pynvml names it all."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetPciInfo(self, gpu: int) -> types.SimpleNamespace:  # noqa: N802
        return types.SimpleNamespace(busId=f"00000000:{gpu + 1}A:00.0".encode())

    def nvmlDeviceGetName(self, gpu: int) -> bytes:  # noqa: N802
        return b"Model V"

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> types.SimpleNamespace:  # noqa: N802
        return types.SimpleNamespace(total=16 * 2**30)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: int) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: int) -> int:  # noqa: N802
        return 16

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:  # noqa: N802
        if link > 3:
            raise self.NVMLError("no such link")
        return int(link < 3)  # the fourth is off

    def nvmlDeviceGetNvLinkVersion(self, gpu: int, link: int) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> object:  # noqa: N802
        remote = f"00000000:{2 - gpu}A:00.0" if link < 2 else "00000000:C0:00.0"
        return types.SimpleNamespace(busId=remote.encode())


# Goal: GPUs, PCIe and NVLink come from NVML, and are part of the machine.
def test_gpus_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvml = StandInForNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    root = put(two_sockets(tmp_path), {"bus/pci/devices/0000:2a:00.0/numa_node": "1"})
    host = discover(root)
    assert nvml.open == 0
    assert [(g.model, g.memory_bytes, g.numa, g.pcie_gbps) for g in host.gpus] == [
        ("Model V", 16 * 2**30, 0, 15.76),
        ("Model V", 16 * 2**30, 1, 15.76),
    ]
    assert host.gpus[0].nvlink_gbps == {"gpu1": 50.0, "nvswitch": 25.0}
    assert host.gpus[1].nvlink_gbps == {"gpu0": 50.0, "nvswitch": 25.0}
    machine = describe_host(host).machine()
    names = [name for name, _ in machine.nodes]
    links = [(*(names[end] for end in link.ends), link.bytes_per_second) for link in machine.links]
    assert [link for link in links if link[0].startswith("gpu")] == [
        ("gpu0", "memory0", 15.76e9),
        ("gpu0", "gpu1", 50e9),
        ("gpu0", "nvswitch", 25e9),
        ("gpu1", "memory1", 15.76e9),
        ("gpu1", "nvswitch", 25e9),
    ]
    assert any("NVLink 50 GB/s to gpu1" in line for line in texts(host_tree(host)))


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvml = StandInForNvml()

    def no_driver() -> None:
        raise nvml.NVMLError("driver not loaded")

    monkeypatch.setattr(nvml, "nvmlInit", no_driver)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert find_gpus(tmp_path) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert find_gpus(tmp_path) == []


def boxes(picture: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of everything that has a text."""
    found = []
    for rect in picture.iter(f"{SVG}rect"):
        if rect.get("class") != "page":
            sides = ("x", "y", "width", "height")
            left, top, width, height = (float(rect.get(side, "")) for side in sides)
            found.append((left, top, left + width, top + height))
    return found


def texts_of_class(picture: ElementTree.Element, name: str) -> list[str]:
    return [t.text or "" for t in picture.iter(f"{SVG}text") if t.get("class") == name]


# Goal: every machine can be drawn, with all its nodes, none on another and none outside.
@pytest.mark.parametrize("name", machines.names())
def test_pictures_are_legible(name: str) -> None:
    description = machines.load(name)
    picture = ElementTree.fromstring(machine_svg(description))
    width, height = float(picture.get("width", "")), float(picture.get("height", ""))
    drawn = boxes(picture)
    assert len(drawn) >= len(description.node_names())
    for (l1, t1, r1, b1), (l2, t2, r2, b2) in combinations(drawn, 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1
    assert all(left >= 0 and top >= 0 for left, top, _, _ in drawn)
    assert all(right <= width and bottom <= height for _, _, right, bottom in drawn)
    shown = texts_of_class(picture, "node")
    assert set(description.node_names()) <= set(shown)
    paths = list(picture.iter(f"{SVG}path"))
    assert len(paths) >= sum(len(group.between) for group in description.links)
    legend = texts_of_class(picture, "legend")
    for group in description.links:
        assert any(f"{group.rate_GBps.value:g} GB/s" in line for line in legend)


@pytest.mark.parametrize("name", machines.names())
def test_trees_have_every_node_once(name: str) -> None:
    description = machines.load(name)
    lines = texts(machine_tree(description))
    for node in description.node_names():
        assert sum(re.match(rf"{node}\b", line) is not None for line in lines) == 1, node
    for rank, device in enumerate(description.devices):
        assert any(line.startswith(f"{device} (local rank {rank})") for line in lines)


def test_the_command_shows_a_machine(tmp_path: Path) -> None:
    text = output_of("--machine", "abci", "--svg", str(tmp_path / "a.svg"))
    assert "1,088 hosts in racks of 32" in text
    assert "gpu0 (local rank 0), 15.75 GB/s; 50 GB/s to gpu1, gpu2, gpu3" in text
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag == f"{SVG}svg"
    rows = json.loads(output_of("--machine", "abci", "--json", "-"))
    assert rows["hosts"] == 1088
    assert rows["hops"]["rack"]["alpha"] == pytest.approx(4.8e-6)
    origin = next(row for row in rows["origins"] if row["key"] == "network.nic_rate_GBps")
    assert origin["value"] == 9.30119
    assert (origin["origin"], origin["note"].split(",")[0]) == ("printed", "Ueno19")
    output_of("--machine", "abci", "--json", str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == rows


def test_the_command_shows_this_host(tmp_path: Path) -> None:
    text = output_of("--svg", str(tmp_path / "here.svg"))
    assert "NUMA node 0" in text
    assert "core 0" in text
    assert ElementTree.parse(tmp_path / "here.svg").getroot().tag == f"{SVG}svg"


def test_the_command_lists_machines() -> None:
    assert [line.split()[0] for line in output_of("--list").splitlines()] == machines.names()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    text = output_of("--svg", str(tmp_path / "no" / "a.svg"), status=2)
    assert "cannot write" in text
