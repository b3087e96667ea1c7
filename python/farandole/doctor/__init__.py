# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What this machine offers to Farandole, and what is missing."""
