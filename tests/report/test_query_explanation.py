"""Leads taken apart: parts add up, and a change that would swap two items does swap them."""

import json
import re

import lightgbm
import numpy as np
import pytest
from rich.console import Console

from tests.browser import DARK, LIGHT, chromium, measured, violations
from tests.conformance.registry.settings import TABLES
from tests.report.conftest import REQUEST
from tests.tiny import SCHEMA, SMALL, TASKS, small_config
from tfr_moe import Ranker
from tfr_moe._compat import tf
from tfr_moe.baselines import open_run, train_baseline
from tfr_moe.cli import main
from tfr_moe.errors import UserError
from tfr_moe.layers.outputs import single_score
from tfr_moe.report.query_explanation import explain_query, explain_request, value_text
from tfr_moe.scorers import create
from tfr_moe.training import LoadedRun

__all__ = ["chromium"]  # a fixture

CONTEXT, ITEMS = REQUEST["context"], REQUEST["items"]


def untrained(model, path, schema=SCHEMA, **settings):
    """A run of a model with random weights."""
    config = small_config({**SMALL, "seed": 3}, model=model, **settings)
    tasks = {task.name: None for task in config.tasks_over(schema)}
    settings = {**config.flat(), "tasks": tasks or None}
    built = create(model, schema, TABLES, settings).build_model()
    for weight in built.trainable_weights:  # of a size that makes scores differ
        weight.assign(
            2 * tf.random.stateless_normal(weight.shape, [1, 2]) / weight.shape[-1] ** 0.5
        )
    return LoadedRun(path, config, schema, {}, single_score(built))


def check_sums(result):
    """Parts add up to scores and leads."""
    assert [item.rank for item in result.items] == [1, 2, 3]
    for item in result.items:
        assert sum(item.terms.values()) == pytest.approx(item.score, abs=1e-5)
    for lead, ahead, behind in zip(result.leads, result.items, result.items[1:], strict=False):
        assert lead.lead == pytest.approx(ahead.score - behind.score, abs=1e-6)
        assert sum(lead.terms.values()) == pytest.approx(lead.lead, abs=1e-5)
        shares = sum(feature.share for feature in lead.features)
        assert shares + lead.position == pytest.approx(lead.lead, abs=1e-5)
        for feature in lead.features:
            assert sum(feature.by_term.values()) == pytest.approx(feature.share, abs=1e-5)
        for name, value in lead.terms.items():
            if result.pointwise:
                of_features = sum(feature.by_term.get(name, 0.0) for feature in lead.features)
                assert of_features == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("run", ["moe", "residual"])
def test_experts_and_features_add_up_to_scores_and_leads(root, run):
    actual = explain_request(root / run, root / "request.json")
    assert (actual.sum_of, actual.pointwise) == ("experts", True)
    check_sums(actual)
    selected = {f"expert {i}" for i in actual.gates[""]}
    shared = {"shared expert"} if run == "residual" else set()
    assert set(actual.items[0].terms) == selected | shared
    assert sum(actual.gates[""].values()) == pytest.approx(1, abs=1e-6)


def test_a_change_that_would_put_an_item_ahead_does_so(root):
    ranker = Ranker.load(root / "residual")
    items = [{**item, "price": 10.0 * i} for i, item in enumerate(ITEMS, start=1)]
    actual = ranker.explain(CONTEXT, items)
    assert [item.index for item in actual.items] == [e.index for e in ranker.rank(CONTEXT, items)]
    tried = 0
    for lead, ahead, behind in zip(actual.leads, actual.items, actual.items[1:], strict=False):
        possible = lead.swaps
        for name in ITEMS[0]:
            value = possible.get(name, ahead.item[name])
            changed = [dict(item) for item in items]
            changed[behind.index][name] = value
            order = [entry.index for entry in ranker.rank(CONTEXT, changed)]
            is_ahead = order.index(behind.index) < order.index(ahead.index)
            assert is_ahead == (name in possible), (lead.rank, name)
            tried += 1
    assert tried == 6


def test_several_tasks_are_the_terms_of_the_combined_score(tmp_path):
    actual = explain_query(untrained("mmoe", tmp_path, TASKS), CONTEXT, ITEMS)
    assert actual.sum_of == "tasks"
    check_sums(actual)
    first = actual.items[0]
    assert first.terms["click"] == pytest.approx(1 / (1 + np.exp(-first.tasks["click"])), rel=1e-5)


def test_where_scores_depend_on_the_list_the_rest_is_due_to_the_place(tmp_path):
    loaded = untrained("context_aware", tmp_path, positional_encoding="fixed")
    actual = explain_query(loaded, CONTEXT, ITEMS)
    assert not actual.pointwise
    check_sums_of_shares = [
        sum(f.share for f in x.features) + x.position - x.lead for x in actual.leads
    ]
    assert check_sums_of_shares == pytest.approx([0, 0], abs=1e-5)
    # By hand: the features of the second item in the place of the first.
    ahead, behind = actual.items[:2]
    items = [dict(item) for item in ITEMS]
    items[ahead.index] = items[behind.index]
    scores = {item.index: item.score for item in explain_query(loaded, CONTEXT, items).items}
    assert actual.leads[0].position == pytest.approx(scores[ahead.index] - behind.score, abs=1e-5)


