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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfr_moe.errors import UserError, validated
from tfr_moe.schema.feature import (
    ITEM,
    MASK,
    OF_ITEMS,
    PACKED,
    PADDING_LABEL,
    PAIR_SEPARATOR,
    Feature,
    Hierarchy,
    Kind,
    Scope,
    list_category,
)
from tfr_moe.utils.settings import read_mapping


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

    @model_validator(mode="before")
    @classmethod
    def _add_categories(cls, data: Any) -> Any:
        """Adds the categories of lists that come from their items."""
        tree = data.get("hierarchy") if isinstance(data, dict) else None
        if not isinstance(tree, dict) or tree.get("from") is None:
            return data
        features = [dict(f) for f in data.get("features", ())]
        names = {}
        for role in ("parent", "child"):
            column = str(tree.get(role))
            if column.startswith(ITEM):
                features.append(list_category(features, role, column))
                column = OF_ITEMS + column.removeprefix(ITEM)
            elif not column.startswith(OF_ITEMS):
                raise ValueError(
                    f"hierarchy.{role}: with `from`, expected item.NAME, got {column!r}"
                )
            names[role] = column
        return {**data, "features": features, "hierarchy": {**tree, **names}}

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
        for feature in self.features:
            self._check_ratio(feature)
        if self.hierarchy is not None:
            for role_name in ("child", "parent", "query"):
                if (name := getattr(self.hierarchy, role_name)) is not None:
                    self._check_category(role_name, name)
            if self.hierarchy.child == self.hierarchy.parent:
                raise ValueError(f"hierarchy: {self.hierarchy.child!r} is both child and parent")
        return self

    def _check_ratio(self, feature: Feature) -> None:
        if feature.ratio is None:
            return
        single = [f.name for f in self.select(feature.scope, "numeric") if f.width == 1]
        allowed = [name for name in single if name != feature.name]
        if feature.name not in single or feature.ratio not in allowed:
            raise ValueError(
                f"feature {feature.name!r}: ratio must be another {feature.scope} numeric, both of "
                f"width 1, got {feature.ratio!r}; allowed: {', '.join(allowed) or 'none'}"
            )

    def _check_category(self, role: str, name: str) -> None:
        names = [f.name for f in self.features if f.scope == "context" and f.kind == "categorical"]
        if name not in names:
            raise ValueError(
                f"hierarchy.{role} must be a categorical context feature, got {name!r}; "
                f"allowed: {', '.join(names) or 'none'}"
            )

    def role_columns(self) -> list[str]:
        """Returns the columns stored beside the features: list ID, labels, position, weight."""
        return [c for c in (self.list_id, *self.labels, self.position, self.weight) if c]

    @property
    def item_categories(self) -> tuple[str, ...]:
        """The item features, parent and child, of which the category of the list is made."""
        if self.hierarchy is None or self.hierarchy.source is None:
            return ()
        tree = self.hierarchy
        return tree.parent.removeprefix(OF_ITEMS), tree.child.removeprefix(OF_ITEMS)

    @property
    def by_clicks(self) -> bool:
        """Whether the categories of lists come from clicks."""
        return self.hierarchy is not None and self.hierarchy.query is not None

    @property
    def log_features(self) -> list[Feature]:
        """The features that a log must have: without categories that come from the items."""
        made = [f"{OF_ITEMS}{name}" for name in self.item_categories]
        return [feature for feature in self.features if feature.name not in made]

    @classmethod
    def load(cls, path: str | Path) -> FeatureSchema:
        """Reads a schema from YAML or JSON.

        Raises:
            UserError: naming the file and the invalid feature.
        """
        return cls.of(read_mapping(Path(path), "schema"), f"schema {path}")

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str = "schema") -> FeatureSchema:
        """Makes a schema of a mapping; a UserError names `where` and the invalid feature."""
        return validated(cls, data, where)

    @classmethod
    def infer(cls, frame: Any, **roles: Any) -> FeatureSchema:
        """Infers the schema of a data frame; see `tfr_moe.tables.infer_schema` for the arguments.

        Example:
            >>> import pandas as pd
            >>> rows = {"q": [1, 1, 2, 2], "click": [0, 1, 0, 1], "price": [3, 2, 5, 4]}
            >>> schema = FeatureSchema.infer(pd.DataFrame(rows), list_id="q", label="click")
            >>> schema.feature("price").scope
            'example'
        """
        from tfr_moe.tables import infer_schema

        return cls.of(infer_schema(frame, **roles).schema)

    def to_json(self) -> str:
        """Returns the schema as JSON text, without default values."""
        return json.dumps(self.as_dict(), indent=1)

    def as_dict(self) -> dict[str, Any]:
        """Returns the schema as JSON values, without default values."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)

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
            UserError: if there is none; the message lists the available ones.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        names = ", ".join(f.name for f in self.features)
        raise UserError(f"feature {name!r} is not in the schema; allowed: {names}")

    def select(self, scope: Scope, *kinds: Kind) -> Iterator[Feature]:
        """Returns the features of a scope, of all kinds or some, in the order of the schema."""
        return (f for f in self.features if f.scope == scope and (not kinds or f.kind in kinds))

    def packed_columns(self, scope: Scope) -> list[str]:
        """Returns the columns of the packed numerics of a scope; `a[0]`, `a[1]` where a is wide."""
        return [column for f in self.select(scope, "numeric") for column in f.columns]

    def stored_at(self, name: str) -> tuple[str, slice]:
        """Returns the parsed tensor that holds a feature, and its part of the last axis."""
        feature = self.feature(name)
        if feature.kind != "numeric" or not self.packed:
            return name, slice(None)
        start = self.packed_columns(feature.scope).index(feature.columns[0])
        return PACKED[feature.scope], slice(start, start + feature.width)

    def stored_numbers(self, scope: Scope) -> dict[str, list[str]]:
        """Returns the float features with the numerics of a scope, and names of their values."""
        numerics = list(self.select(scope, "numeric"))
        if self.packed and numerics:
            return {PACKED[scope]: self.packed_columns(scope)}
        return {feature.name: feature.columns for feature in numerics}

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
        too. A missing number is NaN where the model replaces it.
        """
        from tfr_moe._compat import tf

        spec: dict[str, Any] = {}
        missing = {c: f.missing_number for f in self.select(scope, "numeric") for c in f.columns}
        for name, columns in self.stored_numbers(scope).items():
            defaults = [missing[column] for column in columns]
            spec[name] = tf.io.FixedLenFeature([len(columns)], tf.float32, defaults)
        for f in self.select(scope, "categorical", "categorical_list"):
            length = f.max_length if f.kind == "categorical_list" else 1
            default = f.default or ""
            spec[f.name] = tf.io.FixedLenFeature([length], tf.string, [default] * length)
        return spec

    def role_spec(self, scope: Scope) -> dict[str, Any]:
        """Returns specs of the `role_columns` of one scope, of shape [1], with their padding.

        The context has the list ID; examples have labels, position and weight as float32.
        """
        from tfr_moe._compat import tf

        if scope == "context":
            return {self.list_id: tf.io.FixedLenFeature([1], tf.string, [""])}
        padding = dict.fromkeys(self.labels, PADDING_LABEL)
        if self.position:
            padding[self.position] = 0.0
        if self.weight:
            padding[self.weight] = 1.0
        return {n: tf.io.FixedLenFeature([1], tf.float32, [p]) for n, p in padding.items()}


Statistics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Scope -> column -> name -> number, or list of numbers."""


class FeatureTables(NamedTuple):
    """Statistics and vocabularies of the training split.

    Attributes:
        statistics: scope -> column -> {"mean": ..., "std": ...} after its `transform`, with the
            `median`, or the `quantiles` and their `positions`, of features that need them.
        vocabularies: feature -> IDs, as a list or as the path of a file with one ID per line.
    """

    statistics: Statistics
    vocabularies: Mapping[str, Sequence[str] | str]
