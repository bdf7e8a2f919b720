"""The DNN against a plain Keras stack, and the wide DNN's capacity."""

import numpy as np
import pytest

from tests.scorers.batch import SMALL, TABLES, WIDTH, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.schema import MASK
from tfr_moe.scorers import MixtureScorer, TowerScorer, WideTowerScorer
from tfr_moe.scorers.tower import tower_parameters


@pytest.mark.smoke
def test_dnn_is_a_plain_stack_of_dense_layers_over_the_input_vector():
    model = TowerScorer(SCHEMA, TABLES, **SMALL).build_model()
    inputs = raw_batch()
    vectors = tf.keras.Model(model.input, model.get_layer("features").output.items)(inputs)
    assert vectors.shape[-1] == WIDTH
    stack = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, "relu"),
            tf.keras.layers.Dense(5, "relu"),
            tf.keras.layers.Dense(1),
        ]
    )
    stack.build([None, None, WIDTH])
    tower = model.get_layer("tower").tower
    for dense, kernel, bias in zip(stack.layers, tower.kernels, tower.biases, strict=True):
        bias.assign(np.random.default_rng(1).normal(size=bias.shape))
        dense.set_weights([kernel[0].numpy(), bias[0].numpy()])
    mask = inputs[MASK].numpy()
    # float32 sums in another order
    np.testing.assert_allclose(
        model(inputs).numpy()[mask], stack(vectors)[..., 0].numpy()[mask], rtol=1e-5, atol=1e-6
    )


def parameters_of(model):
    """Trainable numbers besides the embeddings."""
    return sum(int(np.prod(w.shape)) for w in model.trainable_weights if "embedding" not in w.name)


def test_tower_parameters_by_hand():
    # 19 -> 8 -> 5 -> 1: 20 x 8 + 9 x 5 + 6 x 1
    assert tower_parameters(WIDTH, [8, 5]) == 160 + 45 + 6
    assert parameters_of(TowerScorer(SCHEMA, TABLES, **SMALL).build_model()) == 211


def test_wide_dnn_by_hand():
    # K = 3 towers 19 -> 8 -> 1 of 20 x 8 + 9 = 169, and a gate 4 x 5: 527 active parameters.
    # One hidden layer of width w has 21 w + 1: w = 25 gives 526.
    scorer = WideTowerScorer(
        SCHEMA, TABLES, embedding_dim=4, expert_hidden_dims=(8,), num_experts=5, top_k=3
    )
    assert scorer.hidden_dims(WIDTH) == (25,)
    assert parameters_of(scorer.build_model()) == 21 * 25 + 1


@pytest.mark.parametrize(
    ("width", "hidden", "num_experts", "top_k"),
    [
        (300, (1024, 512, 256), 10, 4),
        (300, (1024, 512, 256), 32, 2),
        (40, (64, 32), 10, 4),
        (40, (64, 32), 8, 8),
        (1000, (128,), 10, 4),
        (20, (256, 16, 128), 16, 1),
    ],
)
def test_wide_dnn_has_the_active_parameters_of_the_mixture(width, hidden, num_experts, top_k):
    scorer = WideTowerScorer(
        SCHEMA, TABLES, expert_hidden_dims=hidden, num_experts=num_experts, top_k=top_k
    )
    active = top_k * tower_parameters(width, hidden) + 16 * num_experts
    wide = tower_parameters(width, scorer.hidden_dims(width))
    assert wide == pytest.approx(active, rel=0.02)


def test_the_active_parameters_are_those_of_the_built_mixture():
    settings = {"embedding_dim": 4, "expert_hidden_dims": (32, 16), "num_experts": 6, "top_k": 2}
    mixture = MixtureScorer(
        SCHEMA, TABLES, hsc_weight=None, num_adversarial=0, noisy_gate=False, **settings
    )
    layer = mixture.build_model().get_layer("mixture")
    towers = sum(int(np.prod(w.shape)) for w in layer.towers.trainable_weights)
    gate = sum(int(np.prod(w.shape)) for w in layer.inference_gate.trainable_weights)
    wide = parameters_of(WideTowerScorer(SCHEMA, TABLES, **settings).build_model())
    assert wide == pytest.approx(towers * 2 / 6 + gate, rel=0.02)


def test_all_hidden_layers_widen_by_one_factor():
    scorer = WideTowerScorer(SCHEMA, TABLES, num_experts=10, top_k=4)
    wide = scorer.hidden_dims(300)
    factors = [w / n for w, n in zip(wide, [1024, 512, 256], strict=True)]
    assert max(factors) / min(factors) == pytest.approx(1.0, abs=0.01)
    assert factors[0] > 1.8


def test_a_linear_tower_stays_as_it_is():
    assert WideTowerScorer(SCHEMA, TABLES, expert_hidden_dims=()).hidden_dims(10) == ()
