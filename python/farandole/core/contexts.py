# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs as values: who a process is and how it finds the others, without environment variables.

store = torch.distributed.TCPStore(...)      # or farandole.FileStore("/scratch/job")
with farandole.Context(farandole.Job(rank=r, size=n, store=store)) as context:
    context.world.allreduce(array)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import weakref
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any

from farandole import _native
from farandole.core.arrays import integer, positive_seconds
from farandole.core.communicator import Communicator
from farandole.errors import InvalidArgumentError

_SIZE_MAX = 10**9
_PORT_MAX = 65535
_WAIT_SECONDS = 0.5  # of one wait in another library's store, which may hold a lock meanwhile


class Store:
    """Where the ranks of a job leave each other short values before they are connected."""

    __slots__ = ("native",)

    def __init__(self, native: _native.Store) -> None:
        self.native = native

    def set(self, key: str, value: bytes | str) -> None:
        """Leaves `value` under `key`, in place of what was there."""
        self.native.set(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str, timeout: float) -> bytes:
        """What is under `key`; waits for it, without the GIL. Raises TimedOutError after `timeout`
        seconds."""
        return self.native.get(key, timeout)

    def add(self, key: str, amount: int) -> int:
        """Adds to the number under `key`, 0 at first, and returns the sum."""
        return self.native.add(key, amount)


