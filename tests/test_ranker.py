"""Ranker: the same numbers as the command line, one way to use all models."""

import copy
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rich.console import Console
from sklearn.base import clone

from tests.tiny import SCHEMA, SMALL, lists, shop_log, small_config
from tfr_moe import Ranker, UserError
from tfr_moe._compat import tf
from tfr_moe.beam import BuildOptions, build
from tfr_moe.cli.prediction import predict as run_predict
from tfr_moe.config import MODELS, make_config
from tfr_moe.data import DataFolder
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.training import load_run, train

TIMED = SCHEMA.model_copy(update={"time": "time"})
SETTINGS = {
    "model": "moe",
    "expert_hidden_dims": (8,),
    "embedding_dim": 4,
    "num_experts": 3,
    "top_k": 2,
    "learning_rate": 0.01,
    "batch_size": 16,
    "num_epochs": 2,
}
CONTEXT = {"top": "a", "sub": "x", "age": 30.0, "clicked": ["item1"]}
ITEMS = [{"brand": "brand1", "price": p, "sales": 0.1 * p} for p in (30.0, 1.0, 8.0)]


def log(count, seed):
    """Rows of a log as a data frame, with labels of two tasks."""
    rows = []
    for number, (list_id, context, items) in enumerate(lists(count, seed)):
        shared = {
            "query_id": list_id,
            "time": 1_700_000_000 + 60 * number,
            **{name: "|".join(v) if isinstance(v, list) else v for name, v in context.items()},
        }
        rows += [{**shared, **item} for item in items]
    return pd.DataFrame(rows)


class Counted(tf.keras.callbacks.Callback):
    """Counts epochs."""

    epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


@pytest.fixture(scope="module")
def frame():
    return log(70, seed=1)


@pytest.fixture(scope="module")
def counted():
    return Counted()


@pytest.fixture(scope="module")
def ranker(frame, counted):
    """A mixture, trained on the rows in another order."""
    rows = frame.sample(frac=1, random_state=0)
    return Ranker(**SETTINGS).fit(rows, schema=TIMED, callbacks=[counted], verbose=0)


@pytest.fixture(scope="module")
def command(frame, tmp_path_factory):
    """The folder of `build` and `train`, with the same rows and settings."""
    out = tmp_path_factory.mktemp("command")
    frame.to_csv(out / "log.csv", index=False)
    TIMED.save(out / "schema.json")
    options = BuildOptions(
        "search-logs", str(out / "log.csv"), out / "schema.json", out / "data", test_fraction=0.0
    )
    build(options)
    # Both shuffle whole splits from memory.
    train(
        out / "data", out / "run", make_config({**SETTINGS, "cache": "memory"}), Console(quiet=True)
    )
    return out


def test_vocabularies_and_statistics_are_those_of_build(command, ranker):
    built, fitted = DataFolder(command / "data"), DataFolder(ranker.run.path)
    assert fitted.statistics == built.statistics
    assert fitted.schema == built.schema
    for name, path in built.tables().vocabularies.items():
        with open(path) as one, open(fitted.tables().vocabularies[name]) as other:
            assert one.read() == other.read(), name


def test_training_is_that_of_the_command(command, ranker):
    run = load_run(command / "run")
    for one, other in zip(run.model.weights, ranker.run.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.name)
    same = {k: v for k, v in run.metrics.items() if k not in ("seconds", "data")}
    assert {k: v for k, v in ranker.run.metrics.items() if k in same} == same


def test_scores_are_those_of_the_command(command, ranker, frame):
    rows = frame.assign(item=[f"item{i}" for i in range(len(frame))])
    rows.to_csv(command / "candidates.csv", index=False)
    log, out = str(command / "candidates.csv"), command / "scores.csv"
    run_predict(command / "run", None, log, out, item_id="item")
    expected = pd.read_csv(command / "scores.csv").set_index("item_id").score
    actual = pd.Series(ranker.predict(rows), rows["item"])
    # Batches of other lengths multiply matrices of other shapes: float32 rounds differently.
    np.testing.assert_allclose(actual[expected.index], expected, rtol=1e-5, atol=1e-6)


def test_metrics_are_those_of_the_command(command, ranker):
    data = DataFolder(command / "data")
    result = evaluate_run(data, command / "run", "validation", ("ndcg", "mrr"))
    expected = {name: summary.mean for name, summary in summarize(result, "skip").items()}
    actual = ranker.evaluate(str(command / "data"), ("ndcg", "mrr"), split="validation")
    assert actual == expected


