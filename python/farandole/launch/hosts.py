# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The hosts of a job: as the user names them, and which ranks each of them gets."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SLOTS_MAX = 1_000_000
_BYTES_MAX = 16 << 20  # of a file
# No leading "-": ssh would take such a host for an option.
_NAME = r"(?:[A-Za-z0-9_][\w.-]*@)?(?:[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+\])"
_HOST = re.compile(rf"(?P<name>{_NAME})(?::(?P<slots>.*))?")


class HostsError(ValueError):
    """What is wrong with a list of hosts, and where."""


@dataclass(frozen=True)
class Host:
    name: str  # as ssh takes it: node1, me@node1, 10.0.0.1, fd00::1
    slots: int

    @property
    def address(self) -> str:
        """The name without the user's."""
        return self.name.rpartition("@")[2]

    @property
    def is_here(self) -> bool:
        return self.is_localhost or self.name in _names_of_this_machine(self.name)

    @property
    def is_localhost(self) -> bool:
        return self.name in ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Placement:
    """The ranks that a host runs."""

    host: Host
    ranks: range


def parse_hosts(text: str) -> list[Host]:
    """Of --hosts: "node1:4,node2:4"; a host without a number has one slot."""
    hosts = [_parse_host(part.strip(), f"--hosts {text}") for part in text.split(",")]
    _refuse_repeated([(host, f"--hosts {text}") for host in hosts])
    return hosts


def read_hostfile(path: Path) -> list[Host]:
    """A host per line, "node1 slots=4" or "node1:4"; # starts a comment.

    Raises HostsError naming the file and the line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        lines = data.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostsError(f"cannot read the hostfile: {error}") from error
    if len(data) > _BYTES_MAX:
        raise HostsError(f"the hostfile {path} has more than {_BYTES_MAX >> 20} MiB")
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if words:
            found.append((_parse_line(words, f"{path}:{number}"), f"{path}:{number}"))
    if not found:
        raise HostsError(f"{path} names no host")
    _refuse_repeated(found)
    return [host for host, _ in found]


def place(hosts: Sequence[Host], rank_count: int) -> list[Placement]:
    """Fills the hosts one after the other; those without a rank are left out."""
    slots = sum(host.slots for host in hosts)
    if slots < rank_count:
        listed = ", ".join(f"{host.name} {host.slots}" for host in hosts)
        raise HostsError(
            f"{rank_count} ranks do not fit: the hosts have {slots} slots together ({listed})"
        )
    placements = []
    first = 0
    for host in hosts:
        count = min(host.slots, rank_count - first)
        if count > 0:
            placements.append(Placement(host, range(first, first + count)))
        first += count
    return placements


def _parse_line(words: list[str], where: str) -> Host:
    host = _parse_host(words[0], where)
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if name != "slots" or not equals:
            raise HostsError(f"{where}: {word!r} is not known, allowed is slots=N")
        if ":" in words[0].rpartition("]")[2]:
            raise HostsError(f"{where}: {host.name} has two numbers of slots")
        host = Host(host.name, _parse_slots(value, host.name, where))
    return host


def _parse_host(text: str, where: str) -> Host:
    match = _HOST.fullmatch(text)
    if match is None:
        raise HostsError(f"{where}: {text!r} is not a host, allowed is as in node1:4")
    name = match["name"].replace("[", "").replace("]", "")
    slots = match["slots"]
    return Host(name, 1 if slots is None else _parse_slots(slots, name, where))


def _parse_slots(text: str, name: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= SLOTS_MAX:
        raise HostsError(
            f"{where}: the slots of {name} are {text!r}, allowed is a number from 1 to {SLOTS_MAX}"
        )
    return int(text)


def _refuse_repeated(found: Sequence[tuple[Host, str]]) -> None:
    names: dict[str, str] = {}
    for host, where in found:
        key = "" if host.is_here else host.name
        if key in names:
            same = "twice" if names[key] == host.name else f"already as {names[key]}"
            raise HostsError(f"{where}: {host.name} is named {same}")
        names[key] = host.name


def _names_of_this_machine(name: str) -> set[str]:
    own = socket.gethostname()
    names = {own, own.partition(".")[0]}
    if name.startswith(f"{own}."):
        names.add(socket.getfqdn())  # may ask the network, so only for a name that may be ours
    return names
