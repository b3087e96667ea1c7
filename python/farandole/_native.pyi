# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The native module. Front ends pass pointers, counts and enums; no array types here.

Classes that describe a call are made with keywords only and do not change. Every call that may wait
releases the GIL. Errors are the classes of farandole.errors, raised with their attributes.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farandole.errors import FarandoleError

# The names of the members of DType, Reduction and Collective.
DTYPES: list[str]
REDUCTIONS: list[str]
COLLECTIVES: list[str]
VERSION: str
NODE_KINDS: list[str]
HOPS: list[str]

class Collective(enum.Enum):
    allreduce = 0
    reduce = 1
    broadcast = 2
    reducescatter = 3
    allgather = 4
    gather = 5
    scatter = 6
    alltoall = 7
    barrier = 8

class DType(enum.Enum):
    bool = 0
    int8 = 1
    int16 = 2
    int32 = 3
    int64 = 4
    uint8 = 5
    uint16 = 6
    uint32 = 7
    uint64 = 8
    float16 = 9
    bfloat16 = 10
    float32 = 11
    float64 = 12
    complex64 = 13
    complex128 = 14
    float8_e4m3 = 15
    float8_e5m2 = 16

class Reduction(enum.Enum):
    sum = 0
    product = 1
    min = 2
    max = 3
    average = 4
    logical_and = 5
    logical_or = 6
    logical_xor = 7
    bitwise_and = 8
    bitwise_or = 9
    bitwise_xor = 10
    premultiplied_sum = 11

class MessageKind(enum.Enum):
    send = 0
    receive = 1

class DLPackArray:
    @property
    def pointer(self) -> int: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> str:
        """By name."""
    @property
    def is_contiguous(self) -> bool: ...
    @property
    def is_on_cpu(self) -> bool: ...
    @property
    def read_only(self) -> bool:
        """Known only if dlpack() was asked by `writable`."""

def buffer(object: Any) -> tuple[int, bool]:
    """Address and read-only flag of a C-contiguous buffer. The caller keeps it alive."""

def dlpack(array: Any, writable: bool = False) -> DLPackArray | None:
    """None if the object gives no array."""

def use_devices(kind: str) -> None:
    """Has the library know memory of devices of this kind, "cuda". Idempotent."""

def order_streams(pointer: int, before: int, after: int) -> None:
    """What stream `after` of the device whose memory `pointer` lies in is given later comes after
    what stream `before` holds now."""

class Request:
    """An operation in flight. Dropping it does not cancel it."""

    def wait(self) -> None: ...
    def order(self, stream: int) -> None:
        """What the stream is given later comes after the operation. Memory of the host: wait()."""
    def test(self) -> bool:
        """True when finished; raises the error if it failed. Does not block."""
    def on_complete(self, number: int) -> None:
        """Has next_completion() give this number, not 0, once it ended."""

def next_completion() -> tuple[int, FarandoleError | None]:
    """Waits, without the GIL, for the next end of an operation that was asked for."""

def end_completions() -> None:
    """Has one next_completion() give 0."""