def test_evaluation_of_a_frame_is_that_of_its_lists(command, ranker, frame):
    latest = frame[frame.time >= 1_700_000_000 + 60 * 63]
    actual = ranker.evaluate(latest, ["ndcg"])
    expected = ranker.evaluate(command / "data", ["ndcg"], split="validation")
    assert actual == pytest.approx(expected, rel=1e-6)
    assert ranker.evaluate(latest, "ndcg") == actual


def test_scores_follow_the_rows_whatever_their_order(ranker, frame):
    scores = ranker.predict(frame.drop(columns=["purchase", "position", "time"]))
    assert scores.dtype == np.float32 and len(scores) == len(frame)
    order = np.random.default_rng(0).permutation(len(frame))
    shuffled = ranker.predict(pa.Table.from_pandas(frame.iloc[order]), batch_size=7)
    np.testing.assert_allclose(shuffled, scores[order], rtol=1e-5, atol=1e-6)


def test_rank_sorts_by_the_scores_of_predict(ranker):
    rows = pd.DataFrame([{**CONTEXT, **item, "query_id": "q"} for item in ITEMS])
    scores = ranker.predict(rows)
    ranking = ranker.rank(CONTEXT, ITEMS)
    assert [item.index for item in ranking] == np.argsort(-scores).tolist()
    np.testing.assert_allclose(sorted(scores)[::-1], [item.score for item in ranking], rtol=1e-5)
    assert ranking[0].item is ITEMS[ranking[0].index]
    assert ranker.rank(CONTEXT, []) == []


def test_explain_has_the_scores_of_rank_and_two_experts(ranker):
    explanation = ranker.explain(CONTEXT, ITEMS)
    ranking = ranker.rank(CONTEXT, ITEMS)
    assert [item.index for item in explanation.items] == [item.index for item in ranking]
    assert len(explanation.gates[""]) == 2


def test_a_folder_is_trained_on_like_the_frame_that_it_was_built_from(command, frame):
    of_folder = Ranker("svm_rank").fit(command / "data", verbose=0)
    of_frame = Ranker("svm_rank").fit(frame, schema=TIMED, verbose=0)
    np.testing.assert_array_equal(of_folder.predict(frame), of_frame.predict(frame))


def test_history_and_callbacks_are_those_of_keras(ranker, counted):
    history = ranker.history
    assert isinstance(history, tf.keras.callbacks.History)
    assert history.epoch == [0, 1]
    assert counted.epochs == 2
    best = ranker.run.metrics["best_epoch"] - 1
    assert history.history["val_ndcg"][best] == ranker.run.metrics["best"]["val_ndcg"]


def test_save_and_load(ranker, frame, tmp_path):
    expected = ranker.predict(frame)
    ranker.save(tmp_path / "run")
    again = Ranker.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(frame), expected)
    assert again.config == ranker.config
    assert again.history.history == ranker.history.history
    # The run names itself as its data: it has a sample of the validation lists.
    assert again.run.metrics["data"] == str(tmp_path / "run")
    with pytest.raises(UserError, match="exists already"):
        ranker.save(tmp_path / "run")


def test_a_warm_start_continues_from_the_fitted_model(ranker, frame, tmp_path):
    ranker.save(tmp_path / "run")
    next_day = Ranker.load(tmp_path / "run")
    next_day.set_params(warm_start=True, num_epochs=1, learning_rate=1e-9)
    # Fewer lists: vocabularies in another order, other statistics; the schema is kept.
    rows = frame[frame["query_id"].isin(frame["query_id"].unique()[:40])]
    expected = next_day.predict(rows)
    np.testing.assert_allclose(next_day.fit(rows, verbose=0).predict(rows), expected, atol=1e-5)
    assert next_day.run.metrics["best_epoch"] == 1


@pytest.mark.slow
def test_export_is_verified_on_lists_of_the_frame(ranker, tmp_path, capfd):
    version = ranker.export(tmp_path / "models" / "shop")
    assert version == tmp_path / "models" / "shop" / "1"
    assert "no real lists" not in capfd.readouterr().err
    served = tf.saved_model.load(str(version)).signatures["rank"]
    from tfr_moe.serving.client.request import RequestEncoder

    record = RequestEncoder(ranker.schema).encode(CONTEXT, ITEMS)
    answer = served(inputs=tf.constant([record]))
    ranking = ranker.rank(CONTEXT, ITEMS)
    assert answer["order"].numpy()[0].tolist() == [item.index for item in ranking]


