# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns what the library knows into something a person reads: tables and drawings."""
