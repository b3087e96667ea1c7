# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a machine file; what is wrong with it is said with file and line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

from farandole import _native
from farandole.errors import InvalidArgumentError
from farandole.machines.description import (
    COUNTS,
    HOP_KEYS,
    LOCAL_KEYS,
    NETWORK_KEYS,
    ORIGINS,
    Constant,
    Description,
    HopConstants,
    LinkGroup,
    NodeGroup,
    Ring,
)
from farandole.machines.positions import Path, lines_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_INTEGER_MAX = 10**15
_Value = TypeVar("_Value")
_Read = Callable[[Path, Any], _Value]


def parse(text: str, file: str) -> Description:
    """The machine that `text` describes; `file` is its name in errors. Raises
    InvalidArgumentError, as in "my.toml:12: ..."."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one; so are huge numbers
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise InvalidArgumentError(f"{file}:{line}: {error}") from error
    return _Reader(data, lines_of(text), file).read()


class _Reader:
    def __init__(self, data: dict[str, Any], lines: Mapping[Path, int], file: str) -> None:
        self._data = data
        self._lines = lines
        self._file = file
        self._sources: dict[str, str] = {}
        self._nodes: set[str] = set()

    def read(self) -> Description:
        allowed = ("name", "summary", "sources", "nodes", "links", "devices", "network", "hops")
        table = self._table((), self._data, (*allowed, "local"), ("name", "nodes", "devices"))
        self._sources = self._strings(("sources",), table.get("sources", {}))
        nodes = self._list(("nodes",), table["nodes"], self._node_group)
        self._nodes = {name for group in nodes for name in group.names}
        devices = self._table(
            ("devices",), table["devices"], ("nodes", "nics"), required=("nodes",)
        )
        hops = self._table(("hops",), table.get("hops", {}), _native.HOPS)
        description = Description(
            name=self._text(("name",), table["name"]),
            summary=self._text(("summary",), table.get("summary", "")),
            sources=self._sources,
            nodes=nodes,
            links=self._list(("links",), table.get("links", []), self._link_group),
            devices=self._list(("devices", "nodes"), devices["nodes"], self._node),
            nics=self._list(("devices", "nics"), devices.get("nics", []), self._node),
            network=self._constants(("network",), table.get("network", {}), NETWORK_KEYS),
            hops={hop: self._hop(("hops", hop), value) for hop, value in hops.items()},
            local=self._constants(("local",), table.get("local", {}), LOCAL_KEYS),
        )
        self._check(description)
        return description

    def _check(self, description: Description) -> None:
        for key, constant in description.local.items():
            if not constant.value > 0:
                self._wrong(("local", key), str(constant.value), "a rate above 0")
        try:
            description.machine()
        except InvalidArgumentError as error:
            place = description.places().get(str(error).split(" is ")[0], ())
            name = ".".join(map(str, place)) or "the machine"
            self._fail(place, f"{name} makes no sense: {error}")

    # Errors

    def _line(self, path: Path) -> int:
        """Of the innermost part of `path` that the file has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _fail(self, path: Path, message: str) -> NoReturn:
        raise InvalidArgumentError(f"{self._file}:{self._line(path)}: {message}") from None

    def _wrong(self, path: Path, given: str, allowed: str) -> NoReturn:
        name = ".".join(map(str, path)) or "the file"
        self._fail(path, f"{name} is {given}, allowed is {allowed}")

    # Parts

    def _table(
        self, path: Path, value: Any, allowed: Collection[str], required: Collection[str] = ()
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(path, repr(value), f"a table with {', '.join(allowed)}")
        where = f" in {'.'.join(map(str, path))}" if path else ""
        for key in value:
            if key not in allowed:
                self._fail(
                    (*path, key), f"unknown key {key!r}{where}, allowed are {', '.join(allowed)}"
                )
        for key in required:
            if key not in value:
                self._fail(path, f"key {key!r} is missing{where}, given are {', '.join(value)}")
        return value

    def _list(self, path: Path, value: Any, read: _Read[_Value]) -> tuple[_Value, ...]:
        if not isinstance(value, list):
            self._wrong(path, repr(value), "a list")
        return tuple(read((*path, index), element) for index, element in enumerate(value))

    def _text(self, path: Path, value: Any) -> str:
        if not isinstance(value, str):
            self._wrong(path, repr(value), "a string")
        return value

    def _strings(self, path: Path, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            self._wrong(path, repr(value), "a table of strings")
        return {key: self._text((*path, key), text) for key, text in value.items()}

    def _node(self, path: Path, value: Any) -> str:
        if self._text(path, value) not in self._nodes:
            self._wrong(path, repr(value), f"a node: {', '.join(sorted(self._nodes))}")
        return str(value)

    def _node_group(self, path: Path, value: Any) -> NodeGroup:
        keys = ("kind", "names")
        table = self._table(path, value, keys, required=keys)
        kind = self._text((*path, "kind"), table["kind"])
        if kind not in _native.NODE_KINDS:
            self._wrong((*path, "kind"), repr(kind), f"one of {', '.join(_native.NODE_KINDS)}")
        return NodeGroup(kind, self._list((*path, "names"), table["names"], self._text))

    def _pair(self, path: Path, value: Any) -> tuple[str, str]:
        if not isinstance(value, list) or len(value) != 2:
            self._wrong(path, repr(value), 'two nodes, as in ["gpu0", "gpu1"]')
        return self._node((*path, 0), value[0]), self._node((*path, 1), value[1])

    def _link_group(self, path: Path, value: Any) -> LinkGroup:
        keys = ("between", "rate_GBps", "latency_us", "half_duplex")
        table = self._table(path, value, keys, required=keys[:2])
        half_duplex = table.get("half_duplex", False)
        if not isinstance(half_duplex, bool):
            self._wrong((*path, "half_duplex"), repr(half_duplex), "true or false")
        latency = table.get("latency_us")
        return LinkGroup(
            between=self._list((*path, "between"), table["between"], self._pair),
            rate_GBps=self._constant((*path, "rate_GBps"), table["rate_GBps"]),
            latency_us=None if latency is None else self._constant((*path, "latency_us"), latency),
            half_duplex=half_duplex,
        )

    def _hop(self, path: Path, value: Any) -> HopConstants:
        table = dict(self._table(path, value, (*HOP_KEYS, "ring_rates_GBps")))
        rings = table.pop("ring_rates_GBps", {})
        place = (*path, "ring_rates_GBps")
        if not isinstance(rings, dict):
            self._wrong(place, repr(rings), "a table of rates by the size of the ring")
        return HopConstants(
            constants=self._constants(path, table, HOP_KEYS),
            ring_rates_GBps={
                self._ring((*place, key), key): self._constant((*place, key), rate)
                for key, rate in rings.items()
            },
        )

    def _ring(self, path: Path, key: str) -> Ring:
        found = re.fullmatch(r"([1-9]\d{0,8})(?:/([1-9]\d{0,8}))?", key)
        if found is None:
            self._wrong(path, repr(key), "the size of a ring, from 2 on, or size/stride")
        return Ring(int(found[1]), int(found[2] or 0))

    def _constants(self, path: Path, value: Any, keys: Collection[str]) -> dict[str, Constant]:
        table = self._table(path, value, keys)
        return {key: self._constant((*path, key), given) for key, given in table.items()}

    def _constant(self, path: Path, value: Any) -> Constant:
        """A number, or {value = 50, printed = "Tag, Table I"}."""
        if not isinstance(value, dict):
            return Constant(self._number(path, value))
        table = self._table(path, value, ("value", *ORIGINS), required=("value",))
        number = self._number((*path, "value"), table["value"])
        origins = [key for key in table if key != "value"]
        if len(origins) != 1:
            self._wrong(path, f"{len(origins)} origins", f"one of {', '.join(ORIGINS)}")
        place = (*path, origins[0])
        note = self._text(place, table[origins[0]])
        if origins[0] == "printed" and note.split(",")[0] not in self._sources:
            known = ", ".join(self._sources) or "none, as there are no sources"
            self._wrong(place, repr(note), f"a tag of sources before a comma: {known}")
        if not note.strip():
            self._wrong(place, "empty", "a word on where the number comes from")
        return Constant(number, origins[0], note)

    def _number(self, path: Path, value: Any) -> float:
        count = any(name in COUNTS for name in path)
        if isinstance(value, bool) or not isinstance(value, int if count else (int, float)):
            self._wrong(path, repr(value), "a whole number" if count else "a number")
        if isinstance(value, int) and abs(value) > _INTEGER_MAX:
            self._wrong(path, f"{len(str(abs(value)))} digits long", f"up to {_INTEGER_MAX}")
        return value
