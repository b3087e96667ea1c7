# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: no call of any collective or message, of farandole or farandole.torch, whatever its
arguments, crashes, hangs, writes where it must not or gives what NumPy does not: it is right, or an
error of one kind on every rank, after which the next call is right.

Method: calls drawn from a seed that the ranks, threads over real engines, share; about a fifth have
a flaw. FARANDOLE_TEST_SEED chooses the seed, FARANDOLE_TEST_CALL repeats one call of it. With
tools/sanitized.py the library runs under AddressSanitizer meanwhile.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from types import ModuleType

import fuzz_calls
import fuzz_torch_calls
import pytest
from rank_threads import on_contexts

from farandole import _native
from farandole.errors import FarandoleError

SEED = int(os.environ.get("FARANDOLE_TEST_SEED", "1"))
ONLY = os.environ.get("FARANDOLE_TEST_CALL")
# Python's own for what no type of ours can be; never a bare RuntimeError or SystemError.
EXPECTED = (FarandoleError, TypeError, ValueError)


def fuzz(calls: ModuleType, transport: str, size: int, numbers: Iterable[int]) -> None:
    """Of fuzz_calls or fuzz_torch_calls, which both have drawn(), a Side and its Target."""
    numbers = [int(ONLY)] if ONLY else list(numbers)
    outcomes: dict[int, dict[int, str]] = {number: {} for number in numbers}

    def replay(number: int) -> str:
        return (
            f"FARANDOLE_TEST_SEED={SEED} FARANDOLE_TEST_CALL={number} pytest {__file__} "
            f"-k '{transport}-{size}-{calls.__name__}'"
        )

    def body(context: _native.Context) -> None:
        rank, target = context.world.rank, calls.Target(context)
        for number in numbers:
            call = calls.drawn(SEED, number, size)
            side = calls.Side(call, rank)
            if not side.takes_part:
                continue
            where = f"{replay(number)}\nrank {rank}: {call}\n"
            result: object = None
            refusal: Exception | None = None
            try:
                result = side.run(target)
            except EXPECTED as error:
                refusal = error
            outcomes[number][rank] = type(refusal).__name__
            if refusal is not None:
                assert call.flaws or call.may_refuse, where + repr(refusal)
            else:
                assert not call.flaws, where + f"no error, but {result!r}"
                wrong = side.verdict(result)
                assert not wrong, where + wrong
            assert side.untouched(), where + "memory was written that is not the result's"
        target.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about what the calls are drawn from
        on_contexts(body, transport, size)
    for number, kinds in outcomes.items():
        assert len(set(kinds.values())) == 1, (
            f"{replay(number)}\n{calls.drawn(SEED, number, size)}\n{kinds}"
        )


SETUPS = [("inproc", 1), ("inproc", 2), ("inproc", 3), ("shm", 2), ("tcp", 3), ("fault", 4)]
CALLS = [fuzz_calls, fuzz_torch_calls]


@pytest.mark.parametrize("calls", CALLS, ids=lambda calls: calls.__name__)
@pytest.mark.parametrize(("transport", "size"), SETUPS)
def test_calls_are_right_or_an_error(transport: str, size: int, calls: ModuleType) -> None:
    fuzz(calls, transport, size, range(400 if calls is fuzz_calls else 100))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("calls", CALLS, ids=lambda calls: calls.__name__)
@pytest.mark.parametrize(("transport", "size"), SETUPS)
def test_a_hundred_thousand_calls(transport: str, size: int, calls: ModuleType) -> None:
    for start in range(0, 13_000 if calls is fuzz_calls else 4_000, 1_000):
        fuzz(calls, transport, size, range(start, start + 1_000))
