# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where Horovod has its exceptions."""

from farandole.errors import FarandoleError as HorovodInternalError

__all__ = ["HorovodInternalError"]
