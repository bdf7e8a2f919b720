"""Wide & Deep as the sum of its parts, the click model and its vectors, the baselines' sizes."""

import numpy as np
import pytest

from tests.scorers.batch import RERANKING, TABLES, WIDTH, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.config import make_config
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK
from tfr_moe.scorers import WideDeepScorer, create, vector_model


def model_of(name, **settings):
    return create(name, SCHEMA, TABLES, {**RERANKING, **settings}).build_model()


def test_wide_deep_is_the_sum_of_tower_linear_part_and_crosses():
    inputs = raw_batch()
    model = model_of("wide_deep")
    parts = [model.get_layer(name) for name in ("tower", "wide", "crosses")]
    outputs = tf.keras.Model(model.input, [part.output for part in parts])(inputs)
    assert all(np.abs(output).max() > 1e-4 for output in outputs)
    np.testing.assert_allclose(model(inputs), sum(outputs), rtol=1e-5, atol=1e-6)


def test_each_id_of_the_list_is_crossed_with_each_of_the_items():
    crosses = model_of("wide_deep", cross_buckets=7).get_layer("crosses")
    assert crosses.crosses == (("top", "brand"), ("sub", "brand"), ("clicked", "brand"))
    assert crosses.crossed.shape == (3, 7)
    numbers = tuple(f for f in SCHEMA.features if f.name != "brand")
    schema = SCHEMA.model_copy(update={"features": numbers})
    model = WideDeepScorer(schema, TABLES, expert_hidden_dims=(4,)).build_model()
    names = [layer.name for layer in model.layers]
    assert "wide" in names
    assert "crosses" not in names


def test_the_click_model_is_a_linear_score_of_its_vectors():
    inputs, mask = raw_batch(), raw_batch()[MASK].numpy()
    model = model_of("click_model", expert_hidden_dims=(8, 3))
    vectors = vector_model(model)(inputs).numpy()
    assert vectors.shape == (*mask.shape, 3)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[~mask], 0.0)
    tower = model.get_layer("click").tower
    expected = vectors @ tower.kernels[0][0].numpy()[:, 0] + tower.biases[0][0].numpy()
    np.testing.assert_allclose(model(inputs).numpy()[mask], expected[mask], rtol=1e-5, atol=1e-6)


def test_other_models_have_no_vectors_and_a_click_model_needs_a_layer():
    assert vector_model(model_of("dnn")) is None
    with pytest.raises(UserError, match="expert_hidden_dims must have a layer for click_model"):
        make_config({"model": "click_model", "expert_hidden_dims": []})


def test_ignored_features_are_not_part_of_the_input_vector():
    # brand 4, price 1, sub 4 of 19
    model = model_of("mlp", ignored_features=("brand", "price", "sub"))
    assert model.get_layer("tower").tower.kernels[0].shape[1] == WIDTH - 9
    inputs = raw_batch()
    changed = {**inputs, "brand": tf.constant(inputs["brand"].numpy()[:, ::-1])}
    np.testing.assert_array_equal(model(changed), model(inputs))
    mixture = model_of("moe", ignored_features=("sub",), num_experts=4, top_k=2)
    assert mixture.get_layer("mixture").towers.kernels[0].shape[1] == WIDTH - 4
    with pytest.raises(UserError, match="feature 'colour' is not in the schema; allowed: top"):
        model_of("mlp", ignored_features=("colour",))
    with pytest.raises(UserError, match="must not contain all features"):
        model_of("mlp", ignored_features=[f.name for f in SCHEMA.features])


# Tables 6 and 7 of Pobrotyn et al., with 45 features, say 210K and 206K.
@pytest.mark.parametrize(("name", "thousands"), [("mlp", 209), ("context_aware", 205)])
def test_the_defaults_are_the_papers_models_for_shop_logs(name, thousands):
    config = make_config({"model": name})
    scorer = create(name, SCHEMA, TABLES, config.model_dump())
    model = scorer.build_model()
    width = model.get_layer("features").output.items.shape[-1]
    counted = [w for w in model.trainable_weights if "features" not in w.name]
    count = sum(int(np.prod(w.shape)) for w in counted)
    first = 256 if name == "mlp" else 128
    assert round((count + (45 - width) * first) / 1000) == thousands


def test_what_is_set_goes_before_the_defaults_of_the_model():
    assert make_config({"model": "mlp"}).experts.expert_hidden_dims == (256, 384, 256)
    assert make_config({"model": "mlp", "expert_hidden_dims": [4]}).experts.expert_hidden_dims == (
        4,
    )
    assert make_config({"model": "dnn"}).experts.expert_hidden_dims == (1024, 512, 256)
    again = make_config(make_config({"model": "prm_base", "loss": "listnet"}).model_dump())
    assert (again.objective.loss, again.attention.attention_heads) == ("listnet", 3)
