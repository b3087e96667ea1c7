# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank: forks children that call everything, in the ways that children end; prints what they
got, and what the rank itself gets from its collectives afterwards, as one JSON line."""

import gc
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import farandole
from farandole import _native
from farandole.coordination import process_sets

CHILD_SECONDS = 30  # one that hangs is ended by SIGALRM, and seen by its status

how = sys.argv[1]
farandole.init()
process_sets.init()
rank, size = farandole.rank(), farandole.size()
world = farandole.world()
part, own = world.split(0), world.split(rank)
assert part is not None
assert own is not None
ones = np.ones(8)
coordinator = process_sets.global_process_set.coordinator


def start() -> tuple[Any, Any]:
    """Two operations, which the other rank has to take part in."""
    call = _native.TensorCall(
        name="t",
        collective=_native.Collective.allreduce,
        dtype=_native.DType.float64,
        shape=[8],
        input=ones.ctypes.data,
        output=ones.ctypes.data,
    )
    submitted = coordinator.submit([call])
    return farandole.allreduce_async(np.ones(1000)), submitted[0]


# Rank 1 takes part after all forks.
request, submission = start() if rank == 0 else (None, None)
library = [farandole.empty(8 << 20, np.float32) for _ in range(4)]  # 128 MiB
for array in library:
    array[:] = rank + 1
busy = threading.Event()


def keep_busy() -> None:
    """Holds the library's locks at many of the moments of a fork."""
    while not busy.is_set():
        own.allreduce(ones)
        farandole.statistics()


CALLS: dict[str, Callable[[], Any]] = {
    "init": farandole.init,
    "process_sets.init": process_sets.init,
    "allreduce": lambda: farandole.allreduce(ones),
    "allreduce in place": lambda: farandole.allreduce(ones, ones),
    "allreduce_async": lambda: farandole.allreduce_async(ones),
    "allgather": lambda: world.allgather(ones),
    "reduce": lambda: world.reduce(ones),
    "broadcast": lambda: world.broadcast(ones),
    "reducescatter": lambda: world.reducescatter(ones),
    "gather": lambda: world.gather(ones),
    "scatter": lambda: world.scatter(ones),
    "alltoall": lambda: world.alltoall(ones),
    "barrier": farandole.barrier,
    "barrier of a part": lambda: part.barrier(),
    "send": lambda: farandole.send(ones, 1 - rank),
    "recv": lambda: farandole.recv(ones, 1 - rank),
    "sendrecv": lambda: farandole.sendrecv(ones, rank, ones.copy(), rank),
    "batch_async": lambda: farandole.batch_async([farandole.Send(ones, 1 - rank)]),
    "split": lambda: farandole.split(0),
    "group": lambda: farandole.group([0, 1]),
    "node": lambda: farandole.Communicator(world.native).node,
    "across": lambda: farandole.Communicator(world.native).across,
    "free": lambda: part.free(),
    "set_algorithm": lambda: world.set_algorithm("allreduce", 4, "ring"),
    "empty": lambda: farandole.empty(3),
    "statistics": farandole.statistics,
    "wait": lambda: request.wait() if request else world.barrier(),
    "test": lambda: request.test() if request else world.barrier(),
    "submit": lambda: process_sets.wait_for_all(process_sets.global_process_set, "all"),
    "join": coordinator.join,
    "configure": lambda: coordinator.configure(
        cycle_time=0.001, fusion_threshold=1 << 20, size_shift=0
    ),
    "submission.wait": lambda: submission.wait() if submission else world.barrier(),
    "submission.test": lambda: submission.test() if submission else world.barrier(),
    "add_process_set": lambda: process_sets.add_process_set([0]),
    "start_timeline": lambda: farandole.context().start_timeline("/dev/null"),
}


def outcome(name: str) -> str:
    """What is wrong with what the call does here; nothing if it raises what it should."""
    try:
        CALLS[name]()
    except farandole.InvalidArgumentError as error:
        expected = f"was forked from rank {rank}, process {os.getppid()},"
        return "" if expected in str(error) else f"{name}: {error}\n"
    except BaseException:
        return f"{name}: {traceback.format_exc()}\n"
    return f"{name}: no error\n"


def child() -> None:
    """Calls everything; status 1 if anything did not raise what it should."""
    signal.alarm(CHILD_SECONDS)
    assert (farandole.rank(), farandole.size()) == (rank, size)
    wrong = "".join(outcome(name) for name in CALLS)
    library.clear()
    globals().pop("array")
    gc.collect()
    if wrong:
        os.write(2, wrong.encode())
        os._exit(1)
    if how == "shutdown":
        farandole.shutdown()
        farandole.shutdown()
    if how == "os._exit":
        os._exit(0)
    sys.exit(0)


thread = threading.Thread(target=keep_busy)
thread.start()
statuses = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        child()
    statuses.append(os.waitpid(pid, 0)[1])
busy.set()
thread.join()
if rank == 0:
    farandole.send(ones, 1)
else:
    farandole.recv(ones, 0)  # whose children are done
    ones[:] = 1
    request, submission = start()
sums = [farandole.allreduce(np.full(4, rank + 1.0)).tolist() for _ in range(3)]
submission.wait()
report = {
    "statuses": statuses,
    "request": request.wait().tolist() == [2.0] * 1000,
    "submission": ones.tolist() == [2.0] * 8,
    "sums": sums,
    "memory": [bool((array == rank + 1).all()) for array in library],
    "after": part.allreduce(np.array([rank + 1])).tolist(),
}
farandole.shutdown()
os.write(1, json.dumps(report).encode() + b"\n")
