"""FeatureSchema: the one description of the data that every other part reads.

A schema names the columns of a search log and says what each one is. From it follow the parsing
specs of `tf.io`, the Keras inputs, the validation of rows, the encoding of requests and the layout of
the data-set folder, so that pipeline, training, export and client can't drift apart.

    list_id: session_id
    time: timestamp
    position: position
    labels: [purchase]
    hierarchy: {child: sub_category, parent: top_category}
    features:
      - {name: top_category, scope: context, kind: categorical}
      - {name: sub_category, scope: context, kind: categorical}
      - {name: user_age, scope: context, kind: numeric}
      - {name: price, scope: example, kind: numeric, transform: log1p}
      - {name: brand, scope: example, kind: categorical, hash_buckets: 1000}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfr_moe.errors import UserError, describe

Scope = Literal["context", "example"]
Kind = Literal["numeric", "categorical", "categorical_list"]
Transform = Literal["none", "log1p"]

MASK = "example_list_mask"
PADDING_LABEL = -1.0
PACKED = {"context": "context_numeric", "example": "example_numeric"}
PAIR_SEPARATOR = " > "

# The data-set folder.
SCHEMA_FILE = "schema.json"
MANIFEST_FILE = "manifest.json"
STATISTICS_FILE = "statistics.json"
SPLITS = ("train", "validation", "test")


class SchemaError(UserError):
    """A schema that does not hold together; the message names the feature."""


def vocabulary_file(feature: str) -> str:
    """The path of a feature's vocabulary inside a data-set folder."""
    return f"vocabulary/{feature}.txt"


def shard_file(split: str, shard: int, num_shards: int) -> str:
    """The name of one TFRecord file, such as `train-00000-of-00008.tfrecord.gz`."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"


class Feature(BaseModel):
    """One feature.

    Attributes:
        name: the column's name in the rows and, unless packed, in the records.
        scope: `context` for one value a list, `example` for one value an item.
        kind: `numeric` (float32, `width` values), `categorical` (one id) or `categorical_list`
            (up to `max_length` ids, such as a click history). Ids are strings; whole numbers in the
            rows are written as decimal strings.
        width: number of values of a numeric feature.
        default: what stands in for a missing value. A numeric feature without one is required; a
            missing id is the empty string, which is out of vocabulary.
        required: refuse rows without a value. True by default for numerics without a default.
        transform: `log1p` takes sign(x) log(1 + |x|) before normalisation, for prices and counts.
        hash_buckets: ids are hashed into so many buckets; without it a vocabulary is built.
        max_vocabulary: a vocabulary keeps so many of the most frequent ids.
        min_count: ids seen less often in the training split are left out of the vocabulary.
        embedding_dim: width of the embedding; None takes the run's `embedding_dim`.
        max_length: number of ids kept of a `categorical_list`, the latest (last) ones.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    scope: Scope
    kind: Kind
    width: int = Field(1, ge=1)
    default: float | str | None = None
    required: bool | None = None
    transform: Transform = "none"
    hash_buckets: int | None = Field(None, ge=1)
    max_vocabulary: int | None = Field(None, ge=1)
    min_count: int = Field(1, ge=1)
    embedding_dim: int | None = Field(None, ge=1)
    max_length: int = Field(20, ge=1)

    @model_validator(mode="after")
    def _check_kind(self) -> Feature:
        given = self.model_fields_set
        numeric = self.kind == "numeric"
        ids_only = {"hash_buckets", "max_vocabulary", "min_count", "embedding_dim"}
        misplaced = given & (ids_only if numeric else {"width", "transform"})
        if self.kind != "categorical_list":
            misplaced |= given & {"max_length"}
        if misplaced:
            raise ValueError(f"{', '.join(sorted(misplaced))} does not apply to kind {self.kind!r}")
        if numeric and isinstance(self.default, str):
            raise ValueError(f"default must be a number for kind 'numeric', got {self.default!r}")
        if isinstance(self.default, float) and not math.isfinite(self.default):
            raise ValueError(f"default must be finite, got {self.default}")
        if not numeric and isinstance(self.default, float):
            raise ValueError(f"default must be a string for kind {self.kind!r}")
        if self.hash_buckets and given & {"max_vocabulary", "min_count"}:
            raise ValueError("hash_buckets excludes max_vocabulary and min_count")
        if self.required and self.default is not None:
            raise ValueError("required excludes default")
        return self

    @property
    def is_required(self) -> bool:
        """Whether a row without a value is refused."""
        if self.required is not None:
            return self.required
        return self.kind == "numeric" and self.default is None

    @property
    def has_vocabulary(self) -> bool:
        """Whether ids are looked up in a vocabulary file (else they are numeric or hashed)."""
        return self.kind != "numeric" and self.hash_buckets is None

    @property
    def columns(self) -> list[str]:
        """The names of a numeric feature's values: its own, or `a[0]`, `a[1]`, ... if it is wide."""
        if self.width == 1:
            return [self.name]
        return [f"{self.name}[{i}]" for i in range(self.width)]