class MemoryStore(Store):
    """In the memory of this process, for ranks that are threads."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_native.MemoryStore())


class FileStore(Store):
    """One file per key in a folder that all ranks see. The folder is made, with mode 0700, if there
    is none; it is the caller's to remove. Where nobody but this user may enter it, the job's secret
    may be in it."""

    __slots__ = ()

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(_native.FileStore.open(os.fspath(folder)))


class _Borrowed:
    """Another library's store, with set, get, add and wait as in torch.distributed."""

    def __init__(self, store: Any) -> None:
        missing = [
            n for n in ("set", "get", "add", "wait") if not callable(getattr(store, n, None))
        ]
        if missing:
            raise InvalidArgumentError(
                f"argument 'store' is a {type(store).__name__} without {', '.join(missing)}; "
                "allowed is a MemoryStore, a FileStore, or an object with set, get, add and wait "
                "as those of torch.distributed have them."
            )
        self.store = store

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        return int(self.store.add(key, amount))

    def get(self, key: str, timeout: float) -> bytes | None:
        end = time.monotonic() + timeout
        while True:
            began = time.monotonic()
            wait = max(min(end - began, _WAIT_SECONDS), 0.001)
            try:
                self.store.wait([key], timedelta(seconds=wait))
            except Exception:
                # Libraries have no class of their own for a time that is up.
                if time.monotonic() - began < 0.9 * wait:
                    raise
                if time.monotonic() >= end:
                    return None
                continue
            value = self.store.get(key)
            return value.encode() if isinstance(value, str) else bytes(value)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Who this process is and how it finds the other ranks; farandole.Context(job) and
    farandole.init(job) join it.

    Rank 0 is found through `store`, or else at `address` and `port`. A store is a FileStore, a
    MemoryStore, or any object with set, get, add and wait as torch.distributed's stores have them.
    Its keys begin with `prefix`; each start of a job over one store, as in elastic training, takes
    a prefix of its own.

    Every rank proves that it knows `secret`. Without one, rank 0 makes it and leaves it in the
    store, if that is a MemoryStore, a FileStore whose folder nobody else may enter, or
    `trust_store` says that nobody but the ranks of this job reads the store; else it is
    FARANDOLE_SECRET's, FARANDOLE_SECRET_FILE's, or that of the user's own file. It is never put
    into another store, since whoever reads it there can join.

    Attributes:
        rank, size: this process's rank, 0 to size - 1, and the number of ranks.
        local_rank, local_size: the same on this host, if they are known. With local_size = size
            the job is on this host and listens to it only.
        address, port: of rank 0. With a store they need not be set: address then is what others
            reach rank 0 by, port where it listens.
        id: the job's name; of two jobs on one host never the same.
        host, host_id: this host's name for messages, and what is equal exactly where two ranks can
            share memory.
        interface: network interface or address for the job's sockets.
        timeout, start_timeout: seconds, in place of FARANDOLE_TIMEOUT and FARANDOLE_START_TIMEOUT.
    """

    rank: int
    size: int
    store: Any = None
    prefix: str = "farandole"
    trust_store: bool = False
    address: str = ""
    port: int = 0
    secret: bytes | str | None = field(default=None, repr=False)
    local_rank: int | None = None
    local_size: int | None = None
    id: str = ""
    host: str = ""
    host_id: str = ""
    interface: str = ""
    timeout: float | None = None
    start_timeout: float | None = None

    def native(self) -> _native.Job:
        """For the native module. Raises InvalidArgumentError naming the argument."""
        job = _native.Job()
        job.size = integer("size", self.size, "1 or more", 1, _SIZE_MAX)
        last = job.size - 1
        job.rank = integer("rank", self.rank, f"a rank from 0 to {last}", 0, last)
        job.port = integer("port", self.port, f"0 to {_PORT_MAX}", 0, _PORT_MAX)
        if self.local_rank is not None:
            job.local_rank = integer("local_rank", self.local_rank, f"0 to {last}", 0, last)
        if self.local_size is not None:
            allowed = f"1 to {job.size}"
            job.local_size = integer("local_size", self.local_size, allowed, 1, job.size)
        for name in ("prefix", "address", "id", "host", "host_id", "interface"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidArgumentError(f"argument '{name}' is {value!r}, allowed is text.")
            setattr(job, name, value)
        if self.timeout is not None:
            job.timeout = positive_seconds("timeout", self.timeout)
        if self.start_timeout is not None:
            job.start_timeout = positive_seconds("start_timeout", self.start_timeout)
        job.trust_store = bool(self.trust_store)
        if self.secret is not None:
            secret = self.secret.encode() if isinstance(self.secret, str) else bytes(self.secret)
            if not secret:
                raise InvalidArgumentError(
                    "argument 'secret' is empty, allowed is a secret or None."
                )
            job.set_secret(secret)
        if isinstance(self.store, Store):
            job.store = self.store.native
        elif self.store is not None:
            name = f"the {type(self.store).__name__}"
            job.store = _native.python_store(_Borrowed(self.store), name)
        return job


# Those that nobody has shut down; their ranks leave in order when Python exits.
_living: weakref.WeakSet[Context] = weakref.WeakSet()


class Context:
    """One process's membership in a job, beside that of farandole.init(), to which the functions
    of this package belong. A process may have several, each of a job of its own.

    Without a job it joins the one that the environment describes. Blocks, without the GIL, until
    every rank has come. Leaving a `with` block, or dropping it, leaves the job. Raises what
    farandole.init() raises.
    """

    def __init__(self, job: Job | None = None) -> None:
        self.native = (
            _native.Context.from_environment()
            if job is None
            else _native.Context.from_job(job.native())
        )
        self.world = Communicator(self.native.world)
        _living.add(self)

    @property
    def rank(self) -> int:
        """This process's rank, 0 to size - 1."""
        return self.native.rank

    @property
    def size(self) -> int:
        """Number of ranks in the job."""
        return self.native.size

    @property
    def local_rank(self) -> int:
        """Rank among those of this host."""
        return self.native.local_rank

    @property
    def local_size(self) -> int:
        """Number of ranks on this host."""
        return self.native.local_size

    @property
    def cross_rank(self) -> int:
        """Position of this host among the hosts."""
        return self.native.cross_rank

    @property
    def cross_size(self) -> int:
        """Number of hosts."""
        return self.native.cross_size

    @property
    def members(self) -> list[dict[str, Any]]:
        """Rank, local rank, host and process id of every rank."""
        return self.native.members

    def statistics(self) -> dict[str, Any]:
        """What the library did so far in this job; see Context.statistics in the stub."""
        return self.native.statistics()

    def shutdown(self) -> None:
        """Leaves the job. Others that still need this rank get RankFailed. Idempotent."""
        self.native.shutdown()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # __init__ raised
            self.native.shutdown()


def _shutdown_all() -> None:
    for context in list(_living):
        context.shutdown()


atexit.register(_shutdown_all)
