# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: the machine `abci` is what bench/validation/abci.py fits to Table II of [Ueno19], and says
of that table what it should.

Method: fit again and compare; predict the ten rows from the file that is shipped.
"""

from __future__ import annotations

import abci
import pytest

from farandole import machines


def test_the_shipped_values_are_those_of_the_fit() -> None:
    fitted = abci.description(abci.fit(abci.TABLE))
    shipped = machines.load("abci")
    assert shipped.machine() == fitted.machine()
    for path, constant in fitted.constants():
        if constant.origin == "fitted":
            assert dict(shipped.constants())[path] == constant


def test_ten_rows_within_a_tenth_and_the_first_three_in_order() -> None:
    machine = machines.load("abci").machine()
    real = {sizes: abci.measured(sizes) for sizes in abci.TABLE}
    said = {sizes: abci.predicted(machine, sizes) for sizes in abci.TABLE}
    assert len(real) == 10
    for sizes, seconds in real.items():
        assert said[sizes] == pytest.approx(seconds, rel=0.1), sizes
    first = [sizes for sizes, place in abci.order(said).items() if place <= 3]
    assert first == [sizes for sizes, place in abci.order(real).items() if place <= 3]
    assert first[0] == (4, 8, 4)


# Goal: the times are the table's. Method: the flat ring by hand, and the sum of 4x8x4's layers.
def test_times_of_the_table() -> None:
    assert abci.measured((128,)) == pytest.approx(2 * 2**27 * 127 / 128 / 11547.97e6)
    layers = [2**27 * 3 / 4 / 85956.47e6, 2**25 * 7 / 8 / 4648.48e6, 2**22 * 3 / 4 / 3766.94e6]
    assert abci.measured((4, 8, 4)) == pytest.approx(2 * sum(layers))
