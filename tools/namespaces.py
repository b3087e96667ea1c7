# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that stand for hosts, each with an address on two bridges.

For tests and for bench/; needs root and Debian's iproute2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

HOSTS = 3
NETS = 2
DEADLINE_SECONDS = 60.0
_ETC = Path("/etc/netns")  # what lies here per namespace takes the place of the same in /etc
# How long what the kernel hands over as one packet takes. A burst must hold it, and what is in one
# is not slowed down at all, so both are small.
PACKET_SECONDS = 130e-6
PACKET_BYTES_MIN = 2048
QUEUE_SECONDS = 0.1
# BBR, some systems' choice, takes the bursts that a bucket lets through for the rate of the link,
# and paces by that; Reno is allowed everywhere.
CONGESTION_CONTROL = "net.ipv4.tcp_congestion_control=reno"


def ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class Hosts:
    """Namespaces named after `mark`; host i has 10.77.0.(i+1) on net0 and 10.78.0.(i+1) on net1.

    With `megabits` each host sends and receives at most so many Mbit/s on each net.
    """

    def __init__(self, count: int = HOSTS, megabits: int | None = None) -> None:
        self.mark = "f" + uuid.uuid4().hex[:6]
        self.count = count
        self.megabits = megabits
        self.ranks: list[subprocess.Popen[str]] = []
        self.ranks_per_host = 1

    def build(self) -> None:
        for host in range(self.count):
            ip("netns", "add", f"{self.mark}{host}")
            self.inside(host, "link", "set", "lo", "up")
            ip("netns", "exec", f"{self.mark}{host}", "sysctl", "-q", "-w", CONGESTION_CONTROL)
        for net in range(NETS):
            ip("link", "add", f"{self.mark}b{net}", "type", "bridge")
            ip("link", "set", f"{self.mark}b{net}", "up")
            for host in range(self.count):
                self.connect(host, net)
                if self.megabits is not None:
                    self._shape(f"net{net}", "-n", f"{self.mark}{host}")
                    self._shape(self.cable(host, net))

    def connect(self, host: int, net: int) -> None:
        cable, namespace = self.cable(host, net), f"{self.mark}{host}"
        ip("link", "add", cable, "type", "veth", "peer", "name", f"net{net}", "netns", namespace)
        ip("link", "set", cable, "master", f"{self.mark}b{net}", "up")
        self.inside(host, "addr", "add", f"10.{77 + net}.0.{host + 1}/24", "dev", f"net{net}")
        self.inside(host, "link", "set", f"net{net}", "up")

    def _shape(self, device: str, *where: str) -> None:
        """What leaves by the device is slowed down; every cable has one at either end."""
        assert self.megabits is not None
        packet = max(int(PACKET_SECONDS * self.megabits * 1e6 / 8), PACKET_BYTES_MIN)
        ip(*where, "link", "set", device, "gso_max_size", str(packet))
        bucket = ("burst", f"{packet + 2048}b", "latency", f"{QUEUE_SECONDS}s")
        rate = ("rate", f"{self.megabits}mbit")
        add = ("tc", *where, "qdisc", "add", "dev", device)
        _run(*add, "root", "handle", "1:", "tbf", *rate, *bucket)
        # As a host's own device would, it lets pass first what asks for it.
        _run(*add, "parent", "1:1", "pfifo_fast")

    def drop_large_packets(self, host: int, net: int, *, outgoing: bool) -> None:
        """From now on packets of more than a kilobyte from the host, or to it, are lost, which no
        process is told of: a bucket at this end of its cable, or the other, cannot hold them."""
        bucket = ("rate", "1gbit", "burst", "1000b", "limit", "1mb")
        inside = ("-n", f"{self.mark}{host}") if outgoing else ()
        device = f"net{net}" if outgoing else self.cable(host, net)
        _run("tc", *inside, "qdisc", "add", "dev", device, "root", "tbf", *bucket)

    def cut(self, host: int, net: int) -> None:
        """From now on every packet from the host, or to it, is lost, as within a network: a queue
        without room at each end of its cable."""
        for device, *where in self._ends(host, net):
            _run("tc", *where, "qdisc", "add", "dev", device, "root", "pfifo", "limit", "0")

    def mend(self, host: int, net: int) -> None:
        for device, *where in self._ends(host, net):
            _run("tc", *where, "qdisc", "del", "dev", device, "root")

    def _ends(self, host: int, net: int) -> list[tuple[str, ...]]:
        return [(self.cable(host, net),), (f"net{net}", "-n", f"{self.mark}{host}")]

    def cable(self, host: int, net: int) -> str:
        return f"{self.mark}c{host}{net}"

    def inside(self, host: int, *arguments: str) -> str:
        return ip("-n", f"{self.mark}{host}", *arguments)

    def sent_bytes(self, host: int, net: int) -> int:
        found = re.search(r"TX:.*\n\s+(\d+)", self.inside(host, "-s", "link", "show", f"net{net}"))
        assert found is not None
        return int(found[1])

    def name_hosts(self, host: int, names: dict[str, str]) -> None:
        """The host's /etc/hosts: addresses by name."""
        folder = _ETC / f"{self.mark}{host}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = {"localhost": "127.0.0.1"} | names
        (folder / "hosts").write_text("".join(f"{at} {name}\n" for name, at in lines.items()))

    def start(self, *command: str | Path, **environment: str) -> None:
        """Python with these arguments as the ranks, as a scheduler would start them."""
        secret, each = uuid.uuid4().hex, self.ranks_per_host
        self.ranks = []
        for rank in range(self.count * each):
            job = {
                "RANK": str(rank),
                "WORLD_SIZE": str(self.count * each),
                "LOCAL_RANK": str(rank % each),
                "LOCAL_WORLD_SIZE": str(each),
                "MASTER_ADDR": "10.77.0.1",
                "MASTER_PORT": "29500",
                "FARANDOLE_SECRET": secret,
                "FARANDOLE_TRANSPORT": "tcp",  # their memory is this one machine's
            }
            prefix = ("ip", "netns", "exec", f"{self.mark}{rank // each}")
            self.ranks.append(
                subprocess.Popen(
                    [*prefix, sys.executable, *map(str, command)],
                    env=os.environ | job | environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def finish(self, timeout_seconds: float = DEADLINE_SECONDS) -> list[str]:
        """What each rank wrote."""
        outputs = [rank.communicate(timeout=timeout_seconds)[0] for rank in self.ranks]
        codes = [rank.returncode for rank in self.ranks]
        assert codes == [0] * len(self.ranks), outputs
        return outputs

    def remove(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        # Closing connections keep a namespace for a while; its cables need not wait for them.
        links = [self.cable(host, net) for host in range(self.count) for net in range(NETS)]
        for link in [*links, *(f"{self.mark}b{net}" for net in range(NETS))]:
            subprocess.run(["ip", "link", "del", link], check=False)
        for host in range(self.count):
            subprocess.run(["ip", "netns", "del", f"{self.mark}{host}"], check=False)
            shutil.rmtree(_ETC / f"{self.mark}{host}", ignore_errors=True)


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
