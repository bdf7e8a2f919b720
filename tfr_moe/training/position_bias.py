"""Position bias of clicks: a term of the training logits, and whether the data can identify it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.config import BASELINE_NAMES, RunConfig
from tfr_moe.data.builder import ElwcDatasetBuilder, collected
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.layers.features import FeatureEncoder
from tfr_moe.layers.position_bias import PositionBiasTower
from tfr_moe.schema import MASK, FeatureSchema
from tfr_moe.utils.console import make_log, warn

_SAMPLE = 20_000  # lists
_BATCH = 256
_TOO_LITTLE = 0.1
_TOWER = "position_bias_tower"


class _BiasedModel(tf.keras.Model):
    """A functional model whose loss is that of its scores plus a bias.

    Scores and metrics are without the bias, in training too. The layers are those of the given
    model, in the same order, so that checkpoints load into a model without the bias.
    """

    def __init__(self, model: tf.keras.Model, bias: tf.keras.Model):
        super().__init__(model.input, model.output, name=model.name)
        self.bias = bias

    def call(self, inputs: Mapping[str, Any], training: Any = None, mask: Any = None) -> Any:
        """The scores of the model; the position is not one of its inputs."""
        served = {name: inputs[name] for name in self.input}
        return super().call(served, training=training, mask=mask)

    def biased(self, inputs: Mapping[str, Any], scores: Any, training: bool) -> Any:
        """Scores, or a dict of them by task, with the bias of their task."""
        bias = self.bias(inputs, training=training)
        if not isinstance(scores, Mapping):
            return _added(scores, bias[..., 0])
        tasks = sorted(scores)
        return {name: _added(scores[name], bias[..., tasks.index(name)]) for name in scores}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
    ) -> tf.Tensor:
        """The loss of a training step."""
        return super().compute_loss(x, y, self.biased(x, y_pred, True), sample_weight)

    def test_step(self, data: Any) -> dict[str, Any]:
        """The loss with the bias of all lists, and metrics of the scores."""
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(data)
        scores = self(x, training=False)
        super().compute_loss(x, y, self.biased(x, scores, False), sample_weight)
        return self.compute_metrics(x, y, scores, sample_weight)


def _added(scores: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Scores [B, L] or, with an output per grade, [B, L, M], plus [B, L]."""
    return scores + (bias if len(scores.shape) == 2 else tf.expand_dims(bias, -1))


def check_position_bias(config: RunConfig, schema: FeatureSchema) -> None:
    """Raises a UserError if the schema lacks the position or a presentation feature."""
    names = config.bias.position_bias
    if names and schema.position is None:
        raise UserError("position_bias: the schema has no `position` column")
    allowed = [str(schema.position), *(feature.name for feature in schema.features)]
    for name in names:
        if name not in allowed:
            raise UserError(
                f"position_bias: {name!r} is not the position column or a feature; "
                f"allowed: {', '.join(allowed)}"
            )
    if names and schema.position not in names:
        raise UserError(f"position_bias: must contain the position column {schema.position!r}")
    if len(names) > 1 and config.model in BASELINE_NAMES:
        raise UserError(f"position_bias: {config.model} supports the position column only")


def with_position_bias(
    model: tf.keras.Model, folder: DataFolder, config: RunConfig
) -> tf.keras.Model:
    """Adds a `PositionBiasTower` to the scores in the loss of a functional model of a scorer.

    The result has the same layers and outputs, [B, L] or a dict of them by task; in `fit` and
    `evaluate` its input must also have the position [B, L, 1].
    """
    check_position_bias(config, folder.schema)
    schema, mask = folder.schema, model.input[MASK]
    chosen = set(config.bias.position_bias) - {schema.position}
    position = tf.keras.Input([None, 1], name=schema.position)
    presentation = None
    if chosen:
        encoder = _encoder(folder, chosen, config)
        scopes = [
            {name: model.input[name] for name in schema.feature_spec(scope)}
            for scope in ("context", "example")
        ]
        presentation = encoder(*scopes, mask).items
    tower = PositionBiasTower(
        len(model.output) if isinstance(model.output, Mapping) else 1,
        config.attention.max_positions,
        dropout=config.bias.position_dropout,
        seed=config.seed,
        name=_TOWER,
    )
    bias = tower(position[..., 0], presentation, mask=mask)
    inputs = {**model.input, schema.position: position}
    return _BiasedModel(model, tf.keras.Model(inputs, bias, name="position_bias"))


