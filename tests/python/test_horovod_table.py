# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: docs/horovod.md tells the truth about every public name of horovod.torch.

Method: read its tables and compare them with farandole.torch, with the names that Horovod 0.28.1
exports, and with the parameters that it documents.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "horovod.md").read_text()

# What `from horovod.torch import *` of 0.28.1 brings that is Horovod's.
EXPORTED = """
    Adasum Average Compression DistributedOptimizer HorovodInternalError Max Min ProcessSet Product
    Sum SyncBatchNorm add_process_set allgather allgather_async allgather_object allreduce
    allreduce_ allreduce_async allreduce_async_ alltoall alltoall_async barrier broadcast broadcast_
    broadcast_async broadcast_async_ broadcast_object broadcast_optimizer_state broadcast_parameters
    ccl_built cross_rank cross_size cuda_built ddl_built elastic global_process_set gloo_built
    gloo_enabled grouped_allgather grouped_allgather_async grouped_allreduce grouped_allreduce_
    grouped_allreduce_async grouped_allreduce_async_ grouped_reducescatter
    grouped_reducescatter_async init is_initialized join local_rank local_size mpi_built mpi_enabled
    mpi_threads_supported nccl_built poll rank reducescatter reducescatter_async remove_process_set
    rocm_built shutdown size sparse_allreduce_async start_timeline stop_timeline synchronize
"""
SUBMODULE_NAMES = {
    "elastic.ElasticSampler",
    "elastic.TorchState",
    "elastic.run",
    "is_homogeneous",
    "mpi_ops",
    "run",
}

# Parameters in Horovod's order.
REDUCING = "average name op prescale_factor postscale_factor process_set"
COMPRESSING = "average name compression op prescale_factor postscale_factor process_set"
SCATTERING = "name op process_set prescale_factor postscale_factor"
COMPRESSED_SCATTERING = "name compression op process_set prescale_factor postscale_factor"
PARAMETERS = {
    "DistributedOptimizer": "optimizer named_parameters compression backward_passes_per_step op "
    "gradient_predivide_factor num_groups groups sparse_as_dense process_set",
    "SyncBatchNorm": "num_features eps momentum affine track_running_stats",
    "add_process_set": "process_set",
    "allgather": "tensor name process_set",
    "allgather_async": "tensor name process_set",
    "allgather_object": "obj name",
    "allreduce": f"tensor {COMPRESSING}",
    "allreduce_": f"tensor {REDUCING}",
    "allreduce_async": f"tensor {REDUCING}",
    "allreduce_async_": f"tensor {REDUCING}",
    "alltoall": "tensor splits name process_set",
    "alltoall_async": "tensor splits name process_set",
    "barrier": "process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_": "tensor root_rank name process_set",
    "broadcast_async": "tensor root_rank name process_set",
    "broadcast_async_": "tensor root_rank name process_set",
    "broadcast_object": "obj root_rank name process_set",
    "broadcast_optimizer_state": "optimizer root_rank model",
    "broadcast_parameters": "params root_rank",
    "grouped_allgather": "tensors name process_set",
    "grouped_allgather_async": "tensors name process_set",
    "grouped_allreduce": f"tensors {COMPRESSING}",
    "grouped_allreduce_": f"tensors {REDUCING}",
    "grouped_allreduce_async": f"tensors {REDUCING}",
    "grouped_allreduce_async_": f"tensors {REDUCING}",
    "grouped_reducescatter": f"tensors {COMPRESSED_SCATTERING}",
    "grouped_reducescatter_async": f"tensors {SCATTERING}",
    "init": "comm process_sets",
    "join": "device",
    "run": "func args kwargs np",
    "poll": "handle",
    "reducescatter": f"tensor {COMPRESSED_SCATTERING}",
    "reducescatter_async": f"tensor {SCATTERING}",
    "remove_process_set": "process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "start_timeline": "file_path mark_cycles",
    "synchronize": "handle",
}


def hvd() -> Any:
    return pytest.importorskip("farandole.torch")


