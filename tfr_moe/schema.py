"""FeatureSchema: the one description of the data that every other part reads.

A schema names the columns of a search log and says what each one is. From it follow the parsing
specs of `tf.io`, the Keras inputs, the validation of rows, the encoding of requests and the layout
of the data-set folder, so that pipeline, training, export and client agree.

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
    """An inconsistent schema; the message names the feature."""


def vocabulary_file(feature: str) -> str:
    """Returns the path of the vocabulary of a feature in a data-set folder."""
    return f"vocabulary/{feature}.txt"


def shard_file(split: str, shard: int, num_shards: int) -> str:
    """Returns the name of a TFRecord file, such as `train-00000-of-00008.tfrecord.gz`."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"


def description_files(folder: Path) -> list[str]:
    """The paths of schema, statistics and vocabularies inside a data-set folder."""
    vocabularies = sorted(path.name for path in folder.glob("vocabulary/*.txt"))
    return [SCHEMA_FILE, STATISTICS_FILE, *(f"vocabulary/{name}" for name in vocabularies)]


def shard_files(folder: Path, split: str = "*") -> list[str]:
    """The sorted names of the TFRecord files of a split, or of all splits, in a folder."""
    return sorted(path.name for path in folder.glob(f"{split}-*-of-*.tfrecord.gz"))


class Feature(BaseModel):
    """One feature.

    Attributes:
        name: the column's name in the rows and, unless packed, in the records.
        scope: `context` for one value per list, `example` for one value per item.
        kind: `numeric` (float32, `width` values), `categorical` (one ID) or `categorical_list`
            (up to `max_length` IDs, such as a click history). IDs are strings; integers in the rows
            are written as decimal strings.
        width: number of values of a numeric feature.
        default: replaces a missing value. A numeric feature without one is required; a missing ID
            is the empty string, which is out of vocabulary.
        required: rejects rows without a value; by default True for numerics without a default.
        transform: `log1p` takes sign(x) log(1 + |x|) before normalisation, for prices and counts.
        hash_buckets: number of buckets into which IDs are hashed; without it a vocabulary is built.
        max_vocabulary: maximum number of IDs in the vocabulary, the most frequent ones.
        min_count: IDs with fewer occurrences in the training split are out of vocabulary.
        embedding_dim: width of the embedding; by default the `embedding_dim` of the run.
        max_length: maximum number of IDs of a `categorical_list`, the last ones.
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
        """Whether a row without a value is rejected."""
        if self.required is not None:
            return self.required
        return self.kind == "numeric" and self.default is None

    @property
    def has_vocabulary(self) -> bool:
        """Whether IDs are looked up in a vocabulary file (else numeric or hashed)."""
        return self.kind != "numeric" and self.hash_buckets is None

    @property
    def columns(self) -> list[str]:
        """Names of a numeric feature's values: its name, or `a[0]`, `a[1]`, ... if it is wide."""
        if self.width == 1:
            return [self.name]
        return [f"{self.name}[{i}]" for i in range(self.width)]


