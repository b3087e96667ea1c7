# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The identity of a job on this machine, and how its ranks learn of it: their environment."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping

_ADDRESS = "127.0.0.1"


class LocalJob:
    """A job of `rank_count` ranks on this machine, with the descriptors that hold it together.

    listener       Bound and listening before any rank starts, so no port can be lost to a race;
                   rank 0 inherits it.
    launcher_read  Read end of a pipe of which only this process holds the write end: every rank
                   inherits it and sees it close when this process is gone.
    """

    def __init__(self, rank_count: int) -> None:
        self.id = secrets.token_hex(8)
        self.rank_count = rank_count
        self._secret = secrets.token_hex(32)
        self.listener = socket.create_server((_ADDRESS, 0), backlog=max(128, rank_count))
        self.launcher_read, self._launcher_write = os.pipe()
        self._torch_port = _free_port()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def inherited_fds(self, rank: int) -> tuple[int, ...]:
        """Descriptors that the rank keeps, under the same numbers."""
        return (self.launcher_read, self.listener.fileno()) if rank == 0 else (self.launcher_read,)

    def environment(self, rank: int, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with this rank's place in the job, in our variables and in torch's."""
        values = dict(base)
        values.pop("FARANDOLE_LISTEN_FD", None)
        values.setdefault("OMP_NUM_THREADS", str(omp_threads(self.rank_count)))
        values |= {
            "FARANDOLE_JOB": self.id,
            "FARANDOLE_SECRET": self._secret,
            "FARANDOLE_RENDEZVOUS": f"{_ADDRESS}:{self.port}",
            "FARANDOLE_LAUNCHER_FD": str(self.launcher_read),
            "MASTER_ADDR": _ADDRESS,
            "MASTER_PORT": str(self._torch_port),
        }
        if rank == 0:
            values["FARANDOLE_LISTEN_FD"] = str(self.listener.fileno())
        for name, value in {
            "RANK": rank,
            "SIZE": self.rank_count,
            "LOCAL_RANK": rank,
            "LOCAL_SIZE": self.rank_count,
        }.items():
            values[f"FARANDOLE_{name}"] = str(value)
        values |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.rank_count),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self.rank_count),
        }
        return values

    def started(self) -> None:
        """All ranks have inherited what they need: drops this process's copies of it."""
        self.listener.close()
        os.close(self.launcher_read)
        self.launcher_read = -1

    def close(self) -> None:
        """Closes everything; ranks that still run see the launcher as gone. Idempotent."""
        self.listener.close()
        for fd in (self.launcher_read, self._launcher_write):
            if fd >= 0:
                os.close(fd)
        self.launcher_read = self._launcher_write = -1


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


def _free_port() -> int:
    """A port free now; torch binds it itself, so another program could be faster."""
    with socket.create_server((_ADDRESS, 0)) as server:
        return int(server.getsockname()[1])
