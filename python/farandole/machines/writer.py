# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a machine file that the reader gives back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from farandole.machines.description import Constant, Description


def as_toml(description: Description) -> str:
    return "\n".join(_lines(description)) + "\n"


def _lines(description: Description) -> Iterator[str]:
    yield f"name = {_text(description.name)}"
    if description.summary:
        yield f"summary = {_text(description.summary)}"
    if description.sources:
        yield "\n[sources]"
        yield from (f"{_text(tag)} = {_text(full)}" for tag, full in description.sources.items())
    for nodes in description.nodes:
        yield f"\n[[nodes]]\nkind = {_text(nodes.kind)}\nnames = {_array(map(_text, nodes.names))}"
    for links in description.links:
        pairs = (_array(map(_text, pair)) for pair in links.between)
        yield f"\n[[links]]\nbetween = {_array(pairs)}"
        yield f"rate_GBps = {_constant(links.rate_GBps)}"
        if links.latency_us is not None:
            yield f"latency_us = {_constant(links.latency_us)}"
        if links.half_duplex:
            yield "half_duplex = true"
    yield f"\n[devices]\nnodes = {_array(map(_text, description.devices))}"
    if description.nics:
        yield f"nics = {_array(map(_text, description.nics))}"
    yield from _table("network", description.network)
    for hop, given in description.hops.items():
        yield from _table(f"hops.{hop}", given.constants)
        rates = {
            str(ring) if ring.stride == 0 else _text(str(ring)): rate
            for ring, rate in given.ring_rates_GBps.items()
        }
        yield from _table(f"hops.{hop}.ring_rates_GBps", rates)
    yield from _table("local", description.local)


def _table(name: str, constants: Mapping[str, Constant]) -> Iterator[str]:
    if constants:
        yield f"\n[{name}]"
    yield from (f"{key} = {_constant(constant)}" for key, constant in constants.items())


def _constant(constant: Constant) -> str:
    if not constant.origin:
        return repr(constant.value)
    return f"{{ value = {constant.value!r}, {constant.origin} = {_text(constant.note)} }}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _array(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"
