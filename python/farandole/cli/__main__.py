# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
from farandole.cli import main

main()
