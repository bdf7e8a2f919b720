"""What all scorers share: configuration, and models out of TFR's builder."""

import functools
import json

import numpy as np
import pytest

from tests.scorers.batch import RERANKING, TABLES, raw_batch
from tests.tiny import SCHEMA
from tfr_moe._compat import tfr
from tfr_moe.config import MODEL_NAMES
from tfr_moe.schema import MASK
from tfr_moe.scorers import create

NAMES = pytest.mark.parametrize("name", MODEL_NAMES)


def scorer_of(name, **settings):
    return create(name, SCHEMA, TABLES, {**RERANKING, "num_experts": 5, "top_k": 2, **settings})


@functools.cache
def built(name):
    """A scorer with settings that aren't the defaults, and its model."""
    scorer = scorer_of(name, dropout=0.25, embedding_l2=0.5, activation="tanh")
    return scorer, scorer.build_model(name=name)


@NAMES
def test_a_scorer_comes_back_from_its_configuration_with_variables_of_its_own(name):
    scorer, model = built(name)
    copy = type(scorer).from_config(json.loads(json.dumps(scorer.get_config())))
    assert type(copy) is type(scorer)
    assert copy.get_config() == scorer.get_config()
    assert copy.schema == SCHEMA
    # The seed is part of it, so even the first weights are the same.
    second = copy.build_model()
    np.testing.assert_array_equal(second(raw_batch()), model(raw_batch()))
    assert all(a is not b for a, b in zip(model.weights, second.weights, strict=True))
    names = [w.name for w in model.weights]
    assert len(names) == len(set(names))


@NAMES
def test_a_model_takes_raw_features_and_a_mask_and_gives_one_logit_an_item(name):
    _, model = built(name)
    assert model.name == name
    spec = {**SCHEMA.feature_spec("context"), **SCHEMA.feature_spec("example")}
    assert set(model.input) == {*spec, MASK}
    scores = model(raw_batch(batch=3, size=7))
    assert scores.shape == [3, 7]
    assert scores.dtype == "float32"


def test_a_scorer_is_one_of_tensorflow_rankings():
    assert isinstance(scorer_of("moe"), tfr.keras.model.Scorer)
    assert isinstance(scorer_of("moe").model_builder(), tfr.keras.model.ModelBuilder)
