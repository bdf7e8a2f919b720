"""Raw features to dense inputs, by a schema: embeddings and normalized numerics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.distribute import mean_over_items
from tfr_moe.layers.numerics import alike, complete_numbers, list_ranks, raw_run
from tfr_moe.schema import PAIR_SEPARATOR, Feature, FeatureSchema, Scope
from tfr_moe.utils.digests import sha256_of

NORMALIZED_LIMIT = 10.0


def _divisor(mean: float, std: float) -> float:
    """The deviation to divide by: 1 for a column that is constant within float32 precision."""
    # float32 resolves 6e-8 of a value and has nothing much below 1e-38.
    return std if std > max(1e-7 * abs(mean), 1e-30) else 1.0


_contents: dict[Path, list[str]] = {}


def _name_of_content(path: Path) -> str:
    """The name of a file, spelled differently for each content that it has had in this process.

    TensorFlow shares lookup tables by the name of their file, also after the file was replaced or
    the working directory was changed.
    """
    path = path.absolute()
    digests = _contents.setdefault(path, [])
    digest = sha256_of(path)
    if digest not in digests:
        digests.append(digest)
    return f"{path.parent}/{'./' * digests.index(digest)}{path.name}"


def id_lookup(feature: Feature, vocabularies: Mapping[str, Sequence[str] | str]) -> Any:
    """The layer that numbers the IDs of a feature, 0 for those out of vocabulary."""
    if feature.hash_buckets:
        return tf.keras.layers.Hashing(feature.hash_buckets, name=f"{feature.name}_hash")
    if feature.name not in vocabularies:
        raise UserError(f"feature {feature.name!r}: missing vocabulary")
    vocabulary = vocabularies[feature.name]
    if isinstance(vocabulary, str):
        path = Path(vocabulary)
        if not path.is_file():
            raise UserError(f"feature {feature.name!r}: no vocabulary file {vocabulary}")
        vocabulary = _name_of_content(path) if path.stat().st_size else []
    # A lookup needs an entry; a blank and a line break cannot occur, since values are stripped.
    return tf.keras.layers.StringLookup(
        vocabulary=vocabulary or [" "], oov_token="\n", name=f"{feature.name}_lookup"
    )


def paired_ids(schema: FeatureSchema, name: str, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The IDs of a feature; those of the child category with their parent."""
    hierarchy = schema.hierarchy
    if hierarchy is None or name != hierarchy.child:
        return features[name]
    return tf.strings.join([features[hierarchy.parent], features[name]], PAIR_SEPARATOR)


