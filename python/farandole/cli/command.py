# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What holds for every command: how it takes its arguments, and how it fails.

A wrong argument ends a command with status 2, before any work, anything else with 1; what is wrong
is said in one line, never as a traceback.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

import typer
import typer.core

from farandole.cli.joined import rank_told
from farandole.errors import FarandoleError, InvalidArgumentError

INT64_MAX = 2**63 - 1
INVALID_STATUS = 2
# typer has click in it, or needs it, depending on its version: this is click's UsageError in both.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Command(typer.core.TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        has_json = any("--json" in parameter.opts for parameter in self.params)
        rest = super().parse_args(ctx, _with_json_file(args) if has_json else args)
        for parameter in self.params:
            given = ctx.params.get(str(parameter.name))
            for value in given if isinstance(given, list | tuple) else [given]:
                if problem := _problem(value):
                    described: Any = parameter
                    raise typer.BadParameter(problem, ctx=ctx, param=described)
        return rest


class JoiningCommand(Command):
    """One that joins the job that it is started in, see joined.py."""


class Commands(typer.core.TyperGroup):
    """All of `farandole`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except _UsageError:
            if rank_told():  # rank 0 has the same arguments, and says so
                raise typer.Exit(INVALID_STATUS) from None
            raise
        except InvalidArgumentError as error:
            _fail(str(error), INVALID_STATUS)
        except FarandoleError as error:
            _fail(str(error), 1)
        except MemoryError as error:
            _fail(f"out of memory ({error})" if str(error) else "out of memory", 1)
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            _fail(os_error_text(error), 1)


def os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _fail(message: str, status: int) -> NoReturn:
    print(f"farandole: {' '.join(message.split())}", file=sys.stderr)
    raise typer.Exit(status) from None


def _with_json_file(args: list[str]) -> list[str]:
    """`--json` without a file means `--json -`."""
    end = args.index("--") if "--" in args else len(args)
    completed = []
    for index, word in enumerate(args):
        completed.append(word)
        if word == "--json" and index < end:
            following = args[index + 1] if index + 1 < len(args) else "--"
            if following.startswith("-") and following != "-":
                completed.append("-")
    return completed


def _problem(value: object) -> str:
    """Of a number or text that no part of the library could take."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no finite number"
    if isinstance(value, int) and abs(value) > INT64_MAX:
        return f"the number is beyond {INT64_MAX}"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{value!r} is not UTF-8"
    return ""
