# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: a machine file means what it says, and what is wrong with one is found on its line.

Method: the shipped files against the figures that their sources print; one good text, damaged a
line at a time; what is written is read again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from farandole import _native, machines
from farandole.errors import InvalidArgumentError
from farandole.machines.description import ORIGINS
from farandole.machines.positions import lines_of

GOOD = """\
name = "two"

[sources]
Sheet = "A data sheet"

[[nodes]]
kind = "gpu"
names = ["gpu0", "gpu1"]

[[nodes]]
kind = "nic"
names = ["nic0"]

[[links]]
between = [
  ["gpu0", "gpu1"],
  ["gpu1", "nic0"],
]
rate_GBps = { value = 10, printed = "Sheet, page 3" }
latency_us = 0.5

[devices]
nodes = ["gpu0", "gpu1"]
nics = ["nic0", "nic0"]

[network]
hosts = 2
nic_rate_GBps = 1.5
hosts_per_rack = 1
uplinks = 1
uplink_rate_GBps = 1

[hops.host]
alpha_us = 3
efficiency = 0.5
overhead_us = 0.25
crowding_us = 0.125

[hops.host.ring_rates_GBps]
2 = 4.5
"2/2" = 3

[local]
reduce_rate_GBps = 4
"""


def refused(text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        machines.parse(text, "my.toml")
    return str(caught.value)


# Goal: units and names arrive in struct Machine. Method: compare every field that the text sets.
def test_a_file_becomes_a_machine() -> None:
    machine = machines.parse(GOOD, "my.toml").machine()
    assert machine.nodes == [("gpu0", "gpu"), ("gpu1", "gpu"), ("nic0", "nic")]
    for link, ends in zip(machine.links, [(0, 1), (1, 2)], strict=True):
        assert (link.ends, link.bytes_per_second) == (ends, 10e9)
        assert (link.half_duplex, link.latency) == (False, 0.5e-6)
    assert (machine.devices, machine.nic_of) == ([0, 1], [2, 2])
    assert (machine.hosts, machine.nic_bytes_per_second) == (2, 1.5e9)
    assert (machine.hosts_per_rack, machine.uplinks) == (1, 1)
    rings = {(2, 0): 4.5e9, (2, 2): 3e9}
    host, rack = machine.hops["host"], machine.hops["rack"]
    assert host["overhead"] == pytest.approx(0.25e-6, rel=1e-15)
    assert host["crowding"] == pytest.approx(0.125e-6, rel=1e-15)
    assert host["alpha"] == pytest.approx(3e-6, rel=1e-15)
    assert (host["efficiency"], host["ring_rates"]) == (0.5, rings)
    assert (rack["alpha"], rack["efficiency"], rack["ring_rates"]) == (0, 1, {})
    assert machine.reduce_seconds_per_byte == 0.25e-9
    assert machine.copy_seconds_per_byte == 0


DAMAGES = [
    # The line's text, what replaces it, the line of the error, what the error says.
    ("[sources]", "[sources", 3, "Expected ']'"),
    ('kind = "nic"', 'kind = "nick"', 11, "'nick', allowed is one of cpu, gpu, memory"),
    ('kind = "nic"', 'kinds = "nic"', 11, "unknown key 'kinds' in nodes.1, allowed are kind"),
    ('kind = "nic"', "", 10, "key 'kind' is missing in nodes.1"),
    ('  ["gpu1", "nic0"],', '  ["gpu1", "nic1"],', 17, "is 'nic1', allowed is a node: gpu0"),
    ('  ["gpu1", "nic0"],', '  ["gpu1"],', 17, "allowed is two nodes"),
    ('  ["gpu1", "nic0"],', '  ["gpu1", "gpu1"],', 17, "links.0.between.1 makes no sense"),
    ("rate_GBps = { v", "rate = { v", 19, "unknown key 'rate' in links.0"),
    ('printed = "Sheet, page 3"', 'printed = "Note, page 3"', 19, "a tag of sources"),
    (', printed = "Sheet, page 3"', "", 19, "0 origins, allowed is one of printed"),
    ('printed = "Sheet, page 3"', 'assumed = " "', 19, "a word on where"),
    ("latency_us = 0.5", "latency_us = -0.5", 20, "links[0].latency is -5e-07, allowed is"),
    ("latency_us = 0.5", 'latency_us = "0.5"', 20, "is '0.5', allowed is a number"),
    ("latency_us = 0.5", "half_duplex = 1", 20, "is 1, allowed is true or false"),
    ('nodes = ["gpu0", "gpu1"]', 'nodes = ["gpu0", "gpu9"]', 23, "devices.nodes.1 is 'gpu9'"),
    ('nodes = ["gpu0", "gpu1"]', 'nodes = ["gpu0", "nic0"]', 23, "a node of kind cpu or gpu"),
    ('nics = ["nic0", "nic0"]', 'nics = ["nic0"]', 24, "1 NICs, allowed is one for each of 2"),
    ("hosts = 2", "hosts = 2.5", 27, "network.hosts is 2.5, allowed is a whole number"),
    ("hosts = 2", "hosts = true", 27, "network.hosts is True, allowed is a whole number"),
    ("hosts = 2", f"hosts = {10**23}", 27, "network.hosts is 24 digits long, allowed is up to"),
    ("latency_us = 0.5", f"latency_us = {10**400}", 20, "is 401 digits long, allowed is up to"),
    ("nic_rate_GBps = 1.5", "nic_rate_GBps = nan", 28, "nic_bytes_per_second is nan"),
    ("nic_rate_GBps = 1.5", "", 26, "nic_bytes_per_second is 0, allowed is a rate"),
    ("efficiency = 0.5", "efficiency = 2", 35, "hops.host.efficiency is 2"),
    ("overhead_us = 0.25", "overhead_us = -1", 36, "hops.host.overhead is -1e-06"),
    ("[hops.host]", "[hops.house]", 33, "unknown key 'house' in hops, allowed are host"),
    ("2 = 4.5", "two = 4.5", 40, "is 'two', allowed is the size of a ring"),
    ("2 = 4.5", "1 = 4.5", 40, "ring_size is 1"),
    ('"2/2" = 3', '"2/0" = 3', 41, "is '2/0', allowed is the size of a ring, from 2 on, or size/"),
    ('"2/2" = 3', '"2/2" = 0', 41, "ring_rates[1].bytes_per_second is 0"),
    ("reduce_rate_GBps = 4", "reduce_rate_GBps = 0", 44, "allowed is a rate above 0"),
]


# Goal: each mistake is refused with its line, what was given and what is allowed.
# Method: damage one line of a text that is accepted.
@pytest.mark.parametrize(("before", "after", "line", "message"), DAMAGES)
def test_mistakes_are_found_on_their_line(before: str, after: str, line: int, message: str) -> None:
    assert GOOD.count(before) == 1
    said = refused(GOOD.replace(before, after))
    assert said.startswith(f"my.toml:{line}: "), said
    assert message in said


# Goal: positions are right in every form that TOML has. Method: a text with all of them, in which
# each key ends in the number of its line.
def test_lines_are_those_of_the_text() -> None:
    text = '''\
a_1 = "x # y"  # a comment = 2
b_2 = """two
lines \\""" and a quote"""
"c_4" = { d_4 = [1, 2], e_4 = 'it' }

[f_6.g_6]
h_7.i_7 = [
  { j_8 = 1 },
  # nothing

  [{ k_11 = "]" }],
]
[[l_13]]
m_14 = 1979-05-27T07:32:00Z
[[l_13]]
n_16 = \'\'\'a
'b' \'\'\'
[l_13.o_18]
p_19 = [ ]
'''
    lines = lines_of(text)
    for path, line in lines.items():
        name = path[-1]
        if isinstance(name, str):
            assert line == int(name.rsplit("_", 1)[1]), path
    assert lines["f_6", "g_6", "h_7", "i_7", 1, 0] == 11
    assert (lines["l_13", 0], lines["l_13", 1]) == (13, 15)
    assert lines["l_13", 1, "o_18", "p_19"] == 19


# Goal: nothing is lost on the way out and in. Method: compare every shipped machine, and a text
# without origins, with what comes back.
def test_what_is_written_is_read_again() -> None:
    shared = GOOD.replace("latency_us = 0.5", "half_duplex = true")
    own = [machines.parse(text, "my.toml") for text in (GOOD, shared)]
    assert own[1].machine().links[0] == _native.Link(
        ends=(0, 1), bytes_per_second=10e9, half_duplex=True
    )
    for description in [*own, *map(machines.load, machines.names())]:
        again = machines.parse(machines.as_toml(description), "again")
        assert again == description
        assert again.machine() == description.machine()


# Goal: the papers' machines can be asked for by name. Method: load each.
@pytest.mark.parametrize(
    ("name", "hosts", "devices"),
    [
        ("abci", 1088, 4),
        ("sierra", 4320, 4),
        ("summit", 4600, 6),
        ("blueconnect-p100", 48, 4),
        ("k80-dense", 8, 8),
        ("p100-sparse", 16, 1),
        ("k80-sparse", 16, 2),
        ("cs-storm", 8, 16),
        ("dgx-h100", 127, 8),
    ],
)
def test_shipped_machines(name: str, hosts: int, devices: int) -> None:
    machine = machines.load(name).machine()
    assert machine.name == name
    assert (machine.hosts, machine.devices_per_host) == (hosts, devices)


# Goal: no figure without its origin. Method: look at every number of every shipped file.
def test_every_number_of_a_shipped_file_has_an_origin() -> None:
    assert len(machines.names()) == 9
    for name in machines.names():
        description = machines.load(name)
        for path, constant in description.constants():
            assert constant.origin in ORIGINS, (name, path)
            assert len(constant.note) > 5, (name, path)
        printed = {
            c.note.split(",")[0] for _, c in description.constants() if c.origin == "printed"
        }
        assert printed, name


# Goal: the example in the format's document is a machine file. Method: read it.
def test_the_documents_example_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs/formats/machine.md").read_text(encoding="utf-8")
    found = re.search(r"^```toml\n(.*?)^```", text, re.M | re.S)
    assert found is not None
    description = machines.parse(found[1], "example")
    assert description.machine().hosts == 2
    assert {constant.origin for _, constant in description.constants()} > {"printed", "measured"}


# Goal: the table of machines in the docs is complete. Method: compare names and summaries.
def test_the_docs_list_every_machine() -> None:
    text = (Path(__file__).parents[2] / "docs/machines.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", text, re.M) == machines.names()
    for name in machines.names():
        assert machines.load(name).summary in text


def test_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    assert machines.load(file).name == "two"
    file.write_text("name = 1\n")
    with pytest.raises(InvalidArgumentError, match=r"mine\.toml:1: key 'nodes' is missing"):
        machines.load(file)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("acbi", "machine is 'acbi', allowed is a file ending in .toml or one of abci"),
        ("no/such.toml", "cannot read the machine file no/such.toml"),
    ],
)
def test_unknown_machines_are_refused(given: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        machines.load(given)
    assert message in str(caught.value)


# Goal: the native class refuses what it does not know. Method: wrong kind, hop and cost.
@pytest.mark.parametrize(
    ("kind", "hops", "message"),
    [
        ("tpu", {}, "nodes.kind is 'tpu', allowed are cpu, gpu"),
        ("gpu", {"moon": {}}, "hops is 'moon', allowed are host, rack, fabric"),
        ("gpu", {"rack": {"beta": 1.0}}, "hops.rack is 'beta', allowed are alpha, call"),
        ("gpu", {"rack": {"alpha": -1.0}}, "hops.rack.alpha is -1, allowed is seconds"),
    ],
)
def test_the_native_machine_checks_names(
    kind: str, hops: dict[str, dict[str, float]], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        _native.Machine(name="m", nodes=[("a", kind)], links=[], devices=[0], hops=hops)
