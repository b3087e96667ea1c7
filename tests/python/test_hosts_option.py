# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: lists of hosts mean what they say, mistakes are named with their place, and what agents and
launchers say to each other survives any cut of the stream.

Method: texts, no process.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from farandole.cli.horovod import horovod_settings
from farandole.launch.agent import Frames, frame
from farandole.launch.hosts import Host, HostsError, parse_hosts, place, read_hostfile
from farandole.launch.remote import travelling_environment
from farandole.launch.ssh import Ssh


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:4", [("a", 4)]),
        ("a:4,b.example.org:2", [("a", 4), ("b.example.org", 2)]),
        ("a, b:3", [("a", 1), ("b", 3)]),
        ("me@a:2,10.0.0.1:1", [("me@a", 2), ("10.0.0.1", 1)]),
        ("[fd00::1]:2,[::1]", [("fd00::1", 2), ("::1", 1)]),
    ],
)
def test_hosts(text: str, hosts: list[tuple[str, int]]) -> None:
    assert parse_hosts(text) == [Host(name, slots) for name, slots in hosts]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a host"),
        ("a:1,", "'' is not a host"),
        ("a:", "the slots of a are ''"),
        ("a:0", "the slots of a are '0', allowed is a number from 1 to 1000000"),
        ("a:-1", "the slots of a are '-1'"),
        ("a:1e3", "the slots of a are '1e3'"),
        ("a:99999999", "the slots of a are '99999999'"),
        ("fd00::1", "the slots of fd00 are ':1'"),
        ("-oProxyCommand=x:1", "is not a host"),
        ("-x@a:1", "is not a host"),
        ("a b:1", "'a b:1' is not a host, allowed is as in node1:4"),
        ("a;b", "is not a host"),
        ("a:1,b:1,a:2", "a is named twice"),
        ("localhost:1,127.0.0.1:2", "127.0.0.1 is named already as localhost"),
    ],
)
def test_wrong_hosts(text: str, message: str) -> None:
    with pytest.raises(HostsError) as caught:
        parse_hosts(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"--hosts {text}: ")


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# all of them\n\na slots=4  # the large one\n  b:2\nc\n")
    assert read_hostfile(path) == [Host("a", 4), Host("b", 2), Host("c", 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:1\nb slots=x\n", ":2: the slots of b are 'x'"),
        ("a:1\n\n# c\nb slots\n", ":4: 'slots' is not known, allowed is slots=N"),
        ("a max_slots=3\n", ":1: 'max_slots=3' is not known"),
        ("a:2 slots=2\n", ":1: a has two numbers of slots"),
        ("a\n-b\n", ":2: '-b' is not a host"),
        ("a\nb\na\n", ":3: a is named twice"),
        ("# nothing\n", " names no host"),
    ],
)
def test_wrong_hostfile(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(HostsError) as caught:
        read_hostfile(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_unreadable_hostfile(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(HostsError, match="cannot read the hostfile"):
            read_hostfile(path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(HostsError, match="cannot read the hostfile"):
        read_hostfile(tmp_path / "binary")


# Goal: every rank has one host, in order, within its slots; hosts left over are left out.
@pytest.mark.parametrize("slots", [(1,), (3,), (1, 1), (2, 5, 1), (4, 4, 4)])
def test_placement(slots: tuple[int, ...]) -> None:
    hosts = [Host(f"h{i}", count) for i, count in enumerate(slots)]
    for rank_count in range(1, sum(slots) + 1):
        placements = place(hosts, rank_count)
        assert [r for p in placements for r in p.ranks] == list(range(rank_count))
        assert [p.host for p in placements] == hosts[: len(placements)]
        assert all(1 <= len(p.ranks) <= p.host.slots for p in placements)
        assert all(len(p.ranks) == p.host.slots for p in placements[:-1])
    with pytest.raises(HostsError, match=f"the hosts have {sum(slots)} slots together \\(h0 "):
        place(hosts, sum(slots) + 1)


def test_this_machine_is_known() -> None:
    own = socket.gethostname()
    assert all(Host(name, 1).is_here for name in ("localhost", "127.0.0.1", "::1", own))
    for name in ("127.0.0.2", "me@localhost", f"{own}x", f"{own}.no-such-domain.invalid"):
        assert not Host(name, 1).is_here


def test_address_is_without_user() -> None:
    assert [Host(name, 1).address for name in ("me@a", "a", "fd00::1")] == ["a", "a", "fd00::1"]


def test_command_line_of_ssh() -> None:
    line = Ssh("ssh -v", 2222, Path("/k e y")).command_line(
        Host("me@a", 1), ["python 3", "-m", "x"]
    )
    assert line[:2] == ["ssh", "-v"]
    assert line[-2:] == ["me@a", "exec 'python 3' -m x"]
    for option in ("-p 2222", "-i /k e y", "-o BatchMode=yes", "-o ServerAliveInterval=5"):
        assert option in " ".join(line)
    plain = Ssh().command_line(Host("a", 1), ["true"])
    assert "-p" not in plain
    assert "-i" not in plain


def test_what_travels() -> None:
    own = {
        **{"PATH": "p", "PYTHONPATH": "pp", "VIRTUAL_ENV": "v", "NCCL_DEBUG": "n", "OMP_X": "o"},
        **{"FARANDOLE_LOG": "debug", "HOROVOD_TIMELINE": "t"},
    }
    staying = {
        **{"HOME": "h", "SSH_CONNECTION": "s", "AWS_SECRET_ACCESS_KEY": "k", "PATHS": "x"},
        **{"FARANDOLE_SECRET": "s", "FARANDOLE_SECRET_FILE": "f", "FARANDOLE_HOST_ID": "h"},
        **{"FARANDOLE_LISTEN_FD": "3", "FARANDOLE_LAUNCHER_FD": "4"},
    }
    assert travelling_environment(own | staying) == own


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({}, {}),
        ({"HOROVOD_CYCLE_TIME": "5"}, {"FARANDOLE_CYCLE_TIME": "0.005"}),
        ({"HOROVOD_CYCLE_TIME": ""}, {}),
        ({"HOROVOD_FUSION_THRESHOLD": "67108864"}, {"FARANDOLE_FUSION_THRESHOLD": "67108864"}),
        ({"HOROVOD_STALL_CHECK_DISABLE": "1"}, {"FARANDOLE_STALL_WARNING": "0"}),
        ({"HOROVOD_STALL_CHECK_DISABLE": "0"}, {}),
        (
            {"HOROVOD_STALL_CHECK_TIME_SECONDS": "9", "HOROVOD_STALL_CHECK_DISABLE": "1"},
            {"FARANDOLE_STALL_WARNING": "0"},
        ),
        ({"HOROVOD_LOG_LEVEL": "TRACE"}, {"FARANDOLE_LOG": "debug"}),
        ({"HOROVOD_TIMELINE": "trace.json"}, {"FARANDOLE_TIMELINE": "trace.json"}),
        ({"HOROVOD_TIMELINE": "DYNAMIC"}, {}),
        ({"HOROVOD_START_TIMEOUT": "40"}, {"FARANDOLE_START_TIMEOUT": "40"}),
        ({"HOROVOD_RANK": "3"}, {}),
    ],
)
def test_variables_of_horovod(variables: dict[str, str], settings: dict[str, str]) -> None:
    assert dict(horovod_settings(variables).values()) == settings


# Goal: frames arrive as sent, however the stream is cut and whatever precedes it.
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_frames_survive_any_cut(piece_bytes: int) -> None:
    mark = b"\nbegin\n"
    sent = [("output", b"a\n{}\n\0", {"rank": 3}), ("ping", b"", {}), ("report", b"", {"m": "\n"})]
    stream = b"Welcome\n\nbegi" + mark + b"".join(frame(k, d, **f) for k, d, f in sent)
    frames = Frames(mark)
    received = []
    for i in range(0, len(stream), piece_bytes):
        received += list(frames.feed(stream[i : i + piece_bytes]))
    assert [(fields["kind"], data) for fields, data in received] == [(k, d) for k, d, _ in sent]
    assert received[0][0]["rank"] == 3
    assert received[2][0]["m"] == "\n"
