# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What this host is made of, and the machine that this makes."""