class EncodedFeatures(NamedTuple):
    """Dense features.

    Attributes:
        items: [B, L, n] input vectors X: features of the item, `list_ranks` of its numerics if
            `list_relative`, then features of its list.
        context: feature -> [B, w], the blocks of X that belong to the list.
        categories: int64 [B, 2], the numbers of the parent and the child category of each list, 0
            for unknown ones; [B, 0] without a hierarchy.
    """

    items: tf.Tensor
    context: dict[str, tf.Tensor]
    categories: tf.Tensor


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class FeatureEncoder(ConfiguredLayer):
    r"""Embeds IDs, normalizes numerics and concatenates them.

    $$ X = [x_{e,1}, \dots, x_{e,k}, x_{d,1}, \dots, x_{d,m}] $$

    (eq. 1 of Xiao et al.) with x_e embeddings and x_d normalized numerics. All of it is inside the
    graph, so that requests carry raw values.

    * An ID is looked up in its vocabulary (out of vocabulary: index 0) or hashed. The child
      category is looked up as the pair `parent > child`.
    * A `categorical_list` is the mean of the embeddings of its IDs; 0 for an empty one.
    * A numeric is transformed, standardized by the training statistics, and clipped to +-10, so
      that one corrupt value cannot overflow the towers. NaN is a missing value, see
      `complete_numbers`; buckets and an indicator of missing values stay 0 or 1.

    Args:
        schema: the schema, or its `model_dump()`.
        statistics: see `FeatureTables`.
        vocabularies: see `FeatureTables`.
        embedding_dim: width q of embeddings without a width in the schema.
        embedding_l2: weight of a penalty on the squared norm of the embeddings in use, as a mean
            over valid items. Only rows that were looked up decay, whatever the vocabulary size.
        left_out: features that are not part of X.
        list_relative: whether X also has the `list_ranks` of the items' numerics.
        embeddings_regularizer: of all embeddings, over whole tables; see `embedding_l2` for rows.

    Raises:
        UserError: for missing statistics or vocabularies, or if `left_out` names all features.
    """

    def __init__(
        self,
        schema: FeatureSchema | dict[str, Any],
        statistics: Mapping[str, Any],
        vocabularies: Mapping[str, Sequence[str] | str],
        embedding_dim: int = 16,
        embedding_l2: float = 0.0,
        seed: int | None = None,
        left_out: Sequence[str] = (),
        list_relative: bool = False,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ):
        # Numerics are normalized in float32 before the cast to a narrower compute dtype.
        super().__init__(autocast=False, **kwargs)
        schema = FeatureSchema.model_validate(schema) if isinstance(schema, dict) else schema
        statistics = {s: dict(columns) for s, columns in statistics.items()}
        vocabularies = {
            name: v if isinstance(v, str) else list(v) for name, v in vocabularies.items()
        }
        self.keep(locals())
        self._check_left_out()
        self._check_statistics()
        categorical = [f for f in self.schema.features if f.kind != "numeric"]
        self.lookups = {f.name: id_lookup(f, vocabularies) for f in categorical}
        self.embeddings = {f.name: self._embedding(f, i) for i, f in enumerate(categorical)}

    def _check_left_out(self) -> None:
        for name in self.left_out:
            self.schema.feature(name)
        if len(set(self.left_out)) == len(self.schema.features):
            raise UserError("left_out: must not contain all features")

    def _check_statistics(self) -> None:
        for feature in self.schema.features:
            needed = ["mean", "std"] * (feature.kind == "numeric")
            needed += ["median"] * (feature.missing == "median")
            needed += ["quantiles"] * (feature.transform == "quantile")
            known = self.statistics.get(feature.scope, {})
            for column in feature.columns:
                missing = [name for name in needed if name not in known.get(column, {})]
                if missing:
                    raise UserError(
                        f"statistics: no {' and '.join(missing)} of {feature.scope} column "
                        f"{column!r}"
                    )

    def _embedding(self, feature: Feature, offset: int) -> Any:
        size = feature.hash_buckets or self.lookups[feature.name].vocabulary_size()
        return tf.keras.layers.Embedding(
            size,
            feature.embedding_dim or self.embedding_dim,
            embeddings_initializer=seeded_initializer(
                self.embeddings_initializer, self.offset_seed(offset)
            ),
            embeddings_regularizer=self.embeddings_regularizer,
            name=f"{feature.name}_embedding",
            dtype=self.dtype_policy,
        )

    def call(
        self,
        context: Mapping[str, Any],
        example: Mapping[str, Any],
        mask: tf.Tensor,
        training: bool = False,
    ) -> EncodedFeatures:
        """Encodes a batch of lists, in the layer's compute dtype.

        Features of the lists and of the items, [B, L, ...], are raw, as parsed by
        `schema.feature_spec`; `mask` is bool [B, L]. Training adds the penalty on embeddings.
        """
        features = {**context, **example}
        rows = {
            name: lookup(paired_ids(self.schema, name, features))
            for name, lookup in self.lookups.items()
        }
        of_list = {
            name: tf.cast(block, self.compute_dtype)
            for name, block in self._blocks_of_list(context, rows).items()
        }
        of_item = self._embedded("example", example, rows)
        blocks = [block for name, block in of_item.items() if name not in self.left_out]
        runs = list(self._numerics("example", example))
        blocks += [values for run, values in runs if run[0].name not in self.left_out]
        ranked = {feature.name for feature in self.ranked_features()}
        if compared := [
            values[..., : sum(feature.width for feature in run)]
            for run, values in runs
            if run[0].name in ranked
        ]:
            blocks.append(list_ranks(tf.concat(compared, axis=-1), mask))
        blocks = [tf.cast(block, self.compute_dtype) for block in blocks]
        if spread := [block for name, block in of_list.items() if name not in self.left_out]:
            row = tf.expand_dims(tf.concat(spread, axis=-1), axis=1)
            blocks.append(tf.broadcast_to(row, [*tf.unstack(tf.shape(mask)), row.shape[-1]]))
        items = tf.concat(blocks, axis=-1)
        if training and self.embedding_l2 > 0 and self.lookups:
            self._add_penalty(of_item, of_list, mask)
        return EncodedFeatures(items, of_list, self._categories(rows, mask))

    def _add_penalty(
        self, of_item: Mapping[str, Any], of_list: Mapping[str, Any], mask: tf.Tensor
    ) -> None:
        """Adds the penalty on the embeddings of IDs, those of lists once for each item."""
        parts = [
            of_item[name] if name in of_item else tf.expand_dims(of_list[name], axis=1)
            for name in self.lookups
        ]
        norms = tf.add_n(
            [
                tf.reduce_sum(tf.square(tf.cast(p, tf.float32)), -1)
                + tf.zeros_like(mask, tf.float32)
                for p in parts
            ]
        )
        self.add_loss(self.embedding_l2 * mean_over_items(norms, mask))

    def ranked_features(self) -> list[Feature]:
        """The numerics whose ranks in the list are part of X; buckets have none."""
        numerics = self.schema.select("example", "numeric") if self.list_relative else ()
        return [f for f in numerics if f.name not in self.left_out and not f.bucketize]

    def _blocks_of_list(
        self, context: Mapping[str, Any], rows: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Dense blocks [B, w] by feature, numerics last."""
        blocks = self._embedded("context", context, rows)
        for run, values in self._numerics("context", context):
            widths = [len(feature.inputs) for feature in run]
            parts = tf.split(values, widths, axis=-1) if len(run) > 1 else [values]
            blocks.update(zip((feature.name for feature in run), parts, strict=True))
        return blocks

    def _embedded(
        self, scope: Scope, features: Mapping[str, Any], rows: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The embedding of each feature of IDs of one scope."""
        blocks = {}
        for feature in self.schema.select(scope, "categorical", "categorical_list"):
            vectors = self.embeddings[feature.name](rows[feature.name])
            if feature.kind == "categorical":
                blocks[feature.name] = tf.squeeze(vectors, axis=-2)
                continue
            present = tf.strings.length(features[feature.name]) > 0
            present = tf.expand_dims(tf.cast(present, vectors.dtype), axis=-1)
            total = tf.reduce_sum(vectors * present, axis=-2)
            blocks[feature.name] = tf.math.divide_no_nan(total, tf.reduce_sum(present, axis=-2))
        return blocks

    def _numerics(
        self, scope: Scope, features: Mapping[str, Any]
    ) -> Iterator[tuple[list[Feature], Any]]:
        """Runs of `alike` numerics with their values in X."""
        for run in alike(self.schema.select(scope, "numeric"), self.left_out):
            first = run[0]
            columns = [self.statistics[scope][name] for feature in run for name in feature.columns]
            value = complete_numbers(first, columns, raw_run(self.schema, run, features))
            if first.bucketize:
                yield run, value
                continue
            # An indicator of missing values, the last number, stays as it is.
            means = [s["mean"] for s in columns] + [0.0] * first.missing_indicator
            stds = [_divisor(s["mean"], s["std"]) for s in columns]
            stds += [1.0] * first.missing_indicator
            normalized = (value - means) / stds
            yield run, tf.clip_by_value(normalized, -NORMALIZED_LIMIT, NORMALIZED_LIMIT)

    def category_sizes(self) -> tuple[int, ...]:
        """How many numbers the parent and the child category have; empty without a hierarchy."""
        return tuple(self.embeddings[name].input_dim for name in self._category_names())

    def _category_names(self) -> tuple[str, ...]:
        hierarchy = self.schema.hierarchy
        return () if hierarchy is None else (hierarchy.parent, hierarchy.child)

    def _categories(self, rows: Mapping[str, Any], mask: tf.Tensor) -> tf.Tensor:
        names = self._category_names()
        if not names:
            return tf.zeros([tf.shape(mask)[0], 0], tf.int64)
        return tf.concat([rows[name] for name in names], axis=1)
