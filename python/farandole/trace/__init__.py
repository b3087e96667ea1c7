# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks: read, merged into one, and summed up."""
