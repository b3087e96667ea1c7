# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: networks that are neither up nor down. One that passes small packets and drops large ones
fails the operation of the two ranks between which it lies, and names both; one that is away for
less than FARANDOLE_TIMEOUT fails nothing; a rank that reads nothing for long is no fault of the
network.

Method: network namespaces as hosts; a bucket too small for large packets; a queue without room for
any.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from namespaces import Hosts

TIMEOUT_SECONDS = 2.0

UNTIL_TOLD = """
import os, sys, time
from pathlib import Path
import numpy as np
import farandole

farandole.init()
print("started", flush=True)
stop = Path(os.environ["STOP_FILE"])
data = np.zeros(250_000, np.float32)
try:
    while True:
        data[0] = stop.exists()
        if farandole.allreduce(data, name="gradient")[0] > 0:
            break
    print("stopped")
except farandole.RankFailed as failure:
    print(failure.rank, failure)
"""

BUSY = f"""
import time
import numpy as np
import farandole

farandole.init()
many = [np.full(200_000, 1.0 + farandole.rank()) for _ in range(40)]
if farandole.rank() == 1:
    time.sleep({3 * TIMEOUT_SECONDS})  # computes, and reads nothing
requests = [farandole.allreduce_async(array) for array in many]
assert all((request.wait() == 6.0).all() for request in requests)
print("done")
"""


def start(hosts: Hosts, folder: Path, source: str) -> Path:
    program, stop = folder / "program.py", folder / "stop"
    program.write_text(source)
    hosts.start(program, FARANDOLE_TIMEOUT=str(TIMEOUT_SECONDS), STOP_FILE=str(stop))
    return stop


def wait_for_start(hosts: Hosts) -> None:
    for rank in hosts.ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "started\n"


# Method: lost on the way to a host, and at its own device, where the system knows of it.
@pytest.mark.parametrize("outgoing", [False, True])
def test_a_network_that_drops_large_packets_names_both_ranks(
    hosts: Hosts, tmp_path: Path, outgoing: bool
) -> None:
    start(hosts, tmp_path, UNTIL_TOLD)
    wait_for_start(hosts)
    hosts.drop_large_packets(1, 0, outgoing=outgoing)
    # What a host's own device drops had the acknowledgements of what came in on it, so what others
    # sent there may be seen to wait first.
    ways = "(1 .* to rank [02]|[02] .* to rank 1)" if outgoing else "[02] .* to rank 1"
    for output in hosts.finish():
        assert re.match(
            rf"-1 \d+ bytes of data from rank {ways} \(.*\) "
            r"made no progress, though both are alive, during allreduce 'gradient'",
            output,
        ), output


def test_an_outage_shorter_than_the_timeout_fails_nothing(hosts: Hosts, tmp_path: Path) -> None:
    stop = start(hosts, tmp_path, UNTIL_TOLD)
    wait_for_start(hosts)
    hosts.cut(2, 0)
    time.sleep(0.9 * TIMEOUT_SECONDS)  # the outage
    hosts.mend(2, 0)
    stop.touch()
    assert hosts.finish() == ["stopped\n"] * 3


def test_a_rank_that_does_not_read_fails_nothing(hosts: Hosts, tmp_path: Path) -> None:
    start(hosts, tmp_path, BUSY)
    assert hosts.finish() == ["done\n"] * 3
