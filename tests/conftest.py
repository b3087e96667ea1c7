# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""With FARANDOLE_TEST_NO_SKIPS=1, as in .ci/run, a test that is skipped fails the run: a machine
that should have everything lacks something, or a probe is wrong.

FARANDOLE_TEST_SEED is what tests begin with that take a seed; it is random, but the same in every
process that runs tests, which must agree on their names.

Tests of a file run in one process, with `-n`; those that share a job of ranks, see torch_checks.py,
of a family of files.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "python"))
import torch_checks

os.environ.setdefault("FARANDOLE_TEST_SEED", str(random.SystemRandom().randrange(10**6)))


def pytest_report_header() -> str:
    """For what leaves no report behind: a crash."""
    return f"FARANDOLE_TEST_SEED={os.environ['FARANDOLE_TEST_SEED']}"


def family_of(nodeid: str) -> int | None:
    """Of the tests that run checks on ranks."""
    file, _, test = nodeid.partition("::")
    is_check = test.startswith(f"{torch_checks.TEST}[")
    return torch_checks.family_of(Path(file).stem) if is_check else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if family_of(item.nodeid) is not None and isinstance(item, pytest.Function):
            ranks = item.callspec.params["rank_count"]
            torch_checks.chosen.setdefault(ranks, set()).add(item.path.stem)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFamily(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            family = family_of(nodeid)
            return super()._split_scope(nodeid) if family is None else f"family {family}"

    return ByFamily(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    report = (yield).get_result()
    if report.skipped and os.environ.get("FARANDOLE_TEST_NO_SKIPS") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
