# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank: allreduces without end, in sizes that all transports' paths take, until it fails.

Says so in JSON lines, each one write: "ready" once the first operation is done, "failed" with the
error and the moment it was raised (CLOCK_MONOTONIC, which all processes of a host share).
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np

import farandole

SIZES = (1, 1000, 30_000, 400_000)
FAILED_STATUS = 17


def say(event: str, **facts: Any) -> None:
    rank = int(os.environ["FARANDOLE_RANK"])
    line = json.dumps({"event": event, "rank": rank, "pid": os.getpid(), **facts})
    os.write(1, line.encode() + b"\n")


def stream() -> None:
    arrays = [np.ones(size, np.float32) for size in SIZES]
    owned = [farandole.empty(size) for size in SIZES]
    first = True
    while True:
        for array, result in zip(arrays, owned, strict=True):
            farandole.allreduce(array, result)
            if not (result == farandole.size()).all():
                say("wrong", elements=int((result != farandole.size()).sum()))
                sys.exit(1)
        if first:
            say("ready", job=os.environ["FARANDOLE_JOB"])
            first = False


def main() -> None:
    farandole.init()
    try:
        stream()
    except farandole.RankFailed as error:
        say(
            "failed",
            at_seconds=time.monotonic(),
            culprit=error.rank,
            culprit_pid=error.pid,
            host=error.host,
            operation=error.operation,
            message=str(error),
        )
        sys.exit(FAILED_STATUS)


main()
