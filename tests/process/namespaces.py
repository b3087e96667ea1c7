# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that stand for hosts, each with an address on two bridges."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

HOSTS = 3
DEADLINE_SECONDS = 60.0


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