class OwnedBuffer:
    """Library-owned memory; buffer protocol (unsigned bytes, writable). Freed with the object."""

    @property
    def pointer(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class CallOptions:
    """What a call may say beyond its data (CallOptions in farandole.hpp)."""

    def __init__(
        self,
        *,
        algorithm: str = "",
        name: str = "",
        factor: float = 1.0,
        deterministic: bool = False,
    ) -> None: ...
    def on(self, stream: int) -> CallOptions:
        """The same options for a call on memory of a device, ordered on this stream."""

class Arguments:
    """What a collective moves. `input` and `output` are addresses. `count` is elements per rank in
    the caller's terms: the tensor for allreduce, reduce and broadcast; the shorter side for
    reducescatter, allgather, gather and scatter; one block for alltoall. `by_rank`: blocks of
    different lengths, as in_counts and out_counts say where they are known (Arguments in
    farandole.hpp)."""

    def __init__(
        self,
        *,
        collective: Collective,
        input: int = 0,
        output: int = 0,
        count: int = 0,
        dtype: DType = DType.uint8,
        reduction: Reduction = Reduction.sum,
        root: int = 0,
        by_rank: bool = False,
        in_counts: Sequence[int] = (),
        out_counts: Sequence[int] = (),
    ) -> None: ...

class Message:
    """One message to or from another rank. `data` is an address, `count` elements."""

    def __init__(
        self, *, kind: MessageKind, data: int, count: int, dtype: DType, peer: int
    ) -> None: ...

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def world_ranks(self) -> list[int]: ...
    def algorithm(self, collective: Collective, bytes: int) -> str:
        """What calls take that name no algorithm, by bytes of the larger side of a rank."""
    def set_algorithm(self, collective: Collective, bytes: int, algorithm: str) -> None:
        """Has calls of that size class take it; empty: as before. The same on all ranks."""
    def run(self, arguments: Arguments, options: CallOptions) -> None:
        """Runs to the end."""
    def start(self, arguments: Arguments, options: CallOptions) -> Request:
        """The same without waiting. Buffers stay valid and untouched until wait() returned."""
    def run_on_stream(self, arguments: Arguments, options: CallOptions) -> None:
        """For memory of a device: returns once all is enqueued; the stream waits for the end."""
    def run_messages_on_stream(self, messages: Sequence[Message], options: CallOptions) -> None: ...
    def allreduce_plain(
        self, array: Any, out: Any, reduction: Reduction, options: CallOptions
    ) -> bool:
        """run() of an allreduce, without the way through pointers, of two NumPy arrays. False, with
        nothing done, if they are not contiguous, differ in dtype or shape, `out` is read-only, or
        the buffer protocol cannot name the dtype."""
    def run_messages(self, messages: Sequence[Message], options: CallOptions) -> None:
        """Messages that run at once and end together, to their end. Of `options` only the name
        counts."""
    def start_messages(self, messages: Sequence[Message], options: CallOptions) -> Request:
        """The same without waiting."""
    def split(self, color: int | None, key: int = 0) -> Communicator | None: ...
    def group(self, ranks: list[int]) -> Communicator | None: ...
    def create_group(
        self, ranks: list[int], tag: int = 0, timeout: float | None = None
    ) -> Communicator: ...
    def node(self) -> Communicator: ...
    def across(self) -> Communicator: ...
    def abort(self, reason: str) -> None: ...
    def free(self) -> None: ...

class Store:
    """Where ranks leave each other values before they are connected."""

    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout: float) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...
    @property
    def reach(self) -> int:
        """Who can read it: 0 this process, 1 this user, 2 others too."""
    @property
    def name(self) -> str: ...

class MemoryStore(Store):
    def __init__(self) -> None: ...

class FileStore(Store):
    @staticmethod
    def open(folder: str) -> FileStore: ...

def python_store(store: Any, name: str) -> Store:
    """A store that Python code keeps: set(key, bytes), get(key, seconds), which gives None when the
    time is up, and add(key, amount)."""

class Job:
    """Who this process is and how it finds the others; times in seconds, 0: by the settings."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    store: Store | None
    prefix: str
    trust_store: bool
    id: str
    address: str
    port: int
    interface: str
    host: str
    host_id: str
    timeout: float
    start_timeout: float
    def __init__(self) -> None: ...
    def set_secret(self, secret: bytes) -> None: ...

class Context:
    """One process's membership in a job."""

    @staticmethod
    def from_environment() -> Context: ...
    @staticmethod
    def from_job(job: Job) -> Context: ...
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
    @property
    def reaches_all_memory(self) -> bool:
        """Whether ranks copy from and to each other's ordinary memory without staging."""
    @property
    def occupies_host(self) -> bool:
        """Whether the job's ranks, all on this host, leave no core to other threads of theirs."""
    @property
    def shares_cores(self) -> bool:
        """Whether there is not a core for each of this host's ranks that it may run on."""
    def set_machine(self, machine: Machine) -> None:
        """Collective: plan by this machine from now on, on every communicator."""

    def allocate(self, nbytes: int) -> OwnedBuffer: ...
    def statistics(self) -> dict[str, Any]:
        """operations: int; active_seconds: time with at least one operation in flight;
        wait_seconds: time callers spent blocked, neither with calls of up to 4 KiB that end within
        about a microsecond; transports: {name: {sent_bytes, sent_messages,
        received_bytes, received_messages}}; plans: {"allreduce ring TRANSPORT": {calls, bytes}};
        rejected_connections: of other programs, or without the job's secret."""
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

class TensorCall:
    """A named tensor and what is to be done with it (TensorCall in coordinator.hpp). `input` and
    `output` are addresses; `output` is 0 where the library allocates the result."""

    def __init__(
        self,
        *,
        name: str,
        collective: Collective,
        reduction: Reduction = Reduction.sum,
        adasum: bool = False,
        dtype: DType = DType.uint8,
        shape: Sequence[int] = (),
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        leaves_out_joined: bool = False,
        splits: Sequence[int] = (),
        input: int = 0,
        output: int = 0,
    ) -> None: ...
    @property
    def input(self) -> int: ...
    @property
    def output(self) -> int: ...

