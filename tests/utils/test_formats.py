"""Numbers and values as pages and tables write them."""

from __future__ import annotations

import math

from tfr_moe.utils import formats


def test_numbers_have_four_decimals_and_a_dash_where_undefined():
    assert formats.number(0.5) == "0.5000"
    assert formats.number(0.012, sign=True) == "+0.0120"
    assert formats.number(math.nan) == formats.number(None) == "–"
    assert formats.mean(0.87883, 0.0012) == "0.8788 ± 0.0012"
    assert formats.mean(0.87883) == "0.8788"
    assert formats.interval(0.1, 0.2) == "0.1000 to 0.2000"
    assert formats.interval(None, None) == "–"
    assert [formats.p_value(p) for p in (0.04, 1e-9)] == ["0.0400", "< 0.0001"]
    assert [formats.percent(0.17), formats.percent(0.004, 1)] == ["17 %", "0.4 %"]


def test_units_fit_the_size_of_a_number():
    assert [formats.duration(s) for s in (42, 600, 9000)] == ["42 s", "10 min", "2.5 h"]
    large = [formats.short(n) for n in (950, 12_345, 1_200_000, None)]
    assert large == ["950", "12.3 k", "1.2 M", "–"]


def test_settings_and_commands_are_written_as_they_are_typed():
    values = (0.001, [1024, 512], None, True, "TC+SC")
    assert [formats.setting(v) for v in values] == ["0.001", "1024-512", "–", "yes", "TC+SC"]
    assert formats.command("train", "--data", "my data") == "tfr-moe train --data 'my data'"
