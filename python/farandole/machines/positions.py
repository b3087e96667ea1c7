# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where the values of a TOML text stand, which the parsers of the standard library do not tell."""

from __future__ import annotations

import re

Path = tuple[str | int, ...]  # ("links", 0, "between", 2): keys, and positions in arrays

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, on which each table, key and element of an array begins. `text` is TOML
    that a parser has accepted."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}  # elements of each array of tables so far

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None  # a parser has accepted the text
        self._at = found.end()
        return found[0]

    def _mark(self, path: Path) -> None:
        self._lines.setdefault(path, self._text.count("\n", 0, self._at) + 1)

    def _header(self) -> Path:
        is_element = self._text.startswith("[[", self._at)
        self._at += 2 if is_element else 1
        start = self._at
        path: Path = ()
        names = self._dotted_key()
        for position, name in enumerate(names):
            path += (name,)
            if is_element and position == len(names) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path += (self._tables[path] - 1,)
        end, self._at = self._at, start
        self._mark(path)
        self._at = end + (2 if is_element else 1)
        return path

    def _dotted_key(self) -> list[str]:
        names = []
        while True:
            self._skip(_BLANK)
            names.append(self._skip(_KEY).strip("\"'"))
            self._skip(_BLANK)
            if self._peek() != ".":
                return names
            self._at += 1

    def _pair(self, table: Path) -> None:
        start = self._at
        path = (*table, *self._dotted_key())
        end, self._at = self._at, start
        self._mark(path)
        self._at = end + 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        self._mark(path)
        if self._peek() in ('"', "'"):
            self._skip(_STRING)
        elif self._peek() == "[":
            self._array(path)
        elif self._peek() == "{":
            self._inline_table(path)
        else:
            self._skip(_BARE)

    def _array(self, path: Path) -> None:
        self._at += 1
        for position in range(len(self._text)):
            self._skip(_BLANK)
            if self._peek() == "]":
                break
            self._value((*path, position))
            self._separator()
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._peek() != "}":
            self._pair(path)
            self._separator()
        self._at += 1

    def _separator(self) -> None:
        self._skip(_BLANK)
        if self._peek() == ",":
            self._at += 1
            self._skip(_BLANK)