class Coordinator:
    """Has every rank run the same operations in the same order (coordinator.hpp)."""

    @staticmethod
    def create(
        context: Context,
        communicator: Communicator,
        *,
        cycle_time: float | None = None,
        fusion_threshold: int | None = None,
        cache_capacity: int | None = None,
        stall_warning: float | None = None,
        stall_shutdown: float | None = None,
    ) -> Coordinator:
        """Collective. Times in seconds, sizes in bytes; None: as the environment says."""
    def submit(self, calls: Sequence[TensorCall], group: str = "") -> list[Submission]:
        """Does not block."""
    def join(self) -> Submission: ...
    def configure(self, *, cycle_time: float, fusion_threshold: int, size_shift: int) -> None: ...
    def close(self) -> None: ...
    def options(self) -> dict[str, Any]: ...
    def statistics(self) -> dict[str, Any]:
        """cycles, talks (cycles that the cache did not decide alone), hits, misses, evictions,
        invalidations, batches, tensors, fused_bytes, batches_without_copy, control_seconds."""

def inproc(rank_count: int, peer_memory: bool = True, transport: str = "") -> list[Context]:
    """Contexts whose ranks are threads of this process, for tests; drive each from its own
    thread. `peer_memory=False`: peers reach none of a rank's memory. `transport`: a row of
    src/transport/registry.cpp for threads, empty for the first of them, or, with a real rendezvous
    over loopback, one that FARANDOLE_TRANSPORT may name."""