class Hierarchy(BaseModel):
    """The category tree: `child` is the sub-category (SC), `parent` the top category (TC).

    Both are categorical context features. A child name may occur under several parents, so the pair
    `parent > child` is the key by which a child is looked up or hashed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    child: str
    parent: str


class FeatureSchema(BaseModel):
    """The description of one data set.

    Attributes:
        features: the features that the model may read.
        list_id: column with the ID of the list of a row (session, query instance).
        labels: columns with the graded relevance, >= 0; the first one is the primary label.
        time: column with the time of the list, for the split by time: ISO 8601 or Unix seconds.
        position: column with the position (1 is first) at which the item was shown.
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
                raise ValueError(f"feature {feature.name!r}: the name is used twice or reserved")
            seen.add(feature.name)
        for role in self.role_columns():
            if role in seen:
                raise ValueError(f"column {role!r} is used twice")
            seen.add(role)
        if self.hierarchy is not None:
            for role_name in ("child", "parent"):
                self._check_category(role_name, getattr(self.hierarchy, role_name))
            if self.hierarchy.child == self.hierarchy.parent:
                raise ValueError(f"hierarchy: {self.hierarchy.child!r} is both child and parent")
        return self

    def _check_category(self, role: str, name: str) -> None:
        names = [f.name for f in self.features if f.scope == "context" and f.kind == "categorical"]
        if name not in names:
            raise ValueError(
                f"hierarchy.{role} must be a categorical context feature, got {name!r}; "
                f"there are: {', '.join(names) or 'none'}"
            )

    def role_columns(self) -> list[str]:
        """Returns the columns stored beside the features: list ID, labels, position, weight."""
        return [c for c in (self.list_id, *self.labels, self.position, self.weight) if c]

    @classmethod
    def load(cls, path: str | Path) -> FeatureSchema:
        """Reads a schema from YAML or JSON.

        Raises:
            SchemaError: naming the file and the invalid feature.
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

    @classmethod
    def infer(cls, frame: Any, **roles: Any) -> FeatureSchema:
        """Infers the schema of a data frame; see `tfr_moe.tables.infer_schema` for the arguments.

        Args:
            frame: a pandas, polars or pyarrow data frame, one row per item.
            **roles: `list_id` and `label`, and optionally `time`, `position`, `weight`,
                `hierarchy`, `ignore`, `keep`.

        Raises:
            UserError: for a column that does not exist, or a frame without features.

        Example:
            >>> import pandas as pd
            >>> rows = {"q": [1, 1, 2, 2], "click": [0, 1, 0, 1], "price": [3, 2, 5, 4]}
            >>> frame = pd.DataFrame(rows)
            >>> schema = FeatureSchema.infer(frame, list_id="q", label="click")
            >>> schema.feature("price").scope
            'example'
        """
        from tfr_moe.tables import infer_schema

        return cls.model_validate(infer_schema(frame, **roles).schema)

    def to_json(self) -> str:
        """Returns the schema as JSON text, without default values."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), indent=1)

    def save(self, path: str | Path) -> None:
        """Writes the schema as JSON; `load` reads it back equal."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @property
    def label(self) -> str:
        """The primary label."""
        return self.labels[0]

    def feature(self, name: str) -> Feature:
        """Returns the feature of that name.

        Raises:
            SchemaError: if there is none; the message lists the available ones.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        names = ", ".join(f.name for f in self.features)
        raise SchemaError(f"feature {name!r} is not in the schema; there are: {names}")

    def select(self, scope: Scope, *kinds: Kind) -> Iterator[Feature]:
        """Returns the features of a scope, of all kinds or some, in the order of the schema."""
        return (f for f in self.features if f.scope == scope and (not kinds or f.kind in kinds))

    def packed_columns(self, scope: Scope) -> list[str]:
        """Returns the columns of the packed numerics of a scope; `a[0]`, `a[1]` where a is wide."""
        return [column for f in self.select(scope, "numeric") for column in f.columns]

    def stored_numbers(self, scope: Scope) -> dict[str, list[str]]:
        """Returns the float features of the records of a scope, with a name for each value."""
        numerics = list(self.select(scope, "numeric"))
        if self.packed and numerics:
            stored = {PACKED[scope]: self.packed_columns(scope)}
        else:
            stored = {feature.name: feature.columns for feature in numerics}
        if scope == "example":
            roles = (*self.labels, self.position, self.weight)
            stored |= {name: [name] for name in roles if name}
        return stored

    def lookup_key(self, feature: Feature, values: Mapping[str, Any]) -> str:
        """Returns the text by which an ID is looked up: the pair for the child category."""
        text = values[feature.name]
        if self.hierarchy is not None and feature.name == self.hierarchy.child:
            return f"{values[self.hierarchy.parent]}{PAIR_SEPARATOR}{text}"
        return text

    def feature_spec(self, scope: Scope) -> dict[str, Any]:
        """Returns `tf.io.FixedLenFeature` specs of the features of one scope.

        Numerics are float32 of shape [m] (packed) or [width]; IDs are strings of shape [1] or
        [max_length], padded with the empty string. Every spec has a default, which padded items get
        too; missing values are rejected by the pipeline, the client or the exported graph.
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
        """Returns specs of the labels: float32 of shape [1], -1 at padded items."""
        from tfr_moe._compat import tf

        return {
            name: tf.io.FixedLenFeature([1], tf.float32, [PADDING_LABEL]) for name in self.labels
        }

    def bookkeeping_spec(self, scope: Scope) -> dict[str, Any]:
        """Returns specs of what only evaluation reads: the list ID, or position and weight."""
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
    """Statistics and vocabularies of the training split.

    Attributes:
        statistics: scope -> column -> {"mean": ..., "std": ...} after its `transform`.
        vocabularies: feature -> IDs, as a list or as the path of a file with one ID per line.
    """

    statistics: Mapping[str, Mapping[str, Mapping[str, float]]]
    vocabularies: Mapping[str, Sequence[str] | str]
