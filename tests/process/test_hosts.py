# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: ranks on several hosts find each other, use the interface that they are told to, and notice
when a cable is pulled.

Method: three network namespaces, each with an address on two bridges, stand for three hosts with
two networks. A cable is pulled by taking an interface down, which no process is told of.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

HOSTS = 3
DEADLINE_SECONDS = 60.0
# What a fast network would have delivered; the rest is start-up and the other network's.
PAYLOAD_BYTES = 4 << 20

COLLECTIVES = f"""
import numpy as np
import farandole

farandole.init()
rank, size = farandole.rank(), farandole.size()
array = np.full({PAYLOAD_BYTES // 8}, rank + 1.0)
for algorithm in ("ring", "rabenseifner", "hierarchical", "double_binary_tree"):
    sums = farandole.allreduce(array, algorithm=algorithm)
    assert (sums == sum(range(1, size + 1))).all()
theirs = np.empty(10)
farandole.sendrecv(np.full(10, float(rank)), (rank + 1) % size, theirs, (rank - 1) % size)
assert (theirs == (rank - 1) % size).all()
print(f"rank {{rank}} of {{size}}, {{farandole.local_size()}} here")
"""

UNTIL_FAILURE = """
import time
import numpy as np
import farandole

farandole.init()
print("started", flush=True)
try:
    while True:
        farandole.allreduce(np.ones(30_000), name="gradient")
except farandole.RankFailed as failure:
    print(failure)
"""


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done.stdout


class Hosts:
    """Namespaces named after `mark`; host i has 10.77.0.(i+1) on net0 and 10.78.0.(i+1) on net1."""

    def __init__(self) -> None:
        self.mark = "f" + uuid.uuid4().hex[:6]
        self.ranks: list[subprocess.Popen[str]] = []

    def build(self) -> None:
        for host in range(HOSTS):
            ip("netns", "add", f"{self.mark}{host}")
            self.inside(host, "link", "set", "lo", "up")
        for net in range(2):
            ip("link", "add", f"{self.mark}b{net}", "type", "bridge")
            ip("link", "set", f"{self.mark}b{net}", "up")
            for host in range(HOSTS):
                self.connect(host, net)

    def connect(self, host: int, net: int) -> None:
        cable, namespace = self.cable(host, net), f"{self.mark}{host}"
        ip("link", "add", cable, "type", "veth", "peer", "name", f"net{net}", "netns", namespace)
        ip("link", "set", cable, "master", f"{self.mark}b{net}", "up")
        self.inside(host, "addr", "add", f"10.{77 + net}.0.{host + 1}/24", "dev", f"net{net}")
        self.inside(host, "link", "set", f"net{net}", "up")

    def cable(self, host: int, net: int) -> str:
        return f"{self.mark}c{host}{net}"

    def inside(self, host: int, *arguments: str) -> str:
        return ip("-n", f"{self.mark}{host}", *arguments)

    def sent_bytes(self, host: int, net: int) -> int:
        found = re.search(r"TX:.*\n\s+(\d+)", self.inside(host, "-s", "link", "show", f"net{net}"))
        assert found is not None
        return int(found[1])

    def start(self, program: Path, **environment: str) -> None:
        """One rank per host, as a scheduler would start them."""
        secret = uuid.uuid4().hex
        for rank in range(HOSTS):
            job = {
                "RANK": str(rank),
                "WORLD_SIZE": str(HOSTS),
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "10.77.0.1",
                "MASTER_PORT": "29500",
                "FARANDOLE_SECRET": secret,
                "FARANDOLE_TRANSPORT": "tcp",  # their memory is this one machine's
            }
            self.ranks.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", f"{self.mark}{rank}", sys.executable, str(program)],
                    env=os.environ | job | environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def finish(self) -> list[str]:
        outputs = [rank.communicate(timeout=DEADLINE_SECONDS)[0] for rank in self.ranks]
        codes = [rank.returncode for rank in self.ranks]
        assert codes == [0] * HOSTS, outputs
        return outputs

    def remove(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        # Closing connections keep a namespace for a while; its cables need not wait for them.
        links = [self.cable(host, net) for host in range(HOSTS) for net in range(2)]
        for link in [*links, *(f"{self.mark}b{net}" for net in range(2))]:
            subprocess.run(["ip", "link", "del", link], check=False)
        for host in range(HOSTS):
            subprocess.run(["ip", "netns", "del", f"{self.mark}{host}"], check=False)


def why_not() -> str:
    """Why this process cannot make network namespaces; empty if it can."""
    if shutil.which("ip") is None:
        return "the command ip (Debian's iproute2) is missing"
    probe = "fprobe" + uuid.uuid4().hex[:6]
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    hosts = Hosts()
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()


def write(folder: Path, program: str) -> Path:
    path = folder / "program.py"
    path.write_text(program)
    return path


# Goal: a job over three hosts works on the network that leads to rank 0.
def test_collectives_between_hosts(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start(write(tmp_path, COLLECTIVES))
    assert hosts.finish() == [f"rank {rank} of 3, 1 here\n" for rank in range(HOSTS)]


# Goal: data takes the interface that FARANDOLE_INTERFACE names, although rank 0 is asked for on the
# other one. Method: count what each host sends on both.
def test_chosen_interface_carries_the_data(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start(write(tmp_path, COLLECTIVES), FARANDOLE_INTERFACE="net1")
    hosts.finish()
    for host in range(HOSTS):
        assert hosts.sent_bytes(host, 1) > PAYLOAD_BYTES
        assert hosts.sent_bytes(host, 0) < PAYLOAD_BYTES


# Goal: a host that is cut off makes the others raise RankFailed with its rank, and itself one with
# another's. Method: pull its cable while they reduce.
def test_a_pulled_cable_names_the_rank(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start(write(tmp_path, UNTIL_FAILURE), FARANDOLE_TIMEOUT="2")
    for rank in hosts.ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "started\n"
    ip("link", "set", hosts.cable(2, 0), "down")
    outputs = hosts.finish()
    for rank in (0, 1):
        assert re.match(
            r"rank 2 \(.*\) went silent for 2 s during allreduce 'gradient'", outputs[rank]
        ), outputs
    assert re.match(r"rank [01] \(.*\) went silent for 2 s", outputs[2]), outputs
