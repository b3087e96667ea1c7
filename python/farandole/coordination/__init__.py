# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Named tensors of sets of ranks: who takes part, and how a coordinator is told and tuned."""
