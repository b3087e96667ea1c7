# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `farandole`."""


def main() -> None:
    from farandole.launch.processes import open_standard_streams

    open_standard_streams()
    from farandole.cli.app import app

    app(prog_name="farandole")
