# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Some ranks of a job as forked children, so that many start at once and cheaply.

Arguments: the ranks. A line "pid" says who is who; when standard input ends all call init(), and
then reduce until something fails. What happens to each is one JSON line, with the moment
(CLOCK_MONOTONIC, which all processes of a host share).
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

import farandole


def report(event: str, **more: object) -> None:
    row = {"event": event, "rank": int(os.environ["RANK"]), "at_seconds": time.monotonic(), **more}
    os.write(1, json.dumps(row).encode() + b"\n")


def live() -> None:
    report("pid", pid=os.getpid())
    os.read(0, 1)
    try:
        farandole.init()
        report("ready")
        ones = np.ones(8, np.float32)
        if os.environ.get("ONLY_INIT") != "1":
            while True:
                farandole.allreduce(ones)
    except farandole.FarandoleError as error:
        culprit = error.rank if isinstance(error, farandole.RankFailed) else -1
        report("failed", kind=type(error).__name__, message=str(error), culprit=culprit)
    farandole.shutdown()
    report("over")


def main() -> None:
    children = []
    for rank in sys.argv[1:]:
        if (child := os.fork()) == 0:
            os.environ["RANK"] = rank
            live()
            sys.exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


main()