def test_shares_of_trees_of_one_split_are_those_of_lightgbm(root, tmp_path):
    parameters = {"num_leaves": 2, "num_iterations": 20, "min_data_in_leaf": 5}
    config = small_config({}, model="lambdamart", library_parameters=parameters)
    train_baseline(root / "data", tmp_path / "run", config, Console(quiet=True))
    actual = explain_request(tmp_path / "run", root / "request.json")
    loaded = open_run(tmp_path / "run")
    features = {
        "example_numeric": tf.constant([[[i["price"], i["sales"]] for i in ITEMS]]),
        "brand": tf.constant([[[i["brand"]] for i in ITEMS]]),
        "context_numeric": tf.constant([[30.0]]),
        "clicked": tf.constant([["item1", "", ""]]),
        **{name: tf.constant([[CONTEXT[name]]]) for name in ("top", "sub")},
    }
    rows = loaded.encoder(features, tf.constant([[True] * 3])).numpy()
    booster = lightgbm.Booster(model_file=str(tmp_path / "run" / "model.txt"))
    names = [column.name for column in loaded.encoder.columns]
    by_item = booster.predict(rows, pred_contrib=True)
    assert any(lead.features[0].share for lead in actual.leads)
    for lead, ahead, behind in zip(actual.leads, actual.items, actual.items[1:], strict=False):
        expected = by_item[ahead.index] - by_item[behind.index]
        for feature in lead.features:
            share = expected[names.index(feature.feature)]
            assert feature.share == pytest.approx(share, abs=1e-6)


def test_equal_items_keep_their_order_and_one_item_has_no_lead(root):
    ranker = Ranker.load(root / "dnn")
    twins = ranker.explain(CONTEXT, [ITEMS[0], ITEMS[0]])
    assert (twins.sum_of, twins.leads[0].features, twins.leads[0].swaps) == ("", [], {})
    assert "No feature differs" in str(twins)
    # With the one value in which they differ, an item is no more than equal.
    pair = ranker.explain(CONTEXT, [ITEMS[0], {**ITEMS[0], "brand": "brand2"}])
    assert ([f.feature for f in pair.leads[0].features], pair.leads[0].swaps) == (["brand"], {})
    alone = ranker.explain(CONTEXT, ITEMS[:1])
    assert (len(alone.items), alone.leads) == (1, [])
    with pytest.raises(UserError, match="items: must not be empty"):
        ranker.explain(CONTEXT, [])


def test_the_command_prints_80_columns_or_json_and_writes_a_page(root, tmp_path, capsys):
    items = [{**item, "brand": f"<i>{i}"} for i, item in enumerate(ITEMS)]
    request, page = tmp_path / "request.json", tmp_path / "query.html"
    request.write_text(json.dumps({"context": CONTEXT, "items": items}))
    arguments = ["explain", "--run", str(root / "moe"), "--request", str(request)]
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--json", "--out", str(page)])
    assert caught.value.code == 0
    actual = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(arguments)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = actual["leads"][0]
    printed = float(re.search(r" over item .*: ([+-][0-9.]+)", text)[1])
    assert printed == pytest.approx(first["lead"], abs=1e-3)
    strongest = first["features"][0]
    printed = float(re.search(rf"([+-][0-9.]+)  {strongest['feature']}: ", text)[1])
    assert printed == pytest.approx(strongest["share"], abs=1e-3)
    html = page.read_text(encoding="utf-8")
    assert "&lt;i&gt;0" in html and "<i>" not in html
    assert len(html) < 100_000


def test_a_request_without_items_is_rejected(root, tmp_path):
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps({**REQUEST, "items": []}))
    with pytest.raises(UserError, match=r"empty.json: items: must not be empty"):
        explain_request(root / "moe", empty)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [LIGHT, DARK])
def test_the_page_is_readable_on_a_phone(root, chromium, tmp_path, mode):
    page = tmp_path / "query.html"
    explain_request(root / "moe", root / "request.json").save(page)
    actual = measured(chromium, page, tmp_path, 390, mode)  # also: no error on the console
    assert actual["page"] <= 390
    assert violations(chromium, page, tmp_path, mode) == []


def test_values_are_written_in_few_characters():
    long = "abcdefghijklmnopqrstuvwxyz0123"
    values = (1234567.0, 0.123456, ["a", "b"], [], None, float("nan"), "", long)
    expected = ("1,234,567", "0.1235", "a, b", "none", "missing", "missing", "missing")
    assert tuple(map(value_text, values)) == (*expected, "abcdefghijklm…qrstuvwxyz0123")
