"""Attention maps by hand, by groups, and of a model."""

import numpy as np
import pytest

from tests.scorers.batch import RERANKING, TABLES, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.analysis.attention import (
    OTHERS,
    AttentionMap,
    attention_maps,
    attention_weights,
    map_of_feature,
    map_of_positions,
)
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import create

WEIGHTS = np.array([[[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]]])


def test_the_mean_over_pairs_of_two_groups_by_hand():
    actual = AttentionMap(["a", "b"], lambda features: features["group"])
    actual.add(WEIGHTS, {MASK: np.ones([1, 3], bool), "group": np.array([[0, 0, 1]])})
    pair = {MASK: np.ones([1, 2], bool), "group": np.array([[0, 1]])}
    actual.add(np.array([[[0.4, 0.6], [0.7, 0.3]]]), pair)
    content = actual.as_json()
    # a attends to a: 0.3 and 0.1; to b: 0.5, 0.3 of lists of three and 0.6 of one of two
    assert content["lift"][0] == pytest.approx([0.6, (3 * 0.8 + 2 * 0.6) / 3])
    assert content["lift"][1] == [pytest.approx((3 * 0.0 + 2 * 0.7) / 3), None]
    assert content["pairs"] == [[2, 3], [3, 0]]


def test_in_the_map_of_positions_items_attend_to_themselves_and_padding_does_not_count():
    weights = np.array([[[0.4, 0.6, 0.0], [0.1, 0.9, 0.0], [0.3, 0.3, 0.4]]])
    actual = map_of_positions(3)
    actual.add(weights, {MASK: np.array([[True, True, False]])})
    content = actual.as_json()
    assert content["lift"] == [[0.8, 1.2, None], [0.2, 1.8, None], [None, None, None]]
    assert content["labels"] == ["1", "2", "3"]


def test_bands_have_about_as_many_items_each_and_ids_beyond_the_twelve_are_others():
    rng = np.random.default_rng(0)
    names = np.array([f"brand{i}".encode() for i in range(15)], object)
    brands = names[np.minimum(rng.geometric(0.2, [50, 8]) - 1, 14)]
    batch = {
        MASK: rng.random([50, 8]) < 0.8,
        "example_numeric": np.stack([rng.gamma(2.0, 9.0, [50, 8]), np.zeros([50, 8])], axis=-1),
        "brand": brands[..., np.newaxis],
    }
    price = map_of_feature(SCHEMA, "price", [batch])
    groups = price.groups_of(batch)
    counts = np.bincount(groups[batch[MASK]])
    assert len(counts) == len(price.labels) == 7
    assert counts.max() - counts.min() <= 1
    values = batch["example_numeric"][..., 0]
    assert values[groups == 0].max() < values[groups == 1].min()
    assert price.labels[0] == f"below {price.labels[1].partition(' to ')[0]}"
    assert price.labels[-1] == f"from {price.labels[-2].partition(' to ')[2]}"
    brand = map_of_feature(SCHEMA, "brand", [batch])
    assert brand.labels[0] == "brand0"
    assert brand.labels[-1] == OTHERS
    assert len(brand.labels) == 13
    assert set(brand.groups_of(batch)[batch[MASK] & (brands == b"brand0")]) == {0}
    # A constant has one band.
    assert map_of_feature(SCHEMA, "sales", [batch]).groups_of(batch).max() <= 1
    nothing = {**batch, "example_numeric": np.full([50, 8, 2], np.nan)}
    assert map_of_feature(SCHEMA, "price", [nothing]).labels == ["all"]


def test_what_is_no_id_or_number_of_the_items_is_refused():
    with pytest.raises(UserError, match="by: 'sub' is not an ID or number of the items; available"):
        map_of_feature(SCHEMA, "sub", [])


def model_of(name, **settings):
    return create(name, SCHEMA, TABLES, {**RERANKING, **settings}).build_model()


DATASET = tf.data.Dataset.from_tensors((raw_batch(), tf.zeros([5, 4]), {}))


def test_the_weights_are_the_mean_over_blocks_and_heads():
    model = model_of("adv_hsc_moe", trunk="attention", num_experts=4, top_k=2)
    vectors = tf.keras.Model(model.input, model.get_layer("features").output.items)(raw_batch())
    encoder = model.get_layer("trunk")
    _, weights = encoder(vectors, mask=raw_batch()[MASK], return_weights=True)
    expected = weights.numpy().mean(axis=(1, 2))
    actual = attention_weights(model, encoder, DATASET.element_spec[0])(raw_batch())
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_there_are_maps_by_position_and_by_features():
    lists, maps = attention_maps(model_of("prm_personalized"), DATASET, SCHEMA, ("brand", "price"))
    assert lists == raw_batch()[MASK].numpy().any(axis=1).sum()
    assert list(maps) == ["position", "brand", "price"]
    assert maps["position"]["pairs"][0][0] == lists
    for actual in maps.values():
        size = len(actual["labels"])
        assert np.array(actual["lift"], float).shape == (size, size)


def test_a_model_without_attention_has_no_maps():
    assert attention_maps(model_of("mlp"), DATASET, SCHEMA) == (0, {})
