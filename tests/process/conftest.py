# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that start real processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launched import Job

from namespaces import Hosts, why_not

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def start() -> Iterator[Callable[..., Job]]:
    """start(*arguments, **environment): `farandole run` with these; ended with the test."""
    jobs: list[Job] = []

    def start_job(*arguments: str | Path, **environment: str) -> Job:
        jobs.append(Job(list(arguments), environment))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.end()


@pytest.fixture
def programs() -> Path:
    return PROGRAMS


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """write(source): a Python file for the ranks to run."""

    def write_program(source: str) -> Path:
        path = tmp_path / f"{uuid.uuid4().hex}.py"
        path.write_text(source)
        return path

    return write_program


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Hosts with networks of their own, gone after the test."""
    if reason := why_not():
        pytest.skip(reason)
    hosts = Hosts()
    try:
        hosts.build()
        yield hosts
    finally:
        hosts.remove()
