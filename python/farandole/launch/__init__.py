# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job, here and on other hosts, and sees every one to its end."""
