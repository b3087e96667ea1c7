# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: run() of a function gives what every rank returned, or says which rank failed and why.

Method: real jobs, started from a test as from a notebook.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import farandole
from farandole.launch import functions


def job_of_functions(offset: int, scale: int = 1) -> tuple[int, int, float]:
    farandole.init()
    print(f"here is {farandole.rank()}\n", end="")  # one write, where ranks share a stream
    total = farandole.allreduce(np.ones(3) * (farandole.rank() + offset))
    return farandole.rank(), farandole.size(), scale * float(total[0])


def fails_on_the_last_rank() -> None:
    farandole.init()
    if farandole.rank() == farandole.size() - 1:
        raise LookupError("lost my data")
    farandole.world().barrier()


def test_results_by_rank(capfd: pytest.CaptureFixture[str]) -> None:
    assert farandole.run(job_of_functions, (5,), {"scale": 2}, np=2) == [(0, 2, 22.0), (1, 2, 22.0)]
    said = capfd.readouterr().out
    assert "here is 0" in said
    assert "here is 1" in said


def test_failure_of_one_rank() -> None:
    with pytest.raises(farandole.FarandoleError, match="failed on rank 1") as caught:
        farandole.run(fails_on_the_last_rank, np=2)
    assert "LookupError: lost my data" in str(caught.value)


def test_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: tuple[tuple[Any, Any, str], ...] = (
        (5, 1, "func is 5"),
        (job_of_functions, 0, "np is 0"),
        (job_of_functions, "two", "np is 'two'"),
    )
    for func, count, text in wrong:
        with pytest.raises(farandole.InvalidArgumentError, match=text):
            farandole.run(func, np=count)
    monkeypatch.setattr(functions, "_pickler", lambda: functions.pickle)
    with pytest.raises(farandole.InvalidArgumentError, match="functions of a notebook need"):
        farandole.run(lambda: 1)
