import itertools
import random

import pytest

from tfr_moe.beam.transforms.grouping import GatherList
from tfr_moe.beam.transforms.parsing import Item


def item(position, line, time=None, context=("c",)):
    return Item(float(position), (0, line, 0), time, context, (f"item {line}",))


def gather(cap, parts):
    combine = GatherList(cap)
    gathered = []
    for part in parts:
        accumulator = combine.create_accumulator()
        for one in part:
            accumulator = combine.add_item(accumulator, one)
        gathered.append(combine.compact(accumulator))
    return combine.extract_output(combine.merge_accumulators(gathered))


def test_items_are_ordered_by_position_then_by_place():
    made = gather(9, [[item(2, 1), item(1, 5)], [item(1, 3)]])
    assert [place[1] for _, place, _ in made.items] == [3, 5, 1]


def test_the_cap_keeps_the_smallest_positions_in_any_order_of_arrival():
    items = [item(position, line) for line, position in enumerate([5, 3, 8, 1, 9, 2, 7])]
    results = set()
    for seed in range(20):
        random.Random(seed).shuffle(items)
        cut = seed % len(items)
        made = gather(3, [items[:cut], items[cut:]])
        results.add((tuple(p for p, _, _ in made.items), made.cut))
    assert results == {((1.0, 2.0, 3.0), 4)}


def test_an_accumulator_never_holds_more_than_twice_the_cap():
    combine = GatherList(10)
    accumulator = combine.create_accumulator()
    for line in range(1000):
        accumulator = combine.add_item(accumulator, item(1000 - line, line))
        assert len(accumulator.items) < 20
    made = combine.extract_output(accumulator)
    assert (len(made.items), made.cut) == (10, 990)


def test_the_first_context_and_the_earliest_time_win_in_any_order():
    items = [item(1, 3, 7.0, ("b",)), item(2, 1, 9.0, ("a",)), item(3, 2, 5.0, ("b",))]
    for order in itertools.permutations(items):
        for cut in range(4):
            made = gather(9, [order[:cut], order[cut:]])
            assert made.first == ((0, 1, 0), ("a",))
            assert (made.time, made.conflict) == (5.0, True)


@pytest.mark.parametrize("parts", [[[item(1, 1), item(2, 2)]], [[item(1, 1)], [item(2, 2)]]])
def test_equal_contexts_are_no_conflict(parts):
    assert not gather(9, parts).conflict
