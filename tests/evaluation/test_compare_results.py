import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from tests.evaluation.lists import one_list, random_batch
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import compare_results, to_json
from tfr_moe.evaluation.results import evaluate_lists, summarize
from tfr_moe.evaluation.significance import compare
from tfr_moe.evaluation.tables import category_table, comparison_table, overall_table, render


@pytest.fixture(scope="module")
def results():
    batch = random_batch(np.random.default_rng(1), lists=120)
    better = dataclasses.replace(batch, scores=batch.scores + 0.4 * batch.labels)
    return {"dnn": evaluate_lists([batch]), "moe [K=4]": evaluate_lists([better])}


def printed(table, width=160) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_report_holds_what_the_parts_compute(results):
    actual = compare_results(results, baseline="dnn")
    assert actual.lists == 120
    assert actual.models["dnn"] == summarize(results["dnn"])
    assert list(actual.comparisons) == ["moe [K=4]"]
    expected = compare(results["moe [K=4]"], results["dnn"], "ndcg")
    assert actual.comparisons["moe [K=4]"]["ndcg"] == expected
    assert actual.comparisons["moe [K=4]"]["ndcg"].difference > 0
    assert actual.category_metric == "session_auc"
    assert len(actual.categories) == 3


def test_json_is_the_report_in_full_precision(results):
    actual = compare_results(results, baseline="dnn", policy="zero")
    data = json.loads(json.dumps(to_json(actual), allow_nan=False))
    assert data["policy"] == "zero"
    assert data["baseline"] == "dnn"
    assert data["confidence"] == 0.95
    assert data["models"]["dnn"]["mrr"]["mean"] == actual.models["dnn"]["mrr"].mean
    assert data["comparisons"]["moe [K=4]"]["ndcg"]["p_value"] > 0
    assert [row["lists"] for row in data["categories"]] == [r.lists for r in actual.categories]


def test_json_has_null_for_what_is_undefined():
    result = evaluate_lists([one_list([2, 1], [0, 0])], ["mrr"])
    data = json.loads(json.dumps(to_json(compare_results({"dnn": result})), allow_nan=False))
    assert data["models"]["dnn"]["mrr"]["mean"] is None
    assert data["models"]["dnn"]["mrr"]["nothing_relevant"] == 1


def test_overall_table_has_four_decimals_and_the_policy(results):
    actual = compare_results(results, policy="zero")
    text = printed(overall_table(actual))
    summary = actual.models["moe [K=4]"]["ndcg_10"]
    row = next(r for r in text.splitlines() if "ndcg_10" in r and "moe [K=4]" in r)
    numbers = row.split("moe [K=4]")[1].split()
    assert numbers == [
        f"{summary.mean:.4f}",
        f"{summary.low:.4f}",
        "to",
        f"{summary.high:.4f}",
        str(summary.evaluated),
        str(summary.skipped),
    ]
    assert f"{summary.nothing_relevant} lists without a relevant item count 0" in text


def test_comparison_table_signs_differences_and_bounds_small_p(results):
    actual = compare_results(results, baseline="dnn")
    text = printed(comparison_table(actual))
    comparison = actual.comparisons["moe [K=4]"]["session_auc"]
    row = next(r for r in text.splitlines() if "session_auc " in r)
    assert f"{comparison.difference:+.4f}" in row
    assert f"{comparison.low:+.4f} to {comparison.high:+.4f}" in row
    assert comparison.p_value < 0.0001 and "< 0.0001" in row
    assert "Seed variance is not included" in " ".join(text.split())


def test_category_table_shows_the_largest_and_counts_the_rest(results):
    actual = compare_results(results, baseline="dnn", category_metric="mrr")
    first = actual.categories[0]
    cell = f"{first.means['moe [K=4]']:.4f} ({first.differences['moe [K=4]']:+.4f})"
    assert cell in printed(category_table(actual))
    assert "hidden" not in printed(category_table(actual))
    named = [dataclasses.replace(first, category=f"category {i}") for i in range(21)]
    text = printed(category_table(dataclasses.replace(actual, categories=named)))
    assert "category 19" in text and "category 20" not in text
    assert "1 smaller categories are hidden" in text


def test_render_prints_only_what_there_is(results):
    bare = dataclasses.replace(results["dnn"], categories=None)
    console = Console(width=160, record=True, file=io.StringIO())
    render(compare_results({"dnn": bare}), console)
    text = console.export_text()
    assert "Means over 120 lists" in text
    assert "Difference" not in text and "by category" not in text


def test_undefined_numbers_are_dashes():
    result = evaluate_lists([one_list([2, 1], [0, 0])], ["mrr"])
    text = printed(overall_table(compare_results({"dnn": result})))
    assert "nan" not in text
    assert next(r for r in text.splitlines() if "mrr" in r).count(" – ") == 2


@pytest.mark.parametrize("policy", ["skip", "zero", "one"])
@pytest.mark.parametrize("labels", [[0, 0], [0]])
def test_a_metric_that_is_defined_on_no_list_is_a_dash(labels, policy):
    result = evaluate_lists([one_list([2.0] * len(labels), labels)], ["session_auc", "mrr"])
    console = Console(width=80, record=True, file=io.StringIO())
    render(compare_results({"dnn": result}, policy=policy), console)
    lines = console.export_text().splitlines()
    assert next(row for row in lines if "session_auc" in row).split()[2:4] == ["–", "–"]


def test_identifiers_stay_whole_in_80_columns_and_other_columns_are_hidden(results):
    category = "Sports & Outdoors > Trekking equipment for very long journeys"
    model = "runs/2026-11-01/adv_hsc_moe"
    renamed = dataclasses.replace(
        results["dnn"],
        categories=np.array([category] * len(results["dnn"]), dtype=object),
    )
    actual = compare_results({"dnn": renamed, model: results["moe [K=4]"]}, baseline="dnn")
    rows = printed(category_table(actual, width=80), width=80)
    assert any(row.startswith(category) for row in rows.splitlines())
    assert f"hidden columns: {model}, lists, positives (use --json)" in " ".join(rows.split())
    text = printed(overall_table(actual, width=80), width=80)
    row = next(r for r in text.splitlines() if "precision_5" in r and "dnn" not in r)
    assert row.split()[:2] == ["precision_5", model]
    assert max(map(len, (rows + text).splitlines())) <= 80


def test_bad_requests_are_refused(results):
    with pytest.raises(UserError, match=r"baseline 'moe' is unknown; evaluated: dnn, moe \[K"):
        compare_results(results, baseline="moe")
    with pytest.raises(UserError, match="metric 'map' was not computed"):
        compare_results(results, category_metric="map")
    other = evaluate_lists([random_batch(np.random.default_rng(2), lists=120)], ["mrr"])
    with pytest.raises(UserError, match="model 'x' was evaluated by mrr, others by session_auc"):
        compare_results({**results, "x": other})
