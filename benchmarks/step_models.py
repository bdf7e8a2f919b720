"""Models and batches whose training steps are measured, over the same generated features."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.config import applicable, make_config
from tfr_moe.schema import MASK, FeatureSchema, FeatureTables
from tfr_moe.scorers import create
from tfr_moe.training import make_optimizer

EMBEDDING = 16
CATEGORIES = 1000


class Size(NamedTuple):
    """The sizes of a step.

    Attributes:
        lists: B.
        slots: L; half of them are valid.
        width: of the input vector.
        hidden: widths of a tower.
        experts: N.
        selected: K.
        adversarial: D.
    """

    lists: int = 128
    slots: int = 60
    width: int = 300
    hidden: tuple[int, ...] = (1024, 512, 256)
    experts: int = 10
    selected: int = 4
    adversarial: int = 1

    @property
    def items(self) -> int:
        """Valid items of a batch."""
        return self.lists * (self.slots // 2)

    @property
    def products(self) -> int:
        """Multiplications of one tower for one item."""
        widths = [self.width, *self.hidden, 1]
        return sum(a * b for a, b in itertools.pairwise(widths))


QUICK = Size(lists=4, slots=8, width=40, hidden=(8,), experts=10, selected=2)


def schema_of(size: Size) -> FeatureSchema:
    """Two categories of the list and numerics of the items, which make X of the given width."""
    category = {"scope": "context", "kind": "categorical", "hash_buckets": CATEGORIES}
    numerics = size.width - 2 * EMBEDDING
    return FeatureSchema.model_validate(
        {
            "list_id": "query",
            "labels": ["purchase"],
            "hierarchy": {"child": "sub", "parent": "top"},
            "features": [
                {"name": "top", **category},
                {"name": "sub", **category},
                *(
                    {"name": f"n{i}", "scope": "example", "kind": "numeric"}
                    for i in range(numerics)
                ),
            ],
        }
    )


def batch_of(size: Size, seed: int = 1) -> tuple[dict[str, Any], Any]:
    """Raw features and labels of one batch."""
    rng = np.random.default_rng(seed)
    lists, slots = size.lists, size.slots
    mask = np.tile(np.arange(slots) < slots // 2, [lists, 1])
    numerics = rng.normal(size=[lists, slots, size.width - 2 * EMBEDDING])
    labels = np.where(mask, rng.random([lists, slots]) < 0.1, -1.0)
    features = {
        "top": tf.constant(rng.integers(0, CATEGORIES, [lists, 1]).astype(str)),
        "sub": tf.constant(rng.integers(0, CATEGORIES, [lists, 1]).astype(str)),
        "example_numeric": tf.constant(numerics, tf.float32),
        MASK: tf.constant(mask),
    }
    return features, tf.constant(labels, tf.float32)


def ours(size: Size, model: str, **settings: Any) -> Any:
    """A model of the library, compiled as training compiles it."""
    sizes = {
        "embedding_dim": EMBEDDING,
        "expert_hidden_dims": size.hidden,
        "num_experts": size.experts,
        "top_k": size.selected,
        "num_adversarial": size.adversarial,
        "preset": "paper",
    }
    config = make_config({"model": model, **applicable(model, sizes), **settings})
    schema = schema_of(size)
    statistics = {
        "context": {},
        "example": {f.name: {"mean": 0.0, "std": 1.0} for f in schema.select("example")},
    }
    tables = FeatureTables(statistics, {})
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(config.training.precision)
    try:
        built = create(model, schema, tables, config.model_dump()).build_model(model)
        built.compile(make_optimizer(config), tfr.keras.losses.get("sigmoid_cross_entropy_loss"))
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    return built


def tfr_dnn(size: Size) -> Any:
    """TFR's own DNN scorer over the numerics, in its own model builder, with Keras' AdamW."""
    schema = schema_of(size)
    builder = tfr.keras.model.ModelBuilder(
        input_creator=tfr.keras.model.FeatureSpecInputCreator(
            {}, {"example_numeric": schema.feature_spec("example")["example_numeric"]}
        ),
        preprocessor=tfr.keras.model.PreprocessorWithSpec(),
        scorer=tfr.keras.model.DNNScorer(
            hidden_layer_dims=size.hidden, output_units=1, activation="relu", use_batch_norm=False
        ),
        mask_feature_name=MASK,
        name="tfr_dnn",
    )
    model = builder.build()
    model.compile(
        tf.keras.optimizers.AdamW(1e-4), tfr.keras.losses.get("sigmoid_cross_entropy_loss")
    )
    return model


def dense_mmoe(size: Size, tasks: int = 2) -> Any:
    """MMoE as it is commonly written in Keras: Dense layers for each expert, on all slots."""
    items = tf.keras.Input([size.slots, size.width - 2 * EMBEDDING], name="example_numeric")
    experts = []
    for _ in range(size.experts):
        hidden = items
        for width in size.hidden:
            hidden = tf.keras.layers.Dense(width, activation="relu")(hidden)
        experts.append(hidden)
    stacked = tf.stack(experts, axis=2)
    scores = []
    for _ in range(tasks):
        gate = tf.keras.layers.Dense(size.experts, activation="softmax")(items)
        mixed = tf.reduce_sum(gate[..., tf.newaxis] * stacked, axis=2)
        scores.append(tf.keras.layers.Dense(1)(mixed)[..., 0])
    model = tf.keras.Model(items, tf.add_n(scores))
    model.compile(
        tf.keras.optimizers.AdamW(1e-4), tfr.keras.losses.get("sigmoid_cross_entropy_loss")
    )
    return model


class _Clock(tf.keras.callbacks.Callback):
    """When each step was over."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Records the time."""
        self.ends.append(time.perf_counter())


def fit_step(model: Any, size: Size, steps: int = 2) -> Callable[[], float]:
    """Returns a function that trains by `model.fit` and returns the seconds of a step after the
    first."""
    features, labels = batch_of(size)
    names = model.input_names
    inputs = features if len(names) > 1 else features[names[0]]
    if len(names) > 1:
        inputs = {name: features[name] for name in names}
    dataset = tf.data.Dataset.from_tensors((inputs, labels)).repeat()

    def step() -> float:
        clock = _Clock()
        model.fit(dataset, steps_per_epoch=1 + steps, verbose=0, callbacks=[clock])
        return (clock.ends[-1] - clock.ends[0]) / steps

    return step
