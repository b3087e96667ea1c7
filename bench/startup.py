# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""How long it takes to the first allreduce, and what memory a rank then has more than before.

    python bench/startup.py [--ranks 4,8,64] [--rounds 5] [--json FILE]

Launches jobs of so many ranks on this machine. The ranks wait for each other three times: once
their interpreters are up and NumPy is imported, once `import farandole` is over, and after the
first allreduce. A phase takes from the instant at which the last rank was ready for it, by the
machine's monotonic clock, to the instant at which the last rank was through.

Memory is from /proc/self/smaps_rollup, in MB of 10^6 bytes: what is private to the process (Uss),
that and its share of what several processes map (Pss), all that it maps (Rss). What a rank added
is the difference between before `import farandole` and after the first allreduce, without buffers
for fusion, which the first named tensor would make; the largest of all ranks is shown.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

POLL_SECONDS = 0.001
DEADLINE_SECONDS = 300.0


class Gate:
    """What the ranks wait for each other at: a byte per rank and phase in a file."""

    def __init__(self, path: str, ranks: int, rank: int) -> None:
        with Path(path).open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)
        self._ranks, self._rank, self._phase = ranks, rank, 0

    def wait(self) -> float:
        """Returns once all ranks have come; when this one came, in seconds."""
        came = time.monotonic()
        first = self._phase * self._ranks
        self._bytes[first + self._rank] = 1
        while self._bytes[first : first + self._ranks].count(1) < self._ranks:
            if time.monotonic() - came > DEADLINE_SECONDS:
                raise TimeoutError(f"not all ranks came to gate {self._phase}")
            time.sleep(POLL_SECONDS)
        self._phase += 1
        return came


def memory() -> dict[str, float]:
    """MB by name."""
    fields: dict[str, int] = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        fields[name.rstrip(":")] = 1024 * int(value)
    uss = fields["Private_Clean"] + fields["Private_Dirty"]
    return {"Uss": uss / 1e6, "Pss": fields["Pss"] / 1e6, "Rss": fields["Rss"] / 1e6}


def be_a_rank(path: str) -> None:
    """Writes a JSON line: when it was where, and what memory it had."""
    rank, ranks = int(os.environ["FARANDOLE_RANK"]), int(os.environ["FARANDOLE_SIZE"])
    gate = Gate(path, ranks, rank)
    array = np.ones(1, np.float32)
    before = memory()
    stamps = {"interpreter": gate.wait()}
    import farandole

    stamps["import"] = gate.wait()
    imported = memory()
    farandole.init()
    stamps["init"] = time.monotonic()
    result = farandole.allreduce(array)
    stamps["allreduce"] = gate.wait()
    after = memory()
    gate.wait()  # until all have looked, since what ranks share counts by their number
    row = {"right": float(result[0]) == ranks, "stamps": stamps}
    row["memory"] = {"before": before, "imported": imported, "after": after}
    Path(f"{path}.{rank}").write_text(json.dumps(row))


def launch(ranks: int) -> list[dict[str, Any]]:
    """One job; what its ranks wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gates"
        path.write_bytes(bytes(4 * ranks))
        command = [
            sys.executable,
            "-m",
            "farandole.cli",
            "run",
            "--oversubscribe",
            "-n",
            str(ranks),
            "--",
        ]
        command += [sys.executable, __file__, "--rank-of", str(path)]
        subprocess.run(command, check=True, timeout=2 * DEADLINE_SECONDS)
        return [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(ranks)]


def last(rows: list[dict[str, Any]], stamp: str) -> float:
    return float(max(row["stamps"][stamp] for row in rows))


def seconds(rows: list[dict[str, Any]]) -> dict[str, float]:
    imported = last(rows, "import")
    return {
        "import farandole": imported - last(rows, "interpreter"),
        "init()": last(rows, "init") - imported,
        "init() to first allreduce": last(rows, "allreduce") - imported,
    }


def added(rows: list[dict[str, Any]]) -> dict[str, float]:
    """MB: by `import farandole`, and by that and all up to the first allreduce."""
    found = {}
    for title, name in (("import", "imported"), ("in all", "after")):
        for kind in ("Uss", "Pss", "Rss"):
            differences = (r["memory"][name][kind] - r["memory"]["before"][kind] for r in rows)
            found[f"{kind} added, {title}"] = max(differences)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", default="4,8,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for every sample")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        be_a_rank(arguments.rank_of)
        return
    found = []
    for ranks in map(int, arguments.ranks.split(",")):
        samples: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            rows = launch(ranks)
            if not all(row["right"] for row in rows):
                raise SystemExit("the first allreduce was wrong")
            for name, value in (seconds(rows) | added(rows)).items():
                samples.setdefault(name, []).append(value)
        load = os.getloadavg()[0]
        print(f"{ranks} ranks on {os.cpu_count()} cores, load {load:.1f}")
        for name, values in samples.items():
            unit = "MB" if "added" in name else "s "
            print(f"  {name:<28}{statistics.median(values):9.3f} {unit}", flush=True)
        found.append({"ranks": ranks, "load": load, "samples": samples})
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
