import itertools
import random

import pytest

from tfr_moe.beam.transforms.make_lists import CombineList, PartialList
from tfr_moe.elwc.encoder import EncodedRow


def item(position, line, time=None, context=("c",)):
    row = EncodedRow("q", time, float(position), (b"", context), (b"item %d" % line, ()))
    return (0, line, 0), row


def built(cap, items):
    combine, part = CombineList(cap), PartialList()
    for key, row in items:
        combine.add_row(part, key, row)
    return part


def combined(cap, parts):
    combine = CombineList(cap)
    return combine.extract_output(combine.merge_accumulators([built(cap, p) for p in parts]))


def test_items_are_ordered_by_position_then_by_row():
    made = combined(9, [[item(2, 1), item(1, 5)], [item(1, 3)]])
    assert [order[1] for _, order, _ in made.items] == [3, 5, 1]


def test_the_cap_keeps_the_smallest_positions_in_any_order_of_arrival():
    items = [item(position, line) for line, position in enumerate([5, 3, 8, 1, 9, 2, 7])]
    results = set()
    for seed in range(20):
        random.Random(seed).shuffle(items)
        cut = seed % len(items)
        made = combined(3, [items[:cut], items[cut:]])
        results.add((tuple(p for p, _, _ in made.items), made.cut))
    assert results == {((1.0, 2.0, 3.0), 4)}


def test_a_part_never_holds_more_than_twice_the_cap():
    combine = CombineList(10)
    part, accumulator = PartialList(), combine.create_accumulator()
    for line in range(1000):
        combine.add_row(part, *item(1000 - line, line))
        accumulator = combine.add_input(accumulator, built(10, [item(1000 - line, line)]))
        assert len(part.items) < 20
        assert len(accumulator.items) < 20
    for whole in (part, accumulator):
        made = combine.extract_output(whole)
        assert [position for position, _, _ in made.items] == list(range(1, 11))
        assert made.cut == 990


def test_the_first_context_and_the_earliest_time_win_in_any_order():
    items = [item(1, 3, 7.0, ("b",)), item(2, 1, 9.0, ("a",)), item(3, 2, 5.0, ("b",))]
    for order in itertools.permutations(items):
        for cut in range(4):
            made = combined(9, [order[:cut], order[cut:]])
            assert made.first == ((0, 1, 0), (b"", ("a",)))
            assert (made.time, made.conflict) == (5.0, ((b"", ("a",)), (b"", ("b",))))


@pytest.mark.parametrize("parts", [[[item(1, 1), item(2, 2)]], [[item(1, 1)], [item(2, 2)]]])
def test_equal_contexts_are_no_conflict(parts):
    assert not combined(9, parts).conflict
