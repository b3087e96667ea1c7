# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank: one of each collective; prints what it got and who started it, as one JSON line."""

import json
import os

import numpy as np

import farandole

farandole.init()
rank, size = farandole.rank(), farandole.size()
mine = np.arange(3, dtype=np.float64) + 10 * rank
report = {
    "rank": rank,
    "size": size,
    "local_rank": farandole.local_rank(),
    "local_size": farandole.local_size(),
    "started_by": farandole.context().started_by,
    "members": [member["pid"] for member in farandole.context().members],
    "pid": os.getpid(),
    "allreduce": farandole.allreduce(mine).tolist(),
    "allgather": farandole.allgather(mine).tolist(),
    "reducescatter": farandole.reducescatter(np.arange(2.0 * size) + rank).tolist(),
    "broadcast": farandole.broadcast(mine, root=size - 1).tolist(),
}
farandole.barrier()
farandole.shutdown()
os.write(1, json.dumps(report).encode() + b"\n")
