# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Questions to the planner and the simulator: models, scaling, sweeps, orders of a chain."""
