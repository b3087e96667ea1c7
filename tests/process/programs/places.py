# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""One rank: says in one line where it finds itself, and what all ranks add up to."""

import os

import numpy as np

import farandole

farandole.init()
total = farandole.allreduce(np.arange(3.0) + farandole.rank())
place = (
    f"rank {farandole.rank()} of {farandole.size()}: "
    f"local {farandole.local_rank()} of {farandole.local_size()}, "
    f"cross {farandole.cross_rank()} of {farandole.cross_size()}, "
    f"sum {total.tolist()}, on {os.environ.get('OF_HOST', 'here')}\n"
)
farandole.barrier()
farandole.shutdown()
os.write(1, place.encode())
