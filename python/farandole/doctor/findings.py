# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of `farandole doctor`."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.doctor.libraries import find_library_file
from farandole.doctor.settings import visible_settings

_SIOCGIFADDR = 0x8915
_CHILD_SECONDS_MAX = 20
NO_JOB = "none: a job of one rank"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    state  "ok"; "absent": something optional is not here; "missing": Farandole needs it.
    """

    area: str
    name: str
    state: str
    value: str
    note: str = ""

    def row(self) -> dict[str, str]:
        return dict(vars(self))


def all_findings() -> list[Finding]:
    areas = (machine, mechanisms, network, packages, libraries, launchers, settings_in_force)
    return [finding for area in areas for finding in area()]


def machine() -> Iterator[Finding]:
    usable, online = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, value, note in (
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}", ""),
        ("python", f"{platform.python_version()} ({sys.executable})", ""),
        ("cores", f"{usable} of {online}", "this process may use of those online"),
        ("memory", f"{memory / 2**30:.1f} GiB", ""),
        ("page size", f"{os.sysconf('SC_PAGE_SIZE')} bytes", ""),
    ):
        yield Finding("machine", name, "ok", value, note)


def mechanisms() -> Iterator[Finding]:
    """What the launcher and the shared-memory transport stand on, each tried out."""
    for name, probe, purpose in (
        ("memfd", _probe_memfd, "memory that ranks on a host share"),
        ("/proc/PID/fd", _probe_foreign_fd, "opening a peer's shared memory"),
        ("abstract sockets", _probe_abstract_socket, "passing descriptors between ranks"),
        ("pidfd", _probe_pidfd, "`farandole run` waits for its ranks with it"),
        ("loopback", _probe_loopback, "ranks on a host meet there"),
    ):
        problem = _problem(probe)
        state = "missing" if problem else "ok"
        yield Finding("mechanism", name, state, problem or "works", purpose)


def network() -> Iterator[Finding]:
    for _, name in socket.if_nameindex():
        state = _read(Path(f"/sys/class/net/{name}/operstate"), "unknown")
        speed = _read(Path(f"/sys/class/net/{name}/speed"), "")
        parts = [_ipv4_address(name) or "no IPv4 address", f"state {state}"]
        if speed.isdigit():
            parts.append(f"{speed} Mbit/s")
        yield Finding("network", name, "ok", ", ".join(parts))


def packages() -> Iterator[Finding]:
    yield _native_module()
    for name, needed, note in (
        ("numpy", True, ""),
        ("torch", False, "for farandole.torch"),
        ("nvidia-ml-py", False, "for GPUs in `farandole topo`"),
        ("ml_dtypes", False, "for bfloat16 in NumPy arrays"),
        ("mpi4py", False, "not used by this version"),
        ("jax", False, "this version has no front end for it; NumPy views and DLPack work"),
        ("tensorflow", False, "this version has no front end for it"),
        ("keras", False, "this version has no front end for it"),
    ):
        version = _version(name)
        state = "ok" if version else "missing" if needed else "absent"
        yield Finding("package", name, state, version, note)


def libraries() -> Iterator[Finding]:
    """Found by name only; nothing is initialised. This version uses none of them."""
    for name, files, feature in (
        ("MPI", ("libmpi.so.40", "libmpi.so.12", "libmpi.so"), "moving data through MPI"),
        ("CUDA driver", ("libcuda.so.1",), "tensors in GPU memory"),
        ("NVRTC", ("libnvrtc.so.13", "libnvrtc.so.12"), "reductions on the GPU"),
        ("NCCL", ("libnccl.so.2",), "NCCL as a delegate inside a node"),
        ("UCX", ("libucp.so.0",), "InfiniBand and RoCE"),
        ("hwloc", ("libhwloc.so.15",), "a finer picture of caches and buses"),
    ):
        path = find_library_file(files)
        note = f"for {feature}; not used by this version"
        yield Finding("library", name, "ok" if path else "absent", path or "", note)


def launchers() -> Iterator[Finding]:
    with contextlib.suppress(ImportError):  # then the native module is reported as missing
        yield Finding("launcher", "this process", "ok", started_by(os.environ))
    for program in ("torchrun", "mpiexec", "srun"):
        path = shutil.which(program)
        yield Finding("launcher", program, "ok" if path else "absent", path or "")


def settings_in_force() -> Iterator[Finding]:
    with contextlib.suppress(ImportError):  # then the native module is reported as missing
        for row in visible_settings():
            if row["name"] in os.environ:
                note = f"default {row['default'] or 'none'}"
                yield Finding("setting", row["name"], "ok", row["value"], note)


def started_by(environment: Mapping[str, str]) -> str:
    """Who started a process with this environment, as farandole.init() finds it."""
    from farandole import _native

    name = _native.started_by(dict(environment))
    return NO_JOB if name == "alone" else name


def _problem(probe: Callable[[], None]) -> str:
    try:
        probe()
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        return str(error)
    return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _native_module() -> Finding:
    try:
        from farandole import _native
    except ImportError as error:
        return Finding("package", "farandole", "missing", str(error), "the native module")
    return Finding("package", "farandole", "ok", _native.VERSION)


def _probe_memfd() -> None:
    os.close(os.memfd_create("farandole-doctor"))


def _probe_foreign_fd() -> None:
    """A process of the same user opens a descriptor of this one."""
    fd = os.memfd_create("farandole-doctor")
    try:
        path = f"/proc/{os.getpid()}/fd/{fd}"
        subprocess.run(
            [sys.executable, "-S", "-c", f"open({path!r}, 'r+b').close()"],
            check=True,
            capture_output=True,
            timeout=_CHILD_SECONDS_MAX,
        )
    finally:
        os.close(fd)


def _probe_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0farandole-doctor-{os.getpid()}")


def _probe_pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _probe_loopback() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=_CHILD_SECONDS_MAX),
    ):
        server.accept()[0].close()


def _ipv4_address(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _read(path: Path, default: str) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an interface that has no speed answers EINVAL
        return default
