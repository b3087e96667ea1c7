# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What collectives and messages cost between the running ranks: benchmark, probe, tuner."""
