"""Categories of a data set."""

from experiments.common.categories import categories_of
from tests.tiny import lists, write_data_folder
from tfr_moe.data import DataFolder


def test_categories_stand_in_the_order_of_the_lists(tmp_path):
    # Shards hold the even and the odd lists.
    written = [context for _, context, _ in lists(12, 3)]
    written = written[::2] + written[1::2]
    actual = categories_of(DataFolder(write_data_folder(tmp_path / "data", 50, 10, 12)), "test")
    assert actual.top.tolist() == [context["top"] for context in written]
    assert actual.sub.tolist() == [f"{c['top']} > {c['sub']}" for c in written]
