import numpy as np
import pytest

from tests.evaluation.lists import random_batch
from tfr_moe._compat import tf
from tfr_moe.evaluation.results import evaluate_lists
from tfr_moe.evaluation.scoring import score_dataset
from tfr_moe.schema import MASK, FeatureSchema

FEATURES = [
    {"name": "top", "scope": "context", "kind": "categorical"},
    {"name": "sub", "scope": "context", "kind": "categorical"},
    {"name": "price", "scope": "example", "kind": "numeric"},
]
PLAIN = {"list_id": "query", "labels": ["click"], "features": FEATURES}
BARE = FeatureSchema.model_validate(PLAIN)
SCHEMA = FeatureSchema.model_validate(
    {**PLAIN, "position": "place", "hierarchy": {"child": "sub", "parent": "top"}}
)


def elements(batch):
    """One row a list, of its own length."""
    names = [f"kategorie-ß-{c}" for c in batch.categories]
    for i, keep in enumerate(batch.mask):
        column = {n: getattr(batch, n)[i, keep].astype(np.float32) for n in ("scores", "labels")}
        features = {
            "example_numeric": column["scores"][:, None],
            "top": [names[i]],
            "sub": ["any"],
            MASK: np.ones(keep.sum(), bool),
        }
        positions = batch.positions[i, keep].astype(np.float32)[:, None]
        yield features, column["labels"], {"query": [batch.list_ids[i]], "place": positions}


def dataset(batch, size):
    text = tf.TensorSpec([1], tf.string)
    column = tf.TensorSpec([None, 1], tf.float32)
    signature = (
        {
            "example_numeric": column,
            "top": text,
            "sub": text,
            MASK: tf.TensorSpec([None], tf.bool),
        },
        tf.TensorSpec([None], tf.float32),
        {"query": text, "place": column},
    )
    rows = tf.data.Dataset.from_generator(lambda: elements(batch), output_signature=signature)
    padding = (
        {"example_numeric": 0.0, "top": "", "sub": "", MASK: False},
        -1.0,
        {"query": "", "place": 0.0},
    )
    return rows.padded_batch(size, padding_values=padding)


class Doubling(tf.keras.layers.Layer):
    """Scores 2 x price in inference, nonsense in training; counts how often it is traced."""

    traces = 0

    def call(self, inputs, training=None):
        type(self).traces += 1
        scores = 2.0 * tf.squeeze(inputs["example_numeric"], axis=-1)
        return -scores if training else tf.where(inputs[MASK], scores, 1e9)


def doubling_model():
    inputs = {
        "example_numeric": tf.keras.Input([None, 1], name="example_numeric"),
        "top": tf.keras.Input([1], dtype=tf.string, name="top"),
        "sub": tf.keras.Input([1], dtype=tf.string, name="sub"),
        MASK: tf.keras.Input([None], dtype=tf.bool, name=MASK),
    }
    return tf.keras.Model(inputs, Doubling()(inputs))


@pytest.mark.smoke
def test_lists_come_out_with_scores_ids_positions_and_categories():
    batch = random_batch(np.random.default_rng(1), lists=23)
    scored = list(score_dataset(doubling_model(), dataset(batch, 5), SCHEMA))
    assert [len(b.list_ids) for b in scored] == [5, 5, 5, 5, 3]
    row = 0
    for actual in scored:
        actual.check()
        for i in range(len(actual.list_ids)):
            keep, valid = batch.mask[row], actual.mask[i]
            np.testing.assert_allclose(
                actual.scores[i, valid], 2 * batch.scores[row, keep], rtol=1e-6
            )
            np.testing.assert_array_equal(actual.labels[i, valid], batch.labels[row, keep])
            np.testing.assert_array_equal(actual.positions[i, valid], batch.positions[row, keep])
            assert actual.list_ids[i] == batch.list_ids[row]
            assert actual.categories[i] == f"kategorie-ß-{batch.categories[row]}"
            assert actual.sub_categories[i] == f"kategorie-ß-{batch.categories[row]} > any"
            row += 1
    assert row == 23


def test_the_batch_size_of_the_dataset_does_not_change_the_values():
    batch = random_batch(np.random.default_rng(2), lists=23)
    model = doubling_model()
    actual = [
        evaluate_lists(score_dataset(model, dataset(batch, size), SCHEMA)) for size in (1, 7, 23)
    ]
    direct = evaluate_lists([batch])
    for result in actual:
        assert result.list_ids.tolist() == direct.list_ids.tolist()
        for name, values in direct.values.items():
            # Doubled float32 scores order the items as the float64 ones do.
            np.testing.assert_allclose(result.values[name], values, rtol=1e-12)


def test_lists_of_all_lengths_cost_one_trace():
    batch = random_batch(np.random.default_rng(3), lists=23)
    model = doubling_model()
    before = Doubling.traces
    assert len({b.scores.shape for b in score_dataset(model, dataset(batch, 3), SCHEMA)}) > 3
    assert Doubling.traces == before + 1


def test_without_position_and_hierarchy_there_are_none():
    batch = random_batch(np.random.default_rng(4), lists=4)
    for actual in score_dataset(doubling_model(), dataset(batch, 2), BARE):
        assert actual.positions is None
        assert actual.categories is actual.sub_categories is None
