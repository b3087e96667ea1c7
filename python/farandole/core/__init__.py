# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A process in a job: its communicators, and the calls and arrays that they take."""