def test_parameters_are_those_of_scikit_learn():
    ranker = Ranker("moe", top_k=2, expert_hidden_dims=(8, 4))
    assert ranker.get_params() == {
        "model": "moe", "top_k": 2, "expert_hidden_dims": (8, 4), "warm_start": False
    }  # fmt: skip
    copy = clone(ranker)
    assert copy is not ranker and copy.get_params() == ranker.get_params()
    assert copy.set_params(top_k=3).config.gate.top_k == 3
    assert ranker.config.gate.top_k == 2
    assert repr(ranker) == "Ranker('moe', top_k=2, expert_hidden_dims=(8, 4))"


def test_presets_and_lists_without_schema(frame):
    assert Ranker("moe", preset="paper").config.gate.num_experts == 10
    # Without a schema it is inferred.
    roles = {"list_id": "query_id", "label": "purchase", "time": "time", "position": "position"}
    ranker = Ranker("svm_rank").fit(frame, **roles, ignore=["click"], verbose=0)
    assert ranker.schema.hierarchy is None
    assert ranker.schema.feature("clicked").kind == "categorical_list"
    assert ranker.schema.feature("age").scope == "context"
    assert ranker.history.epoch and list(ranker.history.history)
    assert ranker.evaluate(frame, ["session_auc"])["session_auc"] > 0.5
    assert ranker.rank(CONTEXT, ITEMS)[0].score >= ranker.rank(CONTEXT, ITEMS)[1].score


ROLES = {"list_id": "query_id", "label": "purchase"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: Ranker("moa"), "Ranker: model 'moa' is unknown; did you mean 'moe'"),
        (lambda f: Ranker("dnn", top_k=3), "Ranker: top_k is not used by model 'dnn'"),
        (lambda f: Ranker("dnn").predict(f), "the ranker is not fitted; call fit"),
        (lambda f: Ranker("dnn").fit(f, list_id="query_id"), "label: is required without a schema"),
        (
            lambda f: Ranker("dnn").fit(f, schema=TIMED, label="purchase"),
            "label: is part of the schema. Received: schema and label",
        ),
        (
            lambda f: Ranker("dnn").fit("data", label="purchase"),
            "label: is part of the data-set folder. Received: label",
        ),
        (lambda f: Ranker("dnn").fit("nowhere"), "data nowhere: no such folder"),
        (
            lambda f: Ranker("dnn").fit(__file__, **ROLES),
            f"data {__file__}: is a file; read it into a data frame, or build a data set from it",
        ),
        (lambda f: Ranker("dnn").fit([1, 2], **ROLES), "a data frame must be of pandas, polars"),
        (
            lambda f: Ranker("xgboost").fit(f, **ROLES, callbacks=[1]),
            "callbacks: model 'xgboost' is not trained by Keras",
        ),
        (lambda f: Ranker.load("nowhere"), "run nowhere: no such run"),
        (
            lambda f: Ranker("dnn").fit(f, list_id="query_id", label=["purchase", "purchase"]),
            "schema: column 'purchase' is used twice",
        ),
        (lambda f: Ranker("dnn").fit(f, schema={"list_id": "q"}), "schema: labels: Field required"),
    ],
)
def test_user_errors_are_one_line(frame, call, message):
    with pytest.raises(UserError) as caught:
        call(frame)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_importance_of_a_frame_and_of_a_folder(command, ranker, frame):
    latest = frame[frame.time >= 1_700_000_000 + 60 * 63]
    actual = ranker.importance(latest, metric="ndcg", repeats=1)
    other = ranker.importance(command / "data", metric="ndcg", repeats=1)
    assert set(actual.feature) == set(other.feature) >= {"price", "sales", "top + sub"}
    assert actual.lists.max() == other.lists.max() == latest.query_id.nunique()
    assert (actual.drop(columns="feature").columns == other.columns[1:]).all()
    assert actual.attrs["findings"] and "" in actual.category.tolist()
    with pytest.raises(UserError, match="metric 'accuracy' is unknown"):
        ranker.importance(latest, metric="accuracy")


