"""The study of ways: its arrays, its metric, the cost of its models, and a small run."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from experiments.common.study import StudyContext, run_study
from experiments.datasets.complete_journey.lists import ListOptions, schema
from experiments.studies.ways.lists import list_ranks, load, prepare, sizes
from experiments.studies.ways.models import BINS, Way, WayModel
from experiments.studies.ways.study import WAYS, positives_loss, softmax_loss
from experiments.studies.ways.teacher import teach
from tests.experiments.datasets.journey_tables import maker, random_world
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.numerics import list_ranks as ranks_in_the_library

WEEKS = {"train": (9, 10), "validation": (11,), "test": (12,)}


@pytest.fixture(scope="module")
def journey(tmp_path_factory) -> Path:
    """Lists of a small random shop, as the data set's command writes them."""
    folder = tmp_path_factory.mktemp("journey")
    (folder / "rows").mkdir()
    products, sales, promotions = random_world(7)
    lists = maker(products, sales, ListOptions(), promotions)
    for split, weeks in WEEKS.items():
        for week in weeks:
            pq.write_table(lists.week(week), folder / "rows" / f"{split}-week-{week:02}.parquet")
    schema().save(folder / "schema.json")
    return folder


@pytest.fixture(scope="module")
def arrays(journey, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("arrays")
    prepare(journey / "rows", schema(), out)
    return out


def test_arrays_have_the_rows_of_the_lists_scaled_by_the_training_lists(journey, arrays):
    train, validation = load(arrays / "train"), load(arrays / "validation")
    tables = [pq.read_table(path) for path in sorted((journey / "rows").glob("train-*"))]
    names = [f.name for f in schema().features if f.kind == "numeric" and f.scope == "example"]
    price = names.index("price")
    numbers = np.log1p(np.concatenate([t["price"].to_numpy() for t in tables]).astype(float))
    mean, deviation = numbers.mean(), numbers.std()
    valid = train.labels >= 0
    np.testing.assert_allclose(
        train.numbers[..., price][valid], (numbers - mean) / deviation, atol=1e-5
    )
    labels = np.concatenate([t["purchase"].to_numpy() for t in tables])
    np.testing.assert_array_equal(train.labels[valid], labels)
    later = pq.read_table(journey / "rows" / "validation-week-11.parquet")["price"].to_numpy()
    np.testing.assert_allclose(
        validation.numbers[..., price][validation.labels >= 0],
        (np.log1p(later.astype(float)) - mean) / deviation,
        atol=1e-5,
    )
    assert (train.ids[:, 0] == 1).all()  # one department
    assert set(train.ids[:, 1]) == {1, 2}  # tea and coffee


def test_a_category_without_training_lists_is_unknown(journey, tmp_path):
    rows = tmp_path / "rows"
    rows.mkdir()
    for path in sorted((journey / "rows").iterdir()):
        table = pq.read_table(path)
        if path.name.startswith("train"):
            table = table.filter(pc.equal(table["sub_category"].cast("string"), "COFFEE"))
        pq.write_table(table, rows / path.name)
    prepare(rows, schema(), tmp_path)
    train, validation = load(tmp_path / "train"), load(tmp_path / "validation")
    assert sizes(train)["ids"][1] == 1
    assert set(train.ids[:, 1]) == {1}
    assert set(validation.ids[:, 1]) == {0, 1}  # tea and coffee


def test_a_category_of_one_half_alone_is_unknown_to_the_models_of_the_other(arrays, tmp_path):
    lists = load(arrays / "train")
    ids = np.array(lists.ids)
    ids[0, 1] = 9
    dataclasses.replace(lists, ids=ids).save(tmp_path / "lists" / "train")
    unknown = []

    def score(largest, scored):
        assert (scored.ids <= largest).all()
        unknown.append((scored.ids[:, 1] == 0).sum())
        return np.random.default_rng(0).normal(size=scored.labels.shape).astype(np.float32)

    teach(tmp_path, lambda way, half, rate, seed: sizes(half)["ids"], score)
    assert sorted(unknown) == [0, 0, 1, 1]  # two towers a half


def test_ranks_are_those_of_the_library():
    dice = np.random.default_rng(0)
    numbers = dice.integers(0, 4, size=(5, 6, 3)).astype(np.float32)
    valid = dice.random((5, 6)) < 0.7
    valid[:, 0] = True
    expected = ranks_in_the_library(tf.constant(numbers), tf.constant(valid)).numpy()
    np.testing.assert_allclose(list_ranks(numbers, valid), expected, atol=1e-6)


def test_losses_of_one_list():
    logits = tf.math.log([[3.0, 1.0, 2.0, 5.0]])
    labels = tf.constant([[1.0, 1.0, 0.0, -1.0]])
    masked = tf.where(labels >= 0, logits, -1e9)
    # -(log 3/6 + log 1/6) / 2, and with each positive beside the negative alone 3/5 and 1/3.
    assert float(softmax_loss(masked, labels)) == pytest.approx(np.log(12) / 2)
    assert float(positives_loss(masked, labels)) == pytest.approx(np.log(5) / 2)


def cost(way: Way, width: int = 88) -> int:
    """Multiply-adds of an item in towers and cross layers."""
    dims = (width, *way.hidden, 1)
    tower = sum(a * b for a, b in itertools.pairwise(dims))
    return tower * ((way.top_k + way.recommended) if way.experts else 1) + way.crosses * width**2


def test_mixtures_and_crosses_cost_as_much_as_the_tower():
    costs = {name: cost(way) / cost(WAYS["tower"]) for name, way in WAYS.items()}
    assert costs.pop("tower, 2.5 x") == pytest.approx(2.5, abs=0.02)
    assert all(0.95 < ratio < 1.05 for ratio in costs.values()), costs


@pytest.mark.parametrize("name", WAYS)
def test_padded_items_change_no_score(arrays, name):
    lists = load(arrays / "validation")
    edges = np.sort(np.random.default_rng(0).normal(size=(lists.numbers.shape[-1], BINS + 1)))
    model = WayModel(WAYS[name], sizes(load(arrays / "train")), edges, seed=0)
    numbers, labels = np.array(lists.numbers[:4]), np.array(lists.labels[:4])
    labels[:, 15:] = -1
    other = np.where((labels >= 0)[..., None], numbers, 7.0).astype(np.float32)
    rest = (lists.context[:4], lists.ids[:4], labels >= 0)
    first, second = (model((x, *rest)).numpy() for x in (numbers, other))
    np.testing.assert_allclose(first[labels >= 0], second[labels >= 0], atol=1e-5)
    assert np.ptp(first[:, :15]) > 0
    assert (first[:, 15:] == np.float32(-1e9)).all()


def test_a_small_run_and_its_table(journey, tmp_path):
    context = StudyContext(tmp_path / "study", 1, journey, Console(quiet=True))
    rows = 'rows=["tower, averaged", "recommended, averaged"]'
    pairs = ["epochs=2", "batch_size=32", rows]
    (table,) = run_study("journey-ways", context, pairs=pairs, runs=2)
    rows = json.loads((context.out / "results.json").read_text())
    assert [row["way"] for row in rows][:2] == ["tower", "tower, averaged weights"]
    assert table.row_count == len(rows) == 3
    assert all(row["low"] < row["difference"] < row["high"] for row in rows[1:])
    stored = (context.out / "runs.jsonl").read_text()
    run_study("journey-ways", context, pairs=pairs, runs=2)
    assert (context.out / "runs.jsonl").read_text() == stored


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["rungs=[32, 16]"], "rungs: numbers of training lists must increase"),
        (["rungs=[15]", "batch_size=16"], "15 training lists: fewer than batch_size=16"),
        (["train_lists=7", "batch_size=8"], "7 training lists: fewer than batch_size=8"),
    ],
)
def test_too_few_training_lists_are_rejected(journey, tmp_path, pairs, message):
    context = StudyContext(tmp_path / "study", 1, journey, Console(quiet=True))
    with pytest.raises(UserError, match=message):
        run_study("journey-ways", context, pairs=[*pairs, "rows=[no categ]"], runs=1)


