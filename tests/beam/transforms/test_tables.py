import itertools

from tfr_moe.beam.transforms.joins import merge_rows


def test_rows_of_a_key_are_merged_in_the_order_of_the_files():
    rows = [((0, 5, 0), ("x", None)), ((0, 2, 0), (None, "early")), ((1, 1, 0), ("y", "late"))]
    for order in itertools.permutations(rows):
        assert merge_rows(order) == (("x", "early"), 3, True)


def test_a_value_that_is_missing_does_not_contradict():
    rows = [((0, 1, 0), (None,)), ((0, 2, 0), ("x",)), ((0, 3, 0), ("x",))]
    for order in itertools.permutations(rows):
        assert merge_rows(order) == (("x",), 3, False)
