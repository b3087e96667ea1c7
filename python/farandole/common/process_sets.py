# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Where Horovod has its process sets."""

from farandole.coordination.process_sets import (
    ProcessSet,
    add_process_set,
    get_process_set_ids_and_ranks,
    global_process_set,
    process_set_by_id,
    remove_process_set,
)

__all__ = [
    "ProcessSet",
    "add_process_set",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "process_set_by_id",
    "remove_process_set",
]
