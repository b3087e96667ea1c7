# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""With FARANDOLE_TEST_NO_SKIPS=1, as in .ci/run, a test that is skipped fails the run: a machine
that should have everything lacks something, or a probe is wrong.

FARANDOLE_TEST_SEED is what tests begin with that take a seed; it is random, but the same in every
process that runs tests, which must agree on their names.
"""

from __future__ import annotations

import os
import random

import pytest

os.environ.setdefault("FARANDOLE_TEST_SEED", str(random.SystemRandom().randrange(10**6)))


def pytest_report_header() -> str:
    """For what leaves no report behind: a crash."""
    return f"FARANDOLE_TEST_SEED={os.environ['FARANDOLE_TEST_SEED']}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):  # type: ignore[no-untyped-def]
    report = (yield).get_result()
    if report.skipped and os.environ.get("FARANDOLE_TEST_NO_SKIPS") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
