# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of machines: those that come with the package, by name, and files of your own.

docs/formats/machine.md has the format, docs/machines.md the machines.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from farandole.errors import InvalidArgumentError
from farandole.machines.description import Constant, Description
from farandole.machines.reader import parse
from farandole.machines.writer import as_toml

_SUFFIX = ".toml"
_BYTES_MAX = 16 << 20  # of a file


def names() -> list[str]:
    """The machines that come with the package."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX))


def load(name_or_file: str | Path) -> Description:
    """A machine of the package by its name, or a file, which ends in .toml or has a slash. Raises
    InvalidArgumentError for what is neither, or makes no sense."""
    given = str(name_or_file)
    if given in names():
        text = (resources.files(__name__) / (given + _SUFFIX)).read_text(encoding="utf-8")
        return parse(text, given + _SUFFIX)
    if not given.endswith(_SUFFIX) and "/" not in given:
        raise InvalidArgumentError(
            f"machine is {given!r}, allowed is a file ending in {_SUFFIX} or one of "
            f"{', '.join(names())}"
        )
    try:
        with Path(given).open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, ValueError) as error:  # also for no UTF-8, and for a path with a zero in it
        raise InvalidArgumentError(f"cannot read the machine file {given}: {error}") from error
    if len(data) > _BYTES_MAX:
        raise InvalidArgumentError(
            f"the machine file {given} has more than {_BYTES_MAX >> 20} MiB, which none needs"
        )
    return parse(text, given)


__all__ = ["Constant", "Description", "as_toml", "load", "names", "parse"]
