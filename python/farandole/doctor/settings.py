# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The settings that are in force in this process."""

from __future__ import annotations

import os

SECRET_SETTINGS = ("FARANDOLE_SECRET",)


def visible_settings() -> list[dict[str, str]]:
    """Every setting; what is secret shows only that it is set."""
    from farandole import _native

    rows = _native.settings()
    for row in rows:
        if row["name"] in SECRET_SETTINGS and os.environ.get(row["name"]):
            row["value"] = "(set)"
    return rows