def test_a_fitted_ranker_is_saved_and_not_pickled(ranker):
    with pytest.raises(UserError, match=r"use save and Ranker\.load"):
        pickle.dumps(ranker)
    with pytest.raises(UserError, match=r"use save and Ranker\.load"):
        copy.deepcopy(ranker)
    again = pickle.loads(pickle.dumps(Ranker("dnn", seed=3)))
    assert again.get_params() == Ranker("dnn", seed=3).get_params()


def test_lists_that_disagree_are_scored_by_their_first_row(ranker, frame, capfd):
    other = frame.copy()
    other["age"] += other.groupby("query_id").cumcount()
    assert len(ranker.predict(other)) == len(frame)
    assert "several values of the context feature 'age'" in capfd.readouterr().err


def test_requests_and_tasks_are_checked(ranker, frame):
    with pytest.raises(UserError, match=r"batch_size must be >= 1. Received: 0"):
        ranker.predict(frame, batch_size=0)
    with pytest.raises(UserError, match=r"items\[0\]: unknown feature 'prize'"):
        ranker.rank(CONTEXT, [{"prize": 1.0}])
    with pytest.raises(UserError, match="task 'click': the model has no tasks"):
        ranker.rank(CONTEXT, ITEMS, task="click")
    with pytest.raises(UserError, match="items: must not be empty"):
        ranker.explain(CONTEXT, [])


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_one_fit_and_one_predict_for_every_model(model, frame):
    labels = ("purchase", "click") if MODELS[model].kind == "multi_task" else ("purchase",)
    schema = TIMED.model_copy(update={"labels": labels})
    one = {"num_epochs": 1, "metrics": ("session_auc",), "attention_blocks": 1}
    config = small_config({**SMALL, **one}, model=model)
    settings = {k: v for k, v in config.changed().items() if k != "model"}
    ranker = Ranker(model, **settings).fit(frame, schema=schema, verbose=0)
    scores = ranker.predict(frame)
    assert np.isfinite(scores).all() and np.ptp(scores) > 0
    assert len(ranker.rank(CONTEXT, ITEMS)) == len(ITEMS)
    metrics = ranker.evaluate(frame, ["ndcg"])
    assert set(metrics) == {f"{task}_ndcg" for task in labels} if len(labels) > 1 else {"ndcg"}
    if len(labels) > 1:
        assert np.isfinite(ranker.predict(frame, task="click")).all()


@pytest.mark.slow
def test_the_code_of_the_page_runs_as_it_is(repository, tmp_path, monkeypatch):
    page = (repository / "docs" / "dataframes.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    frames = {name: shop_log(80, seed) for seed, name in enumerate(("train", "valid", "test"))}
    candidates = shop_log(5, 9).drop(columns="purchased")
    names = {**frames, "candidates": candidates}
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    assert len(names["scores"]) == 25
    assert (tmp_path / "models" / "shop" / "1" / "saved_model.pb").is_file()
    assert names["ranker"].schema.hierarchy.child == "sub_category"


@pytest.mark.parametrize(
    ("model", "reason"), [("dnn", "is for evaluation"), ("lambdamart", "metrics is not used")]
)
def test_weights_of_the_schema_weight_the_clicks_of_an_evaluation(frame, model, reason):
    weighted = frame.assign(propensity=1.0 + frame["price"].rank(pct=True))
    schema = TIMED.model_copy(update={"weight": "propensity"})
    settings = {} if model == "lambdamart" else {"expert_hidden_dims": (8,), "num_epochs": 1}
    ranker = Ranker(model, **settings).fit(weighted, schema=schema, verbose=0)
    actual = ranker.evaluate(weighted, ["ips_dcg", "ips_dcg_2"])
    scored = weighted.assign(score=ranker.predict(weighted))
    expected = {"ips_dcg": [], "ips_dcg_2": []}
    for _, rows in scored.groupby("query_id"):
        ranked = rows.sort_values("score", ascending=False, kind="stable")
        gains = np.where(ranked[schema.label] > 0, ranked["propensity"], 0.0)
        gains = gains / np.log2(2 + np.arange(len(gains)))
        expected["ips_dcg"].append(gains.sum())
        expected["ips_dcg_2"].append(gains[:2].sum())
    assert actual == pytest.approx({k: np.mean(v) for k, v in expected.items()}, rel=1e-5)
    with pytest.raises(UserError, match=reason):
        Ranker(model, metrics=["ips_dcg"], monitor="ips_dcg").fit(
            weighted, schema=schema, verbose=0
        )
