# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: ranks on several hosts find each other, use the interface that they are told to, and notice
when a cable is pulled.

Method: three network namespaces, each with an address on two bridges, stand for three hosts with
two networks. A cable is pulled by taking an interface down, which no process is told of.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from namespaces import HOSTS, Hosts, ip

# What a fast network would have delivered; the rest is start-up and the other network's.
PAYLOAD_BYTES = 4 << 20

COLLECTIVES = f"""
import os
import numpy as np
import farandole

cores = os.sched_getaffinity(0)
os.sched_setaffinity(0, {{min(cores)}})  # so that no core is to spare
farandole.init()
os.sched_setaffinity(0, cores)
assert not farandole.context().occupies_host, "a network is idle while a rank computes"
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

UNTIL_STARTED = """
import farandole

try:
    farandole.init()
except farandole.TimedOutError as error:
    print(error)
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


# Goal: rank 0 is found by its host's name also where that host itself takes the name for its own
# loopback, as Debian does, and so are the ranks beside it; FARANDOLE_INTERFACE is heeded then, too.
# Method: two ranks on each host; only rank 0's host says 127.0.1.1 (or ::1), the others say where
# it is.
@pytest.mark.parametrize(
    ("own", "interface"), [("127.0.1.1", ""), ("127.0.1.1", "net1"), ("::1", "")]
)
def test_rank_0s_host_takes_its_name_for_the_loopback(
    hosts: Hosts, tmp_path: Path, own: str, interface: str
) -> None:
    program = write(tmp_path, COLLECTIVES)
    hosts.name_hosts(0, {"node0": own})
    for host in range(1, HOSTS):
        hosts.name_hosts(host, {"node0": "10.77.0.1"})
    hosts.ranks_per_host = 2
    hosts.start(program, MASTER_ADDR="node0", FARANDOLE_INTERFACE=interface)
    assert hosts.finish() == [f"rank {rank} of 6, 2 here\n" for rank in range(2 * HOSTS)]
    if interface:
        assert hosts.sent_bytes(0, 1) > PAYLOAD_BYTES


# Goal: an address that is every host's own loopback is told as the reason why ranks on several
# hosts do not meet.
def test_localhost_on_two_hosts_is_explained(hosts: Hosts, tmp_path: Path) -> None:
    program = write(tmp_path, UNTIL_STARTED)
    hosts.start(program, MASTER_ADDR="localhost", FARANDOLE_START_TIMEOUT="1")
    for output in hosts.finish():
        assert "'localhost' reaches this host only" in output


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