def test_each_rung_trains_the_better_half_of_the_one_before(journey, tmp_path):
    context = StudyContext(tmp_path / "study", 1, journey, Console(quiet=True))
    pairs = ["batch_size=16", "rungs=[16, 32]", "learning_rates=[1e-3, 1e-2]", "rows=[no categ]"]
    rungs, final = run_study("journey-ways", context, pairs=pairs, runs=1)
    entries = [json.loads(line) for line in (context.out / "rungs.jsonl").read_text().splitlines()]
    counts = [entry["job"]["lists"] for entry in entries]
    assert counts.count(16) == 2 * 2  # ways and rates
    assert 2 <= counts.count(32) <= 3  # the tower too, if it is not among the better half
    first = {
        (e["job"]["way"], e["job"]["rate"]): e["result"]["session_auc"]
        for e in entries
        if e["job"]["lists"] == 16
    }
    second = {(e["job"]["way"], e["job"]["rate"]) for e in entries if e["job"]["lists"] == 32}
    others = set(first) - second
    assert min(first[pair] for pair in second - {max_tower(first)}) >= max(map(first.get, others))
    assert max_tower(first) in second
    assert rungs.row_count == 2
    assert 1 <= final.row_count <= 2


def max_tower(values: dict[tuple[str, float], float]) -> tuple[str, float]:
    """The tower at its best rate."""
    return max((pair for pair in values if pair[0] == "tower"), key=values.__getitem__)


@pytest.mark.parametrize("part", ["last", "head", "film", "adapters"])
def test_a_part_by_category_starts_without_effect_and_gets_a_gradient(arrays, part):
    lists = load(arrays / "train")
    way = Way(hidden=(8, 4), by_category=(part,))
    model = WayModel(way, sizes(lists), np.zeros((lists.numbers.shape[-1], BINS + 1)), seed=0)
    labels = lists.labels[:8]
    inputs = (lists.numbers[:8], lists.context[:8], lists.ids[:8], labels >= 0)
    with tf.GradientTape() as tape:
        scores = model(inputs)
        loss = softmax_loss(scores, labels)
    variables = model.by_category[part].trainable_variables
    zero = [weight for weight in variables if not np.any(weight)]
    assert len(zero) == 2  # of parent and child
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, zero)]
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    model.by_category = {}
    np.testing.assert_allclose(scores, model(inputs), atol=1e-5)