def rows() -> list[tuple[str, str, str]]:
    """Name, status and note of each row of the tables of names."""
    section = DOCUMENT.split("## Every name of `horovod.torch`")[1]
    found = re.findall(r"^\| `([\w.]+)` \| (\w+) \|(.*)\|$", section, re.M)
    return [(name, status, note.strip()) for name, status, note in found]


STATUS = {name: status for name, status, _ in rows()}


def is_there(name: str) -> bool:
    missing = object()
    importlib.import_module("farandole.torch.mpi_ops")
    found = reduce(lambda part, each: getattr(part, each, missing), name.split("."), hvd())
    return found is not missing


def test_table_has_each_name_of_horovod_once() -> None:
    names = [name for name, _, _ in rows()]
    assert sorted(names) == sorted({*EXPORTED.split(), *SUBMODULE_NAMES})


def test_what_differs_or_is_missing_says_how() -> None:
    assert {status for _, status, _ in rows()} == {"same", "differs", "missing"}
    assert [name for name, status, note in rows() if status != "same" and not note] == []


@pytest.mark.parametrize("name", STATUS)
def test_what_the_table_calls_missing_is_missing_and_all_else_is_there(name: str) -> None:
    assert is_there(name) == (STATUS[name] != "missing")


# Method: what we export is in the table, or in the sentence that says what is ours.
def test_everything_we_export_is_horovods_or_called_ours() -> None:
    last = DOCUMENT.strip().split("\n\n")[-1]
    assert last.endswith("are ours.")
    ours = set(re.findall(r"`(\w+)`", last))
    modules = {"mpi_ops"}
    named = {name for name in STATUS if STATUS[name] != "missing"} - modules
    assert set(hvd().__all__) == named | ours
    assert not ours & set(STATUS)


# Goal: positional calls of a Horovod script mean the same here.
# Method: Horovod's parameters come first, in its order, and what follows has a default.
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_horovods(name: str) -> None:
    parameters = inspect.signature(getattr(hvd(), name)).parameters
    expected = PARAMETERS[name].split()
    assert list(parameters)[: len(expected)] == expected
    rest = list(parameters.values())[len(expected) :]
    assert all(each.default is not inspect.Parameter.empty for each in rest)


# Goal: what scripts import from modules of Horovod is in ours of that name, and one thing.
def test_modules_are_where_horovod_has_them() -> None:
    torch = hvd()
    mpi_ops = importlib.import_module("farandole.torch.mpi_ops")
    assert all(getattr(mpi_ops, name) is getattr(torch, name) for name in torch.__all__)
    exceptions = importlib.import_module("farandole.common.exceptions")
    assert exceptions.HorovodInternalError is torch.HorovodInternalError
    sets = importlib.import_module("farandole.common.process_sets")
    assert sets.ProcessSet is torch.ProcessSet
    assert sets.global_process_set is torch.global_process_set


@pytest.mark.parametrize("name", [n for n in STATUS if n.endswith(("_built", "_enabled"))])
def test_there_is_no_other_library_inside(name: str) -> None:
    assert not getattr(hvd(), name)()


# Method: the variables and options of the document are those that farandole run knows.
def test_variables_and_options_are_those_of_the_command_line() -> None:
    from typer.main import get_command

    from farandole.cli import horovod
    from farandole.cli.app import app

    starting = DOCUMENT.split("## Starting")[1].split("\n## ")[0]
    taken, given = starting.split("Ranks find")
    assert set(re.findall(r"HOROVOD_\w+", taken)) == set(horovod._VARIABLES)
    assert set(re.findall(r"HOROVOD_\w+", given)) == {
        f"HOROVOD_{where}{what}" for where in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")
    }
    command = getattr(get_command(app), "commands", {})["run"]
    known = {option for each in command.params for option in each.opts}
    for theirs, here in re.findall(r"^\| (`-.*?) \| (.*) \|$", starting, re.M):
        cell = theirs if here.startswith("the same") else "" if "not there" in here else here
        for option in re.findall(r"`(-[-\w]+)`", cell):
            assert option in known, option