def _encoder(folder: DataFolder, chosen: set[str], config: RunConfig) -> FeatureEncoder:
    """An encoder of some features, which has no embeddings of others."""
    schema, tables = folder.schema, folder.tables()
    tree = schema.hierarchy
    with_tree = tree is not None and tree.child in chosen
    needed = chosen | ({tree.parent} if tree is not None and with_tree else set())
    # Packed numerics are encoded together, or not at all.
    features = tuple(f for f in schema.features if f.kind == "numeric" or f.name in needed)
    part = schema.model_copy(
        update={"features": features, "hierarchy": tree if with_tree else None}
    )
    left_out = [feature.name for feature in features if feature.name not in chosen]
    return FeatureEncoder(
        part,
        tables.statistics,
        tables.vocabularies,
        config.features.embedding_dim,
        seed=config.seed,
        left_out=left_out,
        name="presentation",
    )


def _sample(folder: DataFolder) -> tf.data.Dataset:
    """All columns of the first training lists."""
    return ElwcDatasetBuilder(folder, _BATCH).build_parsed_dataset("train").take(_SAMPLE // _BATCH)


def variation_of(values: NDArray[Any], positions: NDArray[Any]) -> tuple[float, float]:
    """How much positions vary within equal values.

    Returns the share of the values with two or more positions, and the mean square within values
    over the variance of all positions, at most 1; NaN if no value occurs twice or all positions are
    equal.
    """
    codes = np.unique(values, return_inverse=True)[1]
    counts = np.bincount(codes)
    pairs = np.unique(np.stack([codes, positions]), axis=1)
    repeated = float(np.mean(np.bincount(pairs[0].astype(np.int64)) > 1))
    means = np.bincount(codes, positions) / counts
    freedom, variance = len(codes) - len(counts), float(np.var(positions))
    if not freedom or not variance:
        return repeated, float("nan")
    square = float(np.sum((positions - means[codes]) ** 2)) / freedom
    return repeated, min(1.0, square / (variance * len(codes) / (len(codes) - 1)))


def _position_variation(folder: DataFolder) -> tuple[str | None, float, float]:
    """The feature of items, or else category, and `variation_of` its first training values."""
    schema = folder.schema
    position = str(schema.position)
    names = [feature.name for feature in schema.select("example", "categorical")]
    context = [] if schema.hierarchy is None or names else [schema.hierarchy.child]
    if not names and not context:
        return None, float("nan"), float("nan")
    sample = collected(_sample(folder), context, [*names, position])
    lengths = np.diff(sample.row_splits)
    columns = {name: sample.example[name][:, 0] for name in names}
    columns |= {name: np.repeat(sample.context[name][:, 0], lengths) for name in context}
    columns = {name: values.astype("S") for name, values in columns.items()}
    feature = max(columns, key=lambda name: len(np.unique(columns[name])))
    return feature, *variation_of(columns[feature], sample.example[position][:, 0].astype(float))


def log_variation(folder: DataFolder, config: RunConfig, console: Console) -> None:
    """Prints how much positions vary, and warns where that is too little or the monitor biased."""
    feature, repeated, within = _position_variation(folder)
    if feature is not None:
        make_log(console)(
            f"position bias: {repeated:.0%} of the values of {feature} were shown at 2 or more "
            f"positions; {within:.0%} of the variance of positions is within them"
        )
    if not within >= _TOO_LITTLE:
        warn(
            console,
            "positions hardly vary within items, so that position bias cannot be separated from "
            "relevance: the scores of this run are not unbiased",
        )
    if config.training.monitor != "loss":
        warn(
            console,
            f"monitor {config.training.monitor} is measured on biased clicks; monitor=loss selects "
            "the epoch by the loss with the bias",
        )


def bias_by_position(
    model: tf.keras.Model, folder: DataFolder
) -> dict[str, dict[str, list[float]]]:
    """The mean bias of the first training lists by position, relative to the first position.

    Returns by task, "" for a single one, `position`, `bias` and the number of `items`. The
    exponential of a bias is the odds of a click at that position over those at the first.
    """
    tasks = sorted(model.output) if isinstance(model.output, Mapping) else [""]
    last = model.bias.get_layer(_TOWER).max_positions
    sums, counts = np.zeros([last + 1, len(tasks)]), np.zeros(last + 1)
    for batch in _sample(folder):
        inputs = {name: batch[name] for name in model.bias.input}
        mask = batch[MASK].numpy()
        at = batch[folder.schema.position].numpy()[mask][:, 0].clip(0, last).astype(np.int64)
        np.add.at(sums, at, model.bias(inputs, training=False).numpy()[mask])
        counts += np.bincount(at, minlength=last + 1)
    seen = np.flatnonzero(counts)
    means = sums[seen] / counts[seen, None]
    return {
        task: {
            "position": seen.tolist(),
            "bias": (means[:, i] - means[0, i]).tolist(),
            "items": counts[seen].tolist(),
        }
        for i, task in enumerate(tasks)
    }
