# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Changes one line of the C++ sources at random, and looks whether a test notices.

    python tools/mutate.py --seed 7 --count 200

Works on a copy of the sources under build/mutate, with a build of its own. Each change, a mutant,
is compiled and given to the test programs until one fails. A line is printed per mutant, and a
record is appended to the report. The same command continues an interrupted run. `--only 12` runs
the twelfth mutant of the seed once more; `--patch FILE` runs a given change instead of drawn ones.

The verdicts:

    killed      a test fails, crashes, or stays silent or grows past a limit, twice in a row
    alive       all tests pass
    equivalent  tools/mutants.toml lists the mutant, with the reason why no test can fail
    same        no test program differs from the original one; not counted
    invalid     does not compile; not counted
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from mutations import Mutant, draw

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tools" / "mutants.toml"
FILES = (
    *("src/engine/*.cpp", "src/frontend/operation_cache.cpp", "src/transport/shm/*.cpp"),
    *("src/transport/tcp/*.cpp", "src/engine/*.hpp", "src/frontend/operation_cache.hpp"),
    *("src/transport/shm/*.hpp", "src/transport/tcp/*.hpp"),
)
SUITES = (
    *("unit_engine", "unit_transport", "conformance", "simulation", "collectives"),
    "unit_frontend",
)
CORES = 2
# Resident, per test program: the kernel's limits count address space, which tests reserve freely.
MEMORY_BYTES_MAX = 6 << 30
# A mutant may slow a test down, and so may other work on the machine.
PATIENCE, SILENCE_S_MIN = 10, 30.0
SILENCE_S_OF_ORIGINAL = 300.0
UNSTEADY_MAX = 3

# Building and testing ---------------------------------------------------------------------------


@dataclasses.dataclass
class Project:
    """Sources, how to build a test program, and how to run it; `{suite}` is its name.

    The program prints and takes options as GoogleTest does.
    """

    root: Path
    place: Path  # of the copy and all that is built
    build: tuple[str, ...]
    program: str
    suites: tuple[str, ...]
    sources: dict[str, bytes] = dataclasses.field(default_factory=dict)
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    silence_s: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.place / "tree"

    def take_sources(self) -> None:
        """The files that git tracks, as they are now."""
        listing = subprocess.run(("git", "ls-files"), cwd=self.root, capture_output=True, text=True)
        paths = [self.root / name for name in listing.stdout.splitlines()]
        self.sources = {
            str(path.relative_to(self.root)): path.read_bytes() for path in paths if path.is_file()
        }

    def restore(self) -> None:
        """Makes the copy what the sources were at the start."""
        present = (path for path in self.tree.rglob("*") if path.is_file())
        for path in present:
            if str(path.relative_to(self.tree)) not in self.sources:
                path.unlink()
        for name, content in self.sources.items():
            path = self.tree / name
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def apply(self, mutant: Mutant) -> None:
        if mutant.operator == "patch":
            command = ("patch", "-p1", "--silent", "--no-backup-if-mismatch", "-i", mutant.after)
            subprocess.run(command, cwd=self.tree, check=True)
            return
        path = self.tree / mutant.file
        lines = path.read_text().split("\n")
        old = lines[mutant.line - 1]
        lines[mutant.line - 1] = old[: len(old) - len(old.lstrip())] + mutant.after
        path.write_text("\n".join(lines))

    def compile(self, suite: str) -> str | None:
        """The compiler's first error; none if there is a program now. Other failures end all."""
        command = [part.format(suite=suite) for part in self.build]
        done = subprocess.run(command, cwd=self.place, capture_output=True, text=True)
        if done.returncode == 0:
            return None
        output = done.stdout + done.stderr
        if found := re.search(r"^.*error:.*$|^.*undefined reference.*$", output, re.M):
            return found[0]
        sys.exit(f"mutate: building {suite} failed:\n{output}")

    def path(self, suite: str) -> Path:
        return self.place / self.program.format(suite=suite)

    def digest(self, suite: str) -> str:
        return hashlib.sha256(self.path(suite).read_bytes()).hexdigest()

    def run(self, suite: str, chosen: str, silence_s: float) -> tuple[str | None, float]:
        """The test that failed, if one did, and the longest time without a line of output."""
        log = self.place / "output.log"
        command = (str(self.path(suite)), "--gtest_fail_fast", f"--gtest_filter={chosen}")
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, cwd=self.place, stdout=output, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        size, since, longest, limit = -1, time.monotonic(), 0.0, ""
        try:
            while child.poll() is None:
                time.sleep(0.02)
                now = time.monotonic()
                longest = max(longest, now - since)
                if log.stat().st_size != size:
                    size, since = log.stat().st_size, now
                elif now - since > silence_s:
                    limit = " (time limit)"
                if resident_bytes(child.pid) > MEMORY_BYTES_MAX:
                    limit = " (memory limit)"
                if limit:
                    break
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also what it started
            child.wait()
        if child.returncode == 0 and not limit:
            return None, longest
        text = log.read_text(errors="replace")
        failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", text, re.M)
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        name = (failed or begun[-1:] or ["*"])[0]
        return name + limit, longest

    def measure(self) -> None:
        """Builds and runs the original, which must pass; learns how long its tests stay silent."""
        for suite in self.suites:
            if error := self.compile(suite):
                sys.exit(f"mutate: the original does not compile: {error}")
            self.digests[suite] = self.digest(suite)
            if suite in self.silence_s:
                continue
            failed, silence = self.run(suite, "*", SILENCE_S_OF_ORIGINAL)
            if failed and self.run(suite, failed, SILENCE_S_OF_ORIGINAL)[0]:
                sys.exit(f"mutate: the original fails {suite} {failed}")
            self.silence_s[suite] = max(SILENCE_S_MIN, PATIENCE * silence)

    def killer(self, suite: str) -> tuple[str | None, list[str]]:
        """The test that fails twice in a row, and those that failed only once."""
        unsteady: list[str] = []
        while len(unsteady) < UNSTEADY_MAX:
            chosen = "*" + "".join(f":{name}" for name in unsteady).replace(":", ":-", 1)
            failed, _ = self.run(suite, chosen, self.silence_s[suite])
            if failed is None:
                return None, unsteady
            name = failed.split(" ")[0]
            if name == "*" or self.run(suite, name, self.silence_s[suite])[0]:
                return failed, unsteady
            unsteady.append(name)
        return (
            None,
            unsteady,
        )  # too unsteady a machine to tell; at worst a test too many is asked for

    def judge(self, file: str) -> tuple[str, str]:
        """Verdict and evidence on what the copy holds; tests of the file's own folder go first."""
        unsteady: list[str] = []
        differs = False
        for suite in sorted(self.suites, key=lambda suite: own(suite, file)):
            if error := self.compile(suite):
                return "invalid", error
            if self.digest(suite) == self.digests[suite]:
                continue
            differs = True
            killer, once = self.killer(suite)
            if killer:
                return "killed", f"{suite} {killer}"
            unsteady += once
        if not differs:
            return "same", ""
        return "alive", f"failed once: {', '.join(unsteady)}" if unsteady else ""


