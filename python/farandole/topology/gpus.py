# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs of this host through NVML, if the package nvidia-ml-py (extra "gpu") is installed."""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NVLINKS_MAX = 18  # NVML numbers them up to here
# GB/s per link and direction, by NVML's version of NVLink (data sheets of P100, V100, A100, H100).
_NVLINK_GBPS = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
# GB/s per lane and direction, by generation, after encoding.
_PCIE_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
SWITCH = "nvswitch"


@dataclass(frozen=True)
class Gpu:
    index: int
    model: str
    memory_bytes: int
    pci: str  # bus id
    numa: int
    pcie_gbps: float  # GB/s in each direction
    nvlink_gbps: dict[str, float] = field(default_factory=dict)  # by "gpu1", or SWITCH


def find_gpus(system: Path) -> list[Gpu]:
    """Empty where there is no driver or no package."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except (ImportError, OSError, _nvml_error()):
        return []
    try:
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
        ]
        names = {_bus_id(nvml.nvmlDeviceGetPciInfo(h)): f"gpu{i}" for i, h in enumerate(handles)}
        return [_gpu(nvml, index, handle, names, system) for index, handle in enumerate(handles)]
    finally:
        nvml.nvmlShutdown()


def _nvml_error() -> type[Exception]:
    with contextlib.suppress(ImportError):
        error: type[Exception] = importlib.import_module("pynvml").NVMLError
        return error
    return ImportError


def _gpu(nvml: Any, index: int, handle: Any, names: dict[str, str], system: Path) -> Gpu:
    pci = _bus_id(nvml.nvmlDeviceGetPciInfo(handle))
    generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    width = nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    numa = system / "bus/pci/devices" / pci.lower()[-12:] / "numa_node"
    text = numa.read_text().strip() if numa.exists() else ""
    return Gpu(
        index=index,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        pci=pci,
        numa=int(text) if text.isdigit() else 0,
        pcie_gbps=_PCIE_LANE_GBPS.get(generation, _PCIE_LANE_GBPS[3]) * width,
        nvlink_gbps=dict(_nvlinks(nvml, handle, names)),
    )


def _nvlinks(nvml: Any, handle: Any, names: dict[str, str]) -> Iterator[tuple[str, float]]:
    links: Counter[str] = Counter()
    version = 0
    for link in range(_NVLINKS_MAX):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            version = nvml.nvmlDeviceGetNvLinkVersion(handle, link)
            remote = _bus_id(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
        except nvml.NVMLError:  # this GPU has no such link
            break
        links[names.get(remote, SWITCH)] += 1
    for peer, count in links.items():
        yield peer, count * _NVLINK_GBPS.get(version, _NVLINK_GBPS[4])


def _bus_id(pci: Any) -> str:
    return _text(pci.busId)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
