# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `farandole`."""


def main() -> None:
    import sys

    from farandole.cli.processes import open_standard_streams

    open_standard_streams()
    from farandole.cli.app import app
    from farandole.errors import FarandoleError, InvalidArgumentError

    try:
        app(prog_name="farandole")
    except FarandoleError as error:
        print(f"farandole: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InvalidArgumentError) else 1)