def own(suite: str, file: str) -> bool:
    """False, which sorts first, if the program tests the file's layer by itself."""
    layer = file.split("/")[1] if "/" in file else ""
    return suite != f"unit_{layer}" and not (suite == "conformance" and layer == "transport")


def resident_bytes(pid: int) -> int:
    """What a process occupies; 0 once it has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return int(pages) * resource.getpagesize()


# Runs and reports -------------------------------------------------------------------------------


def reasons(table: Path) -> list[dict[str, str]]:
    """Mutants on which no test can fail: file, line, the line above it (needed if several lines of
    the file are alike), changed line and reason."""
    return tomllib.loads(table.read_text()).get("equivalent", []) if table.exists() else []


def places(text: str, row: dict[str, str]) -> list[int]:
    """The lines of a file, from 1, that a row may mean."""
    lines = [""] + [line.strip() for line in text.splitlines()]
    return [
        at
        for at in range(1, len(lines))
        if lines[at] == row["before"] and row.get("above", lines[at - 1]) == lines[at - 1]
    ]


def reason_of(project: Project, mutant: Mutant, table: list[dict[str, str]]) -> str:
    """Why it is equivalent; empty if nobody says so."""
    for row in table:
        if (mutant.file, mutant.before, mutant.after) != (row["file"], row["before"], row["after"]):
            continue
        if mutant.line in places(project.sources[mutant.file].decode(), row):
            return row["reason"]
    return ""


class Report:
    """JSON lines: what was measured, then one record per mutant."""

    def __init__(self, path: Path, project: Project, key: dict[str, Any]) -> None:
        self.path = path
        self.records: dict[int, dict[str, Any]] = {}
        lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        if lines and lines[0]["key"] != key:
            sys.exit(f"mutate: {path} is of other sources or options; delete it or name another")
        if lines:
            project.silence_s.update(lines[0]["silence_s"])
            self.records = {record["number"]: record for record in lines[1:]}
        project.measure()
        if not lines:
            self.append({"key": key, "silence_s": project.silence_s})

    def append(self, record: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as out:
            out.write(json.dumps(record) + "\n")


def try_mutant(project: Project, mutant: Mutant, table: list[dict[str, str]]) -> dict[str, Any]:
    began = time.monotonic()
    verdict, by = "equivalent", reason_of(project, mutant, table)
    if not by:
        project.restore()
        project.apply(mutant)
        verdict, by = project.judge(mutant.file)
    seconds = round(time.monotonic() - began, 1)
    return dataclasses.asdict(mutant) | {"verdict": verdict, "by": by, "seconds": seconds}


def of_patch(patch: Path) -> Mutant:
    """A change of any size, as `git diff` writes it."""
    changed = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
    if not changed:
        sys.exit(f"mutate: {patch} has no line that begins with '+++ b/', as `git diff` makes it")
    return Mutant(0, changed[1], after=str(patch.resolve()))


def show(record: dict[str, Any]) -> None:
    where = f"{record['number']:4} {record['verdict']:10} {record['file']}:{record['line']}"
    print(f"{where}  {record['operator']}: {record['before']}  =>  {record['after']}")
    print(f"     {record['by']} ({record['seconds']} s)", flush=True)


def run_drawn(
    project: Project,
    mutants: Iterator[Mutant],
    count: int,
    report: Report,
    table: list[dict[str, str]],
) -> list[dict[str, Any]]:
    """The first `count` mutants that count, from the report or tried now."""
    records: list[dict[str, Any]] = []
    for mutant in mutants:
        if len(records) == count:
            break
        record = report.records.get(mutant.number)
        if record is None:
            record = try_mutant(project, mutant, table)
            report.append(record)
            show(record)
        if record["verdict"] not in ("same", "invalid"):
            records.append(record)
    return records


def summarize(records: list[dict[str, Any]], seed: int) -> None:
    verdicts = Counter(str(record["verdict"]) for record in records)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    share = 100 * verdicts["alive"] / max(len(records), 1)
    print(f"\nseed {seed}: {len(records)} mutants: {counts}; {share:.1f} % alive")
    for record in records:
        if record["verdict"] in ("alive", "equivalent"):
            show(record)


# The command line -------------------------------------------------------------------------------


def farandole(root: Path, place: Path, suites: Sequence[str]) -> Project:
    """This repository, configured so that a mutant costs the compilation of one file."""
    if "CMAKE_CXX_COMPILER_LAUNCHER" not in os.environ and shutil.which("ccache"):
        os.environ["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    build = ("cmake", "--build", "build", "--target", "{suite}", "--", f"-j{CORES}")
    project = Project(root, place, build, "build/tests/{suite}", tuple(suites))
    project.take_sources()
    project.restore()
    options = ("-DFARANDOLE_TESTS=ON", "-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_BUILD_TYPE=Release")
    configure = ("cmake", "-G", "Ninja", "-S", "tree", "-B", "build", *options)
    optimize = "-DCMAKE_CXX_FLAGS_RELEASE=-O1"
    subprocess.run((*configure, optimize), cwd=place, check=True, stdout=subprocess.DEVNULL)
    return project


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("mutate.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="of mutants that count")
    parser.add_argument("--files", nargs="+", default=list(FILES), metavar="GLOB")
    parser.add_argument("--tests", nargs="+", metavar="PROGRAM", help="all that there are")
    parser.add_argument("--report", type=Path, metavar="FILE")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="try this mutant once more")
    parser.add_argument("--patch", type=Path, nargs="+", metavar="FILE", default=[])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    there = [suite for suite in SUITES if (ROOT / "tests" / suite.replace("_", "/")).is_dir()]
    place = ROOT / "build" / "mutate"
    project = farandole(ROOT, place, given.tests or there)
    texts = {
        name: content.decode()
        for name, content in project.sources.items()
        if any(PurePosixPath(name).match(pattern) for pattern in given.files)
    }
    mutants = list(draw(texts, given.seed))
    digest = hashlib.sha256(repr(mutants).encode()).hexdigest()
    key = {"seed": given.seed, "mutants": digest, "files": given.files, "tests": [*project.suites]}
    table = reasons(EQUIVALENT)
    report = Report(given.report or place / f"report-{given.seed}.jsonl", project, key)
    if given.patch:
        for patch in given.patch:
            show(try_mutant(project, of_patch(patch), table))
    elif given.only:
        show(try_mutant(project, mutants[given.only - 1], table))
    else:
        records = run_drawn(project, iter(mutants), given.count, report, table)
        summarize(records, given.seed)
    project.restore()


if __name__ == "__main__":
    main()
