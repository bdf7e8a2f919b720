import math
import random

import pytest

from tfr_moe.beam.transforms.shards import TimeBounds
from tfr_moe.elwc.splits import Bounds, hash_bounds, hash_fraction, list_hash


def bounds(times, validation=0.1, test=0.1, parts=1):
    combine = TimeBounds(validation, test)
    accumulators = []
    for part in range(parts):
        accumulator = combine.create_accumulator()
        for time in times[part::parts]:
            accumulator = combine.add_input(accumulator, time)
        accumulators.append(accumulator)
    return combine.extract_output(combine.merge_accumulators(accumulators))


def test_bounds_of_ten_times():
    assert bounds([float(t) for t in range(10)]) == Bounds(8.0, 9.0)


def test_equal_times_fall_on_one_side():
    # Nine lists at time 1 and one at time 2: nothing can be cut out of the nine.
    assert bounds([1.0] * 9 + [2.0]) == Bounds(2.0, 2.0)
    assert bounds([1.0] * 10) == Bounds(math.inf, math.inf)


def test_no_fractions_leave_all_for_training():
    assert bounds([1.0, 2.0, 3.0], 0.0, 0.0) == Bounds(math.inf, math.inf)


def test_times_before_1970_and_fractions_of_seconds_count():
    assert bounds([-0.75, -0.5, -0.25, 0.0], 0.25, 0.25) == Bounds(-0.25, 0.0)


def test_bounds_do_not_depend_on_how_times_arrive_even_when_buckets_are_few(monkeypatch):
    monkeypatch.setattr("tfr_moe.elwc.splits.MAX_BUCKETS", 64)
    rng = random.Random(0)
    times = [rng.uniform(0, 1e6) for _ in range(3000)]
    expected = bounds(times)
    for seed in range(5):
        random.Random(seed).shuffle(times)
        assert bounds(times, parts=seed + 1) == expected
    # 64 buckets of a million seconds are 2^14 seconds wide.
    assert expected.validation % 2**14 == 0
    assert sum(time < expected.validation for time in times) / 3000 == pytest.approx(0.8, abs=0.02)
    assert sum(time < expected.test for time in times) / 3000 == pytest.approx(0.9, abs=0.02)


def test_a_bound_belongs_to_the_later_split():
    limits = Bounds(1.0, 2.0)
    assert [limits.split(t) for t in (0.9, 1.0, 1.9, 2.0)] == [
        "train",
        "validation",
        "validation",
        "test",
    ]


def hash_splits(number, seed, *fractions):
    limits = hash_bounds(*fractions)
    return [limits.split(hash_fraction(str(name), seed)) for name in range(number)]


def test_hash_split_has_the_wanted_shares_and_repeats():
    splits = hash_splits(5000, 7, 0.2, 0.1)
    assert splits == hash_splits(5000, 7, 0.2, 0.1)
    assert splits.count("validation") == pytest.approx(1000, abs=100)
    assert splits.count("test") == pytest.approx(500, abs=75)


def test_without_a_test_share_nothing_goes_to_the_test():
    assert set(hash_splits(500, 0, 0.0, 0.0)) == {"train"}


def test_hashes_differ_by_seed_and_purpose_and_never_by_machine():
    # Fixed by the definition: the first 8 bytes of BLAKE2b of "split:0:a".
    assert list_hash("a", 0, "split") == list_hash("a", 0, "split")
    assert len({list_hash("a", s, p) for s in (0, 1) for p in ("split", "order")}) == 4
