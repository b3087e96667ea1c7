# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The native module. Front ends pass pointers, counts and enum values; no array types here.

Enum values are indices into `DTYPES`, `REDUCTIONS` and `COLLECTIVES`. Every call that may wait
releases the GIL. Errors are the classes of farandole.errors, raised with their attributes.
"""

from collections.abc import Sequence
from typing import Any

DTYPES: list[str]
REDUCTIONS: list[str]
COLLECTIVES: list[str]
VERSION: str

def buffer(object: Any) -> tuple[int, int, bool]:
    """Address, bytes and read-only flag of a C-contiguous buffer. The caller keeps it alive."""

def dlpack(array: Any) -> tuple[int, list[int], str, bool, bool]:
    """Address, shape, dtype name, whether contiguous, whether on the CPU."""

class Request:
    """An operation in flight. Dropping it does not cancel it."""

    def wait(self) -> None: ...
    def test(self) -> bool:
        """True when finished; raises the error if it failed. Does not block."""

class OwnedBuffer:
    """Library-owned memory; buffer protocol (unsigned bytes, writable). Freed with the object."""

    @property
    def pointer(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def world_ranks(self) -> list[int]: ...
    def run(
        self,
        collective: int,
        input: int,
        output: int,
        count: int,
        dtype: int,
        reduction: int = 0,
        root: int = 0,
        algorithm: str = "",
        name: str = "",
        factor: float = 1.0,
        deterministic: bool = False,
        in_counts: list[int] | None = None,
        out_counts: list[int] | None = None,
        by_rank: bool = False,
    ) -> None:
        """Runs to the end. `count` is elements per rank in the caller's terms: the tensor for
        allreduce, reduce and broadcast; the shorter side for reducescatter, allgather, gather and
        scatter; one block for alltoall. `by_rank`: blocks of different lengths, as in_counts and
        out_counts say where they are known (Arguments in farandole.hpp)."""
    def start(
        self,
        collective: int,
        input: int,
        output: int,
        count: int,
        dtype: int,
        reduction: int = 0,
        root: int = 0,
        algorithm: str = "",
        name: str = "",
        factor: float = 1.0,
        deterministic: bool = False,
        in_counts: list[int] | None = None,
        out_counts: list[int] | None = None,
        by_rank: bool = False,
    ) -> Request:
        """The same without waiting. Buffers stay valid and untouched until wait() returned."""
    def run_messages(self, messages: list[tuple[bool, int, int, int, int]], name: str = "") -> None:
        """Messages between two ranks, as one operation: whether it is a send, address, elements,
        dtype, peer of each."""
    def start_messages(
        self, messages: list[tuple[bool, int, int, int, int]], name: str = ""
    ) -> Request:
        """The same without waiting."""
    def split(self, color: int | None, key: int = 0) -> Communicator | None: ...
    def group(self, ranks: list[int]) -> Communicator | None: ...
    def node(self) -> Communicator: ...
    def across(self) -> Communicator: ...
    def free(self) -> None: ...

class Context:
    """One process's membership in a job."""

    @staticmethod
    def from_environment() -> Context: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def cross_rank(self) -> int: ...
    @property
    def cross_size(self) -> int: ...
    @property
    def world(self) -> Communicator: ...
    @property
    def members(self) -> list[dict[str, Any]]:
        """rank, local_rank, host, pid of every process."""
    @property
    def started_by(self) -> str: ...
    def allocate(self, nbytes: int) -> OwnedBuffer: ...
    def statistics(self) -> dict[str, Any]:
        """operations: int; active_seconds: time with at least one operation in flight;
        wait_seconds: time callers spent blocked; transports: {name: {sent_bytes, sent_messages,
        received_bytes, received_messages}}; plans: {"allreduce ring shm": {calls, bytes}};
        strangers: connections refused."""
    def start_timeline(self, path: str) -> None:
        """Records what the coordinators of this process do; "{rank}" in the path is the rank."""
    def stop_timeline(self) -> None: ...
    def dump(self) -> str:
        """State of every operation in flight, for bug reports."""
    def shutdown(self) -> None: ...

class Submission:
    """A tensor that was submitted to a Coordinator."""

    def wait(self) -> None:
        """Blocks without the GIL until it is done; raises what it failed with. Control-C ends the
        wait, not the operation: keep the tensors."""
    def test(self) -> bool:
        """True once it is done; raises what it failed with."""
    @property
    def data(self) -> OwnedBuffer | None:
        """Once done: the result that the library allocated; None where the caller gave `out`."""
    @property
    def shape(self) -> list[int]:
        """Once done: the shape of the result."""
    @property
    def rows(self) -> list[int]:
        """Once done: of allgather and alltoall, the rows that came from each rank."""
    @property
    def last_joined(self) -> int:
        """Once done, of a join: the rank that joined last."""

