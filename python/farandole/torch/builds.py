# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Horovod's questions about how it was built, which scripts ask before they choose a path.

Farandole moves bytes by itself: there is no MPI, Gloo, NCCL, oneCCL or DDL in it, and so far no
device but the CPU.
"""

from __future__ import annotations

from collections import Counter

import farandole


def mpi_built() -> bool:
    """False."""
    return False


def mpi_enabled() -> bool:
    """False, also in a job that mpirun has started."""
    return False


def mpi_threads_supported() -> bool:
    """False: that is asked before MPI is used from several threads, and none is used here.
    Farandole may be called from any thread."""
    return False


def gloo_built() -> bool:
    """False."""
    return False


def gloo_enabled() -> bool:
    """False."""
    return False


def nccl_built() -> int:
    """0; with NCCL its version."""
    return 0


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def cuda_built() -> bool:
    """False."""
    return False


def rocm_built() -> bool:
    """False."""
    return False


def is_homogeneous() -> bool:
    """Whether every host has equally many ranks."""
    members = farandole.context().members
    counts = Counter(member["host"] for member in members)
    return len(set(counts.values())) == 1