class Hierarchy(BaseModel):
    """The category tree: `child` is the sub-category (SC), `parent` the top category (TC).

    Both are categorical context features. A child name may stand under several parents, so the pair
    `parent > child` is the child's key wherever it is looked up or hashed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    child: str
    parent: str


class FeatureSchema(BaseModel):
    """The description of one data set.

    Attributes:
        features: the features that the model may read.
        list_id: column that tells which rows form one list (session, query instance).
        labels: columns with the graded relevance, >= 0; the first one is the primary label.
        time: column with the time of the list, for the split by time: ISO 8601 or Unix seconds.
        position: column with the place (1 is first) at which the item was shown.
        weight: column with a weight of the item in the loss, >= 0.
        hierarchy: the category tree, needed by the gates.
        packed: numerics of one scope are stored as one float feature (`context_numeric`,
            `example_numeric`) in the order of the features; False stores each under its own name.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query_id",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> schema.label
        'click'
        >>> schema.packed_columns("example")
        ['price']
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    list_id: str
    labels: tuple[str, ...] = Field(min_length=1)
    features: tuple[Feature, ...] = Field(min_length=1)
    time: str | None = None
    position: str | None = None
    weight: str | None = None
    hierarchy: Hierarchy | None = None
    packed: bool = True

    @model_validator(mode="after")
    def _check_names(self) -> FeatureSchema:
        seen: set[str] = {MASK, *PACKED.values()}
        for feature in self.features:
            if feature.name in seen:
                raise ValueError(f"feature {feature.name!r}: the name is taken twice or reserved")
            seen.add(feature.name)
        for role in self.role_columns():
            if role in seen:
                raise ValueError(
                    f"{role!r}: list_id, labels, position, weight and the features need a name each"
                )
            seen.add(role)
        if self.hierarchy is not None:
            for role_name in ("child", "parent"):
                self._check_category(role_name, getattr(self.hierarchy, role_name))
            if self.hierarchy.child == self.hierarchy.parent:
                raise ValueError(f"hierarchy: {self.hierarchy.child!r} is child and parent at once")
        return self

    def _check_category(self, role: str, name: str) -> None:
        names = [f.name for f in self.features if f.scope == "context" and f.kind == "categorical"]
        if name not in names:
            raise ValueError(
                f"hierarchy.{role} must be a categorical context feature, got {name!r}; "
                f"there are: {', '.join(names) or 'none'}"
            )

    def role_columns(self) -> list[str]:
        """The columns that are stored beside the features: list id, labels, position, weight."""
        return [c for c in (self.list_id, *self.labels, self.position, self.weight) if c]

    @classmethod
    def load(cls, path: str | Path) -> FeatureSchema:
        """Reads a schema from YAML or JSON.

        Raises:
            SchemaError: in one line, with the file and the feature at fault.
        """
        path = Path(path)
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SchemaError(f"schema {path}: cannot be read ({error.strerror})") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            line = " ".join(str(error).split())
            raise SchemaError(f"schema {path}: not valid YAML or JSON ({line})") from error
        if not isinstance(data, dict):
            raise SchemaError(f"schema {path}: must be a mapping with list_id, labels and features")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SchemaError(f"schema {path}: {describe(error, data)}") from error

    def to_json(self) -> str:
        """The schema as JSON text, without what is at its default."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), indent=1)

    def save(self, path: str | Path) -> None:
        """Writes the schema as JSON; `load` reads it back equal."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @property
    def label(self) -> str:
        """The primary label."""
        return self.labels[0]

    def feature(self, name: str) -> Feature:
        """The feature of that name.

        Raises:
            SchemaError: if there is none; the message lists those there are.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        names = ", ".join(f.name for f in self.features)
        raise SchemaError(f"feature {name!r} is not in the schema; there are: {names}")

    def select(self, scope: Scope, *kinds: Kind) -> Iterator[Feature]:
        """The features of a scope, of all kinds or the given ones, in the schema's order."""
        return (f for f in self.features if f.scope == scope and (not kinds or f.kind in kinds))

    def packed_columns(self, scope: Scope) -> list[str]:
        """Column names of a scope's packed numeric feature; `a[0]`, `a[1]` where a is wide."""
        return [column for f in self.select(scope, "numeric") for column in f.columns]

    def lookup_key(self, feature: Feature, values: Mapping[str, Any]) -> str:
        """The string under which an id is counted and looked up: the pair for the child category."""
        own = values[feature.name]
        if self.hierarchy is not None and feature.name == self.hierarchy.child:
            return f"{values[self.hierarchy.parent]}{PAIR_SEPARATOR}{own}"
        return own

    def feature_spec(self, scope: Scope) -> dict[str, Any]:
        """`tf.io.FixedLenFeature` specs of the model's features of one scope.

        Numerics are float32 of shape [m] (packed) or [width]; ids are strings of shape [1] or
        [max_length], with the empty string for nothing. Every spec has a default, which is also what
        padded items read; whether a value is missing is for the pipeline, or for a request the client
        and the exported graph, to say.
        """
        from tfr_moe._compat import tf

        spec: dict[str, Any] = {}
        numerics = list(self.select(scope, "numeric"))
        defaults = {f.name: [float(f.default or 0.0)] * f.width for f in numerics}
        if self.packed and numerics:
            flat = [value for f in numerics for value in defaults[f.name]]
            spec[PACKED[scope]] = tf.io.FixedLenFeature([len(flat)], tf.float32, flat)
        elif numerics:
            for f in numerics:
                spec[f.name] = tf.io.FixedLenFeature([f.width], tf.float32, defaults[f.name])
        for f in self.select(scope, "categorical", "categorical_list"):
            length = f.max_length if f.kind == "categorical_list" else 1
            default = str(f.default or "")
            spec[f.name] = tf.io.FixedLenFeature([length], tf.string, [default] * length)
        return spec

    def label_spec(self) -> dict[str, Any]:
        """Specs of the labels: float32 of shape [1], -1 at padded items."""
        from tfr_moe._compat import tf

        return {
            name: tf.io.FixedLenFeature([1], tf.float32, [PADDING_LABEL]) for name in self.labels
        }

    def bookkeeping_spec(self, scope: Scope) -> dict[str, Any]:
        """Specs of what evaluation reads besides: the list id; the position; the weight."""
        from tfr_moe._compat import tf

        if scope == "context":
            return {self.list_id: tf.io.FixedLenFeature([1], tf.string, [""])}
        spec: dict[str, Any] = {}
        if self.position:
            spec[self.position] = tf.io.FixedLenFeature([1], tf.float32, [0.0])
        if self.weight:
            spec[self.weight] = tf.io.FixedLenFeature([1], tf.float32, [1.0])
        return spec


class FeatureTables(NamedTuple):
    """What the training split says about the features.

    Attributes:
        statistics: scope -> column -> {"mean": ..., "std": ...} after the feature's transform.
        vocabularies: feature -> its ids, as a list or as the path of a file with one id a line.
    """

    statistics: Mapping[str, Mapping[str, Mapping[str, float]]]
    vocabularies: Mapping[str, Sequence[str] | str]
