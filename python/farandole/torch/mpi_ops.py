# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What Horovod's scripts import from horovod.torch.mpi_ops: all of farandole.torch, whatever does
the work."""

from farandole.torch import *  # noqa: F403