class Coordinator:
    """Has every rank run the same operations in the same order (coordinator.hpp)."""

    @staticmethod
    def create(
        context: Context,
        communicator: Communicator,
        cycle_time: float | None = None,
        fusion_threshold: int | None = None,
        cache_capacity: int | None = None,
        stall_warning: float | None = None,
        stall_shutdown: float | None = None,
    ) -> Coordinator:
        """Collective. Times in seconds, sizes in bytes; None: as the environment says."""
    def submit(
        self,
        calls: list[tuple[str, int, int, bool, int, list[int], int, float, list[int], int, int]],
        group: str = "",
    ) -> list[Submission]:
        """Name, collective, reduction, adasum, dtype, shape, root, factor, splits, address of the
        input, address of the output or 0 of each tensor. Does not block."""
    def join(self) -> Submission: ...
    def configure(self, cycle_time: float, fusion_threshold: int) -> None: ...
    def close(self) -> None: ...
    def options(self) -> dict[str, Any]: ...
    def statistics(self) -> dict[str, Any]:
        """cycles, talks (cycles that the cache did not decide alone), hits, misses, evictions,
        invalidations, batches, tensors, fused_bytes, batches_without_copy, control_seconds."""

def inproc(rank_count: int, peer_memory: bool = True, transport: str = "inproc") -> list[Context]:
    """Contexts whose ranks are threads of this process, for tests; drive each from its own
    thread. `peer_memory=False` forces staging. `transport`: inproc, fault (inproc with random
    delays), or shm and tcp with a real rendezvous over loopback."""

def simulate_coordination(
    design: str,
    rank_count: int,
    tensor_count: int = 161,
    cache_capacity: int = 1024,
    step_count: int = 2,
    latency_us: float = 2.0,
    overhead_us: float = 1.0,
    bytes_per_us: float = 10_000.0,
) -> list[dict[str, Any]]:
    """messages, bytes, message_bytes_max, received_by_rank_0, rounds, seconds of each step's
    cycle, by the production controllers of all ranks (simulator/coordination.hpp)."""

class Simulator:
    """Times schedules on a machine with ranks on it (simulator/simulate.hpp). `placement`: (host,
    device) of each rank; without it, hosts are filled one after the other. `routing`: static_hash
    (with `seed`), destination or ideal."""

    def __init__(
        self,
        machine: Machine,
        rank_count: int,
        placement: Sequence[tuple[int, int]] = (),
        routing: str = "static_hash",
        seed: int = 0,
    ) -> None: ...
    def run(
        self,
        calls: Sequence[tuple[Schedule, float, Sequence[int], Sequence[float]]],
        *,
        path: str = "auto",
        slow_down: Sequence[float] = (),
        busiest_links: int = 8,
        skip_repeats: bool = True,
        finish: bool = False,
    ) -> dict[str, Any]:
        """Calls at once, each (schedule, bytes of the larger side per rank, its ranks or [] for 0,
        1, ..., start times or []). `path`: auto, events or rounds. Returns seconds, exact, path,
        messages, bytes, stages (call, name, seconds), busiest (name, bytes, utilization), and with
        `finish` finish_seconds by call and rank. Releases the GIL."""

def simulate_schedule(
    machine: Machine,
    schedule: Schedule,
    bytes: float,
    *,
    path: str = "auto",
    routing: str = "static_hash",
    seed: int = 0,
) -> dict[str, Any]:
    """One call of all ranks of the schedule; Simulator.run() says what comes back."""

class Schedule:
    @staticmethod
    def build(
        collective: str,
        algorithm: str,
        rank_count: int,
        root: int = 0,
        deterministic: bool = False,
    ) -> Schedule:
        """`algorithm` may have options: "hierarchical:layers=4ring/8direct"."""
    @staticmethod
    def parse(text: str) -> Schedule: ...
    @property
    def collective(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def rank_count(self) -> int: ...
    @property
    def chunk_count(self) -> int: ...
    def text(self) -> str: ...
    def verify(self) -> dict[str, int]:
        """rounds, transfers, reductions; raises InternalError with the reason if it is wrong."""
    def expand(self) -> list[list[list[dict[str, Any]]]]:
        """[rank][round][action]; an action has kind ("send", "receive", "local"), lane, peer,
        source, target, operand (each None or (buffer, first, count, shape) with buffer "in",
        "out" or "scratch"), incoming_first, after_previous."""

def chain_order(links: list[list[list[int]]], root: int) -> tuple[list[int], int]:
    """Order and contention. links[a][b]: numbers of the links from rank a to rank b. Unchecked."""

def chain_order_of_tree(parent: list[int], node_of: list[int], root: int) -> tuple[list[int], int]:
    """The same for a tree, with -1 above its top. Unchecked."""

def algorithms() -> list[dict[str, str]]:
    """collective, name, summary, cost, needs, options, ranks_max, source."""

def settings() -> list[dict[str, str]]:
    """name, type, default, value, help of every environment variable."""