def simulate_coordination(
    design: str,
    *,
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

class Gradient:
    """Of a training step: float32 elements, seconds until it is ready, and its group, -1: none."""

    def __init__(self, *, elements: int, ready: float, group: int = -1) -> None: ...

def simulate_training(
    *,
    gradients: Sequence[Gradient],
    compute_seconds: float,
    cycle_seconds: float,
    control_seconds: float,
    fusion_threshold: int,
    allreduce_seconds: Callable[[int], float],
) -> dict[str, Any]:
    """One training step. `allreduce_seconds` tells what a batch of so many bytes takes. Returns
    seconds, exposed_seconds, communication_seconds, control_seconds, cycles and batches
    (simulator/training.hpp)."""

class SimulatedCall:
    """One call of a schedule. `bytes` is of the larger side per rank; `ranks` of the network, none:
    0, 1, ...; `start_seconds` by rank, none: 0."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        bytes: float,
        ranks: Sequence[int] = (),
        start_seconds: Sequence[float] = (),
    ) -> None: ...

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
        calls: Sequence[SimulatedCall],
        *,
        path: str = "auto",
        slow_down: Sequence[float] = (),
        busiest_links: int = 8,
        skip_repeats: bool = True,
        finish: bool = False,
    ) -> dict[str, Any]:
        """Calls at once. `path`: auto, events or rounds. Returns seconds, exact, path, messages,
        bytes, stages (call, name, seconds), busiest (name, bytes, utilization), and with `finish`
        finish_seconds by call and rank. Releases the GIL."""

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

def delegates(rank_count: int) -> list[dict[str, Any]]:
    """Those of this process: collective, name, summary, and the price of a call of so many ranks
    on one host: seconds, seconds_per_byte."""

class VerifiedSchedule:
    @staticmethod
    def load(path: str) -> VerifiedSchedule:
        """Raises InvalidArgumentError naming the file and what is wrong with it."""
    @property
    def schedule(self) -> Schedule: ...
    @property
    def root(self) -> int: ...
    @property
    def proof(self) -> dict[str, int]:
        """As Schedule.verify()."""
    def register(self) -> None: ...

class Link:
    """Between two nodes of a machine, by their numbers."""

    def __init__(
        self,
        *,
        ends: tuple[int, int],
        bytes_per_second: float,
        half_duplex: bool = False,
        latency: float = 0.0,
    ) -> None: ...
    @property
    def ends(self) -> tuple[int, int]: ...
    @property
    def bytes_per_second(self) -> float:
        """Of each direction, or, if half_duplex, of both together."""
    @property
    def half_duplex(self) -> bool: ...
    @property
    def latency(self) -> float: ...
    def __eq__(self, other: object) -> bool: ...

class Machine:
    """A description of a machine (model/machine.hpp). A node is (name, kind), a hop's cost the
    fields of HopCost, with ring_rates as {(ring_size, stride): bytes_per_second}. Seconds and bytes
    per second. Raises InvalidArgumentError, whose text begins with the field that is wrong."""

    def __init__(
        self,
        *,
        name: str,
        nodes: list[tuple[str, str]],
        links: Sequence[Link],
        devices: list[int],
        nic_of: list[int] = ...,
        hosts: int = 1,
        nic_bytes_per_second: float = 0,
        nic_latency: float = 0,
        hosts_per_rack: int = 0,
        uplinks: int = 0,
        uplink_bytes_per_second: float = 0,
        uplink_latency: float = 0,
        hops: dict[str, dict[str, Any]] = ...,
        reduce_seconds_per_byte: float = 0,
        copy_seconds_per_byte: float = 0,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> list[tuple[str, str]]: ...
    @property
    def links(self) -> list[Link]: ...
    @property
    def devices(self) -> list[int]: ...
    @property
    def nic_of(self) -> list[int]: ...
    @property
    def hosts(self) -> int: ...
    @property
    def nic_bytes_per_second(self) -> float: ...
    @property
    def nic_latency(self) -> float: ...
    @property
    def hosts_per_rack(self) -> int: ...
    @property
    def uplinks(self) -> int: ...
    @property
    def uplink_bytes_per_second(self) -> float: ...
    @property
    def uplink_latency(self) -> float: ...
    @property
    def hops(self) -> dict[str, dict[str, Any]]: ...
    @property
    def reduce_seconds_per_byte(self) -> float: ...
    @property
    def copy_seconds_per_byte(self) -> float: ...
    @property
    def devices_per_host(self) -> int: ...

def plan(
    machine: Machine,
    collective: str,
    bytes: float,
    rank_count: int,
    *,
    ranks_per_host: int = 0,
    factor_max: int = 0,
    hierarchies: int = 4,
    exhaustive: bool = False,
    rings_only: bool = False,
) -> list[dict[str, Any]]:
    """Candidates, fastest first: `algorithm`, predicted `seconds`, `stages`, and whether it is
    `chosen`, as exactly one is.

    Each stage has its `name`, `hop`, and seconds of `alpha`, `bytes`, `call`, `fill` and `local`.
    """

def choose(
    machine: Machine, collective: str, bytes: float, rank_count: int, *, ranks_per_host: int = 0
) -> str:
    """The algorithm that a call would take."""

def predict(
    machine: Machine,
    collective: str,
    algorithm: str,
    bytes: float,
    rank_count: int,
    *,
    ranks_per_host: int = 0,
) -> dict[str, Any]:
    """One algorithm, as in `plan`."""

def factorizations(number: int, factor_max: int = 0) -> list[list[int]]: ...
def default_machine(
    ranks_per_host: int, hosts: int, transport: str = "auto", cores: int = 0
) -> Machine:
    """What is assumed of hosts that nobody has described, where messages go as FARANDOLE_TRANSPORT
    says. `cores`: of each host; 0: one per rank."""

def transports() -> list[tuple[str, str, bool]]:
    """What FARANDOLE_TRANSPORT chooses from, the faster first: name, summary, and whether ranks
    meet in memory."""

def transport_for(transport: str, same_host: bool) -> str:
    """The name in tuning files of what carries messages where FARANDOLE_TRANSPORT has this
    value."""

def check_tuning(text: str, file: str) -> str:
    """The text of a tuning file, rewritten one line per entry."""

def chain_order(links: list[list[list[int]]], root: int) -> tuple[list[int], int]:
    """Order and contention. links[a][b]: numbers of the links from rank a to rank b. Unchecked."""

def chain_order_of_tree(parent: list[int], node_of: list[int], root: int) -> tuple[list[int], int]:
    """The same for a tree, with -1 above its top. Unchecked."""

def copy_to_memory(copies: Sequence[tuple[int, int, int]]) -> None:
    """Copies without the GIL to targets that lie in no cache; each is address of the target, of
    the source, bytes. They do not overlap."""

def reduce_into(
    *, target: int, source: int, count: int, dtype: DType, reduction: Reduction
) -> None:
    """target (+)= source with the library's kernel; both are addresses of `count` elements."""

def line_seconds(core: int, other: int) -> float | None:
    """How long a cache line takes from one core to the other; none if it cannot be measured."""

def algorithms() -> list[dict[str, str]]:
    """collective, name, summary, cost, needs, options, ranks_max, source."""

def setting(name: str) -> Any:
    """The value in force, of the type that its row of the table asks for."""

def starters() -> list[dict[str, Any]]:
    """name; meeting: own, master, host or none; lists of variables: rank, size, local_rank,
    local_size, job, step. In the order in which they are looked for."""

def started_by(environment: Mapping[str, str]) -> str:
    """A name of starters(), or "alone"."""

def unknown_settings() -> list[str]: ...
def settings() -> list[dict[str, str]]:
    """name, type, default, value, help of every environment variable."""
