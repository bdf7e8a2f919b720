"""Tables and a batch of raw features for the schema of `tests/tiny.py`."""

import numpy as np

from tests.tiny import SCHEMA
from tfr_moe._compat import tf
from tfr_moe.schema import MASK, FeatureTables

TABLES = FeatureTables(
    statistics={
        "context": {"age": {"mean": 40.0, "std": 10.0}},
        "example": {"price": {"mean": 3.0, "std": 0.5}, "sales": {"mean": 0.0, "std": 1.0}},
    },
    vocabularies={
        "top": ["a", "b"],
        "sub": ["a > x", "a > y", "b > x", "b > z"],
        "brand": ["brand0", "brand1", "brand2"],
    },
)
SMALL = {"embedding_dim": 4, "expert_hidden_dims": (8, 5), "seed": 1}
RERANKING = {**SMALL, "attention_dim": 8, "attention_hidden_dim": 12, "personal_vector": "sales"}
# brand 4, price 1, sales 1; top 4, sub 4, clicked 4, age 1
WIDTH = 19


def raw_batch(seed=0, batch=5, size=4):
    """Raw inputs of a model over SCHEMA."""
    rng = np.random.default_rng(seed)
    mask = rng.random([batch, size]) < 0.7
    mask[:, 0] = True
    return {
        "context_numeric": tf.constant(rng.uniform(18, 80, [batch, 1]), tf.float32),
        "top": tf.constant(rng.choice(["a", "b"], [batch, 1])),
        "sub": tf.constant(rng.choice(["x", "y", "z"], [batch, 1])),
        "clicked": tf.constant(rng.choice(["item1", "item2", ""], [batch, 3])),
        "example_numeric": tf.constant(rng.uniform(0, 20, [batch, size, 2]), tf.float32),
        "brand": tf.constant(rng.choice(["brand0", "brand1", "brand2"], [batch, size, 1])),
        MASK: tf.constant(mask),
    }


def without_hierarchy():
    """The schema, its categories being features like any other."""
    return SCHEMA.model_copy(update={"hierarchy": None})
