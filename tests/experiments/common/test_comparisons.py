"""Comparisons of kinds of models: families corrected together, and their tables."""

import re

import numpy as np
import pytest

from experiments.common.comparisons import (
    HEADINGS,
    by_metric,
    difference_chart,
    difference_table,
    holm,
    model_comparison_table,
    model_comparisons,
)
from tests.evaluation.lists import result
from tfr_moe.errors import UserError
from tfr_moe.evaluation import compare


def test_holm_by_hand():
    # 3 * 0.01, then max(0.03, 2 * 0.02), then max(0.04, 0.03): the order of falling p stays.
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.7]) == [1, 1]
    np.testing.assert_array_equal(np.isnan(holm([np.nan, 0.5])), [True, False])


def test_a_familys_p_values_are_corrected_together_and_metrics_apart():
    rng = np.random.default_rng(5)
    results = {
        name: [result(rng.random(60) + shift, rng.random(60)) for _ in range(3)]
        for name, shift in {"a": 0.0, "b": 0.1, "c": 0.2}.items()
    }
    actual = model_comparisons(results, [("b", "a"), ("c", "a")], ["mrr", "ndcg"])
    assert [(c.metric, c.model) for c in actual] == [
        ("mrr", "b"),
        ("mrr", "c"),
        ("ndcg", "b"),
        ("ndcg", "c"),
    ]
    assert actual[0].comparison == compare(results["b"], results["a"], "mrr")
    for family in by_metric(actual).values():
        assert [c.holm for c in family] == holm([c.comparison.p_value for c in family])


def test_bad_input_is_rejected():
    runs = [result([0.1, 0.2])]
    with pytest.raises(UserError, match="'moe' has no run to compare; models: dnn"):
        model_comparisons({"dnn": runs}, [("moe", "dnn")], ["mrr"])
    nothing = [result([np.nan, np.nan])]
    with pytest.raises(UserError, match="is defined on no list"):
        model_comparisons({"a": nothing, "b": nothing}, [("a", "b")], ["mrr"])
    assert model_comparisons({"a": runs}, [], ["mrr"]) == []


def test_tables_have_a_cell_for_each_heading():
    base = np.linspace(0.2, 0.8, 30)
    actual = model_comparisons(
        {"a": [result(base)] * 2, "b": [result(base + 0.1)] * 3}, [("b", "a")], ["mrr"]
    )
    table = model_comparison_table(actual)
    assert table.title == "mrr: 30 of 30 lists evaluated"
    assert [column.header for column in table.columns] == list(HEADINGS)
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells == ["b", "a", "+0.1000 [+0.1000, +0.1000]", "0e+00", "3, 2"]


def test_the_table_of_many_models_has_a_column_for_each_reference_and_stars_what_holds():
    """b is 0.1 above a on each list, c is b: two differences hold, that of b and c is nothing."""
    base = np.linspace(0.2, 0.8, 40)
    runs = {"a": [result(base)] * 2, "b": [result(base + 0.1)] * 2, "c": [result(base + 0.1)] * 2}
    table = difference_table(model_comparisons(runs, [("b", "a"), ("c", "a"), ("c", "b")], ["mrr"]))
    assert [column.header for column in table.columns] == ["model", "minus a", "minus b"]
    model, minus_a, minus_b = (list(column.cells) for column in table.columns)
    assert model == ["b", "c"]
    assert minus_a == ["+0.1000 [+0.1000, +0.1000] *"] * 2
    assert minus_b == ["", "+0.0000 [+0.0000, +0.0000]"]


def test_the_chart_draws_each_difference_where_its_number_is():
    values = {"a": [0.5, 0.7], "b": [0.6, 0.8], "c": [0.3, 0.5]}  # +10 and -20 points from a
    results = {name: [result(np.array(mrr), np.array(mrr))] for name, mrr in values.items()}
    actual = model_comparisons(results, [("b", "a"), ("c", "a")], ["mrr"])
    drawn = difference_chart(actual, "two models")
    assert [name for _, name in drawn.y_ticks] == ["c", "b"]
    assert drawn.finding.startswith("b is highest, +0.1000")
    tick = {float(text): at for at, text in drawn.x_ticks}
    per_point = (tick[10] - tick[0]) / 10
    c, b = re.findall(r"M([\d.]+) ([\d.]+)m", drawn.series[-1].marks)
    assert float(b[0]) == pytest.approx(tick[10], abs=0.1)
    assert float(c[0]) == pytest.approx(tick[0] - 20 * per_point, abs=0.1)
    assert float(b[1]) < float(c[1])  # the first row is above
