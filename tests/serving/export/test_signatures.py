"""The signatures of real exports, loaded without the Keras models they came from."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, elwc, shop_items
from tests.serving.models import SHOP, scorer
from tfr_moe._compat import tf, tfr
from tfr_moe.schema import MASK

pytestmark = pytest.mark.smoke

LOWEST = float(np.finfo(np.float32).min)
UNLIKE = [elwc(shop_items(3)), elwc([]), elwc(shop_items(7)), elwc(shop_items(1))]


@pytest.fixture(scope="module")
def predict(signature):
    return signature("plain", "serving_default")


@pytest.fixture(scope="module")
def rank(signature):
    return signature("plain", "rank")


def test_scores_are_those_of_the_keras_model(predict):
    features = tfr.data.parse_from_example_list(
        tf.constant(UNLIKE),
        context_feature_spec=SHOP.feature_spec("context"),
        example_feature_spec=SHOP.feature_spec("example"),
        mask_feature_name=MASK,
    )
    logits = scorer()(features, training=False).numpy()
    mask = features[MASK].numpy()
    actual = predict(UNLIKE)["scores"]
    np.testing.assert_allclose(actual[mask], logits[mask], atol=1e-6)


def test_lists_of_unlike_sizes_are_padded_with_the_lowest_float(predict):
    scores = predict(UNLIKE)["scores"]
    assert scores.shape == (4, 7)
    assert scores.dtype == np.float32
    for row, size in zip(scores, (3, 0, 7, 1), strict=True):
        assert (row[size:] == LOWEST).all()
        assert (row[:size] > LOWEST).all()


def test_a_list_scores_the_same_alone_and_in_a_batch(predict):
    together = predict(UNLIKE)["scores"]
    for row, serialized, size in zip(together, UNLIKE, (3, 0, 7, 1), strict=True):
        np.testing.assert_allclose(predict([serialized])["scores"][0], row[:size], atol=1e-6)


def test_scores_follow_their_items(predict):
    items = shop_items(5)
    turned = predict([elwc(items[::-1])])["scores"][0, ::-1]
    np.testing.assert_allclose(turned, predict([elwc(items)])["scores"][0], atol=1e-6)


def test_predict_has_two_names(signature):
    named = signature("plain", "tensorflow/serving/predict")
    default = signature("plain", "serving_default")
    np.testing.assert_array_equal(named(UNLIKE)["scores"], default(UNLIKE)["scores"])


def test_an_empty_batch_gives_empty_answers(predict, rank, signature):
    assert predict([])["scores"].shape == (0, 0)
    assert {name: value.shape for name, value in rank([]).items()} == {
        "order": (0, 0),
        "scores": (0, 0),
        "valid": (0,),
    }
    assert signature("mixture", "rank")([])["expert_ids"].shape == (0, 2)
    assert signature("itemwise", "rank")([])["expert_ids"].shape == (0, 0, 2)


@pytest.mark.parametrize("lists", [[b""], [elwc([])], [elwc([]), elwc([])]])
def test_lists_without_items_give_no_scores(predict, rank, lists):
    assert predict(lists)["scores"].shape == (len(lists), 0)
    assert rank(lists)["valid"].tolist() == [0] * len(lists)


def test_rank_sorts_the_scores_of_predict(predict, rank):
    scores, answer = predict(UNLIKE)["scores"], rank(UNLIKE)
    assert answer["valid"].tolist() == [3, 0, 7, 1]
    assert answer["order"].dtype == answer["valid"].dtype == np.int32
    for i, size in enumerate((3, 0, 7, 1)):
        expected = sorted(range(size), key=lambda item: -scores[i, item])
        assert answer["order"][i].tolist() == expected + [-1] * (7 - size)
        assert answer["scores"][i].tolist() == scores[i, expected].tolist() + [LOWEST] * (7 - size)


def test_ties_keep_the_order_of_the_request(rank):
    same = [shop_items(1)[0]] * 6
    assert rank([elwc(same)])["order"].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_unknown_ids_score_as_out_of_vocabulary(predict):
    def scored(brand: str) -> list[float]:
        return predict([elwc([{"price": 1.0, "brand": brand}])])["scores"][0].tolist()

    assert scored("never seen") == scored("nor this one") != scored("acme")


def test_missing_optional_features_score_as_their_default(predict):
    bare = predict([elwc([{"price": 1.0}], {})])["scores"]
    full = [{"price": 1.0, "stars": 3.0, "brand": "", "tags": []}]
    given = predict([elwc(full, {"age": 40.0, "top": "", "sub": ""})])["scores"]
    np.testing.assert_array_equal(bare, given)


def test_a_missing_required_feature_fails_with_its_name(predict):
    from tensorflow_serving.apis import input_pb2

    proto = input_pb2.ExampleListWithContext.FromString(elwc(shop_items(2)))
    del proto.examples[1].features.feature["example_numeric"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"required.*price"):
        predict([elwc(shop_items(2)), proto.SerializeToString()])


def test_a_list_level_gate_returns_its_experts_once_per_list(signature):
    food = elwc(shop_items(3))
    toys = elwc(shop_items(2), {**CONTEXT, "top": "toys", "sub": "balls"})
    answer = signature("mixture", "rank")([food, toys])
    assert answer["expert_ids"].shape == answer["expert_weights"].shape == (2, 2)
    assert answer["expert_ids"].dtype == np.int32
    np.testing.assert_allclose(answer["expert_weights"].sum(axis=1), 1.0, atol=1e-6)


def test_experts_of_an_item_level_gate_are_in_rank_order(signature):
    items = shop_items(5)
    rank = signature("itemwise", "rank")
    answer = rank([elwc(items), elwc(items[:2])])
    for index, item in enumerate(answer["order"][0]):
        alone = rank([elwc([items[item]])])
        assert answer["expert_ids"][0, index].tolist() == alone["expert_ids"][0, 0].tolist()
        np.testing.assert_allclose(
            answer["expert_weights"][0, index], alone["expert_weights"][0, 0], atol=1e-6
        )
    assert (answer["expert_ids"][1, 2:] == -1).all()
    assert (answer["expert_weights"][1, 2:] == 0).all()
    assert len({tuple(sorted(ids)) for ids in answer["expert_ids"][0]}) > 1
