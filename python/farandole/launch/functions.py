# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""run(): a function in several new processes of this host, as a notebook wants it.

Function, arguments and results travel as pickles. The package cloudpickle, where it is installed,
lets functions travel that no module has, such as those of a notebook.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from farandole.errors import FarandoleError, InvalidArgumentError

Result = TypeVar("Result")
_OF_A_RANK = "import farandole.launch.functions as f; f.main_of_a_rank()"


def run(
    func: Callable[..., Result],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,
    start_timeout: float | None = None,
    verbose: bool = False,
) -> list[Result]:
    """What func(*args, **kwargs) returns in each of `np` ranks of a new job, by rank.

    The function calls init() itself. What ranks print appears here line by line.

    Errors   InvalidArgumentError naming what cannot be pickled; FarandoleError with the traceback
             of a rank in which the function raised, or the status with which the job ended.
    """
    if not callable(func):
        raise InvalidArgumentError(f"run: func is {func!r}, allowed is a function")
    if not isinstance(np, int) or np < 1:
        raise InvalidArgumentError(f"run: np is {np!r}, allowed is 1 or more")
    with tempfile.TemporaryDirectory(prefix="farandole-run-") as folder:
        call = (func, tuple(args), dict(kwargs or {}))
        (Path(folder) / "call").write_bytes(pickle.dumps((sys.path, _pickled(call, func))))
        command = [sys.executable, "-m", "farandole.cli", "run", "-n", str(np)]
        if start_timeout is not None:
            command += ["--start-timeout", str(start_timeout)]
        command += ["--verbose"] * verbose
        status = _watch([*command, "--", sys.executable, "-c", _OF_A_RANK, folder])
        return _results(Path(folder), np, status)


def _pickler() -> Any:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return pickle


def _pickled(value: Any, func: object) -> bytes:
    pickler = _pickler()
    module = getattr(func, "__module__", None)
    help_text = "" if pickler is not pickle else "; functions of a notebook need `cloudpickle`"
    if pickler is pickle and module == "__main__":
        raise InvalidArgumentError(f"run: func is {func!r}, which no module has{help_text}")
    try:
        data: bytes = pickler.dumps(value)
    except Exception as error:  # whatever an object's methods raise
        raise InvalidArgumentError(
            f"run: func or its arguments cannot be pickled: {error}{help_text}"
        ) from error
    return data


def _watch(command: list[str]) -> int:
    """Runs the job and passes on its output, which a notebook shows only of this process."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as job:
        assert job.stdout is not None
        try:
            for line in job.stdout:
                print(line, end="", flush=True)
        except BaseException:
            job.terminate()  # the launcher ends its ranks
            raise
    return job.returncode


def _results(folder: Path, rank_count: int, status: int) -> list[Any]:
    found: dict[int, tuple[bool, Any]] = {}
    for rank in range(rank_count):
        path = folder / str(rank)
        if path.exists():
            found[rank] = _pickler().loads(path.read_bytes())
    failed = {rank: said for rank, (fine, said) in found.items() if not fine}
    if failed:
        # Others fail because the first one did; theirs name it.
        first = min(failed, key=lambda rank: ("RankFailed" in failed[rank], rank))
        raise FarandoleError(f"run: func failed on rank {first}:\n{failed[first]}")
    if status != 0 or len(found) < rank_count:
        raise FarandoleError(f"run: the job ended with status {status} before func returned")
    return [found[rank][1] for rank in range(rank_count)]


def main_of_a_rank() -> None:
    """Makes the call that run() wrote into the folder of argv, and writes what came of it there."""
    folder, rank = Path(sys.argv[1]), os.environ["FARANDOLE_RANK"]
    fine = True
    try:
        paths, call = pickle.loads((folder / "call").read_bytes())
        sys.path += [path for path in paths if path not in sys.path]
        func, args, kwargs = _pickler().loads(call)
        said = _pickler().dumps((True, func(*args, **kwargs)))
    except BaseException:
        fine, said = False, pickle.dumps((False, traceback.format_exc()))
    partial = folder / f"{rank}.partial"
    partial.write_bytes(said)
    partial.rename(folder / rank)
    sys.exit(0 if fine else 1)
