# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What Horovod's scripts import from horovod.common."""
