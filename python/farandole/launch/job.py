# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The identity of a job, and how its ranks on this machine learn of it: their environment."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from farandole.launch.processes import MARK_NAME

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Meeting:
    """What all ranks of a job share, on whatever host they run."""

    job_id: str
    secret: str
    local_sizes: tuple[int, ...]  # ranks of each host, which are numbered host by host
    address: str  # where rank 0 listens, as the others see it
    port: int
    torch_port: int  # for torch's own store, at the same address

    @property
    def rank_count(self) -> int:
        return sum(self.local_sizes)

    def cross_place(self, first_rank: int, local_rank: int) -> tuple[int, int]:
        """Of a rank of the host whose ranks begin at `first_rank`: its number among those of all
        hosts that have its local rank, and how many there are."""
        firsts = accumulate(self.local_sizes[:-1], initial=0)
        peers = [f for f, size in zip(firsts, self.local_sizes, strict=True) if size > local_rank]
        return peers.index(first_rank), len(peers)


class LocalJob:
    """This machine's `ranks` of a job, with the descriptors that hold them together.

    listener       Bound and listening before any rank starts, so no port can be lost to a race;
                   rank 0 inherits it. None where rank 0 runs elsewhere.
    mark           In the environment of these ranks, and of no others.
    launcher_read  Read end of a pipe of which only this process holds the write end: every rank
                   inherits it and sees it close when this process is gone.
    """

    def __init__(self, meeting: Meeting, ranks: range, listener: socket.socket | None) -> None:
        self.ranks = ranks
        self._meeting = meeting
        self._listener = listener
        self.mark = secrets.token_hex(8)
        self.launcher_read, self._launcher_write = os.pipe()

    @classmethod
    def alone(cls, rank_count: int) -> LocalJob:
        """A new job with all its ranks on this machine, out of reach of others."""
        listener = listen_for_ranks(rank_count, _LOOPBACK)
        port, torch_port = listener.getsockname()[1], free_port()
        return cls(
            Meeting(new_job_id(), new_secret(), (rank_count,), _LOOPBACK, port, torch_port),
            range(rank_count),
            listener,
        )

    def inherited_fds(self, rank: int) -> tuple[int, ...]:
        """Descriptors that the rank keeps, under the same numbers."""
        if rank == 0 and self._listener is not None:
            return (self.launcher_read, self._listener.fileno())
        return (self.launcher_read,)

    def environment(self, rank: int, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with this rank's place in the job, in our variables, torch's and Horovod's."""
        meeting, local_size = self._meeting, len(self.ranks)
        address = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
        values = dict(base)
        values.pop("FARANDOLE_LISTEN_FD", None)
        values.setdefault("OMP_NUM_THREADS", str(omp_threads(local_size)))
        values |= {
            "FARANDOLE_JOB": meeting.job_id,
            "FARANDOLE_SECRET": meeting.secret,
            "FARANDOLE_RENDEZVOUS": f"{address}:{meeting.port}",
            "FARANDOLE_LAUNCHER_FD": str(self.launcher_read),
            MARK_NAME: self.mark,
            "MASTER_ADDR": meeting.address,
            "MASTER_PORT": str(meeting.torch_port),
        }
        if rank == 0 and self._listener is not None:
            values["FARANDOLE_LISTEN_FD"] = str(self._listener.fileno())
        local_rank = self.ranks.index(rank)
        cross_rank, cross_size = meeting.cross_place(self.ranks.start, local_rank)
        size = meeting.rank_count
        for names, value in (
            ("FARANDOLE_RANK HOROVOD_RANK RANK", rank),
            ("FARANDOLE_SIZE HOROVOD_SIZE WORLD_SIZE", size),
            ("FARANDOLE_LOCAL_RANK HOROVOD_LOCAL_RANK LOCAL_RANK", local_rank),
            ("FARANDOLE_LOCAL_SIZE HOROVOD_LOCAL_SIZE LOCAL_WORLD_SIZE", local_size),
            ("HOROVOD_CROSS_RANK", cross_rank),
            ("HOROVOD_CROSS_SIZE", cross_size),
        ):
            values |= dict.fromkeys(names.split(), str(value))
        return values

    def started(self) -> None:
        """All ranks have inherited what they need: drops this process's copies of it."""
        self._close_listener()
        os.close(self.launcher_read)
        self.launcher_read = -1

    def close(self) -> None:
        """Closes everything; ranks that still run see the launcher as gone. Idempotent."""
        self._close_listener()
        for fd in (self.launcher_read, self._launcher_write):
            if fd >= 0:
                os.close(fd)
        self.launcher_read = self._launcher_write = -1

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()


def new_job_id() -> str:
    return secrets.token_hex(8)


def new_secret() -> str:
    return secrets.token_hex(32)


def listen_for_ranks(
    rank_count: int, address: str, family: socket.AddressFamily = socket.AF_INET
) -> socket.socket:
    """Rank 0's listener, at a free port of `address`, "" for all of this machine's."""
    return socket.create_server((address, 0), family=family, backlog=max(128, rank_count))


def usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def omp_threads(rank_count: int) -> int:
    """Threads per rank so that all ranks together do not ask for more cores than there are."""
    return max(1, len(usable_cores()) // rank_count)


def cores_of_rank(rank: int, rank_count: int, cores: list[int]) -> list[int]:
    """This rank's equal share of the cores; with more ranks than cores, one core in turn."""
    if rank_count >= len(cores):
        return [cores[rank % len(cores)]]
    return cores[rank * len(cores) // rank_count : (rank + 1) * len(cores) // rank_count]


def free_port() -> int:
    """A port free now; torch binds it itself, so another program could be faster."""
    with socket.create_server((_LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])
