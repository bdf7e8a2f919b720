"""Weights of a new run from those of a finished one, by variable, vocabulary entry and feature."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfr_moe._compat import tf
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.layers.features import FeatureEncoder
from tfr_moe.schema import PAIR_SEPARATOR, FeatureSchema, Scope
from tfr_moe.scorers.base import CATEGORY_HEAD, FEATURES, find_layer
from tfr_moe.training.run import load_run

Array = NDArray[Any]

_NEW = -1
_SAME = (
    *("scope", "kind", "width", "ratio", "clip", "transform", "bucketize"),
    *("missing", "missing_indicator", "hash_buckets"),
)
"""What of a feature the meaning of its weights depends on."""
_OF_DOMAINS = re.compile(
    r"star/(norm/(domain_|moving_)|towers/(kernel|bias)_|domain_embedding)"
    r"|ple/(level_\d+/(gate_kernel|domain_experts)|towers)"
)
"""Variables whose first axis is that of the domains, with several slots for each in some."""
_LAST_OF_DOMAINS = re.compile(r"ple/level_\d+/shared_gate_kernel")
_LINEAR = re.compile(r"kernel|factor1")
"""Weights that multiply features: 0 for a new feature leaves the scores as they were."""


class WarmStart:
    """The model that a run starts from, in place of random weights.

    Weights are taken by the name of their variable. Rows of embeddings follow the entries of the
    vocabularies, slots of domains (`ple`, `star`) their categories:

    * an entry of both vocabularies keeps its row, wherever it is now;
    * a new entry starts as the row of entries out of vocabulary, a new domain as that of unknown
      categories;
    * a new sub-category starts as the mean of the sub-categories of its top category, if there are
      any. Gates are linear in the embedding, so its gate starts at the mean of their logits;
    * the rows of a `CategoryHead` follow the categories in the same way;
    * a new feature has weights 0 where it enters, so that the scores are those of before.

    Numerics are normalized by the statistics of the earlier run, for which its weights were
    trained, and only new features by those of the data. A model that has seen no step yet therefore
    scores lists as the earlier one does, but for new sub-categories, and for all lists if a new top
    category adds an expert to `ple` of two levels and more. The optimizer starts afresh.

    Args:
        run: folder of a finished run of a neural model.

    Raises:
        UserError: if there is none.

    Example:
        config = load_config("runs/monday/config.yaml")
        train("data/tuesday", "runs/tuesday", config, start="runs/monday")
    """

    def __init__(self, run: str | Path):
        self.path = Path(run)
        source = load_run(self.path)
        self._schema = source.schema
        self._statistics = DataFolder(self.path).statistics
        self._variables = {variable.name: variable for variable in source.model.variables}
        self._encoders = _encoders_of(source.model)
        ple = find_layer(source.model, "ple")
        self._domain_experts = 1 if ple is None else ple.num_domain_experts

    def described(self, folder: DataFolder) -> DataFolder:
        """The data set with the statistics of the earlier run for the features of both.

        A column without variance in the earlier data has had no influence: it gets new statistics.

        Raises:
            UserError: naming the feature, or the role, that the schema has changed.
        """
        self._check_schema(folder.schema, f"data {folder.path}")
        merged = {scope: dict(columns) for scope, columns in folder.tables().statistics.items()}
        for scope, columns in self._statistics.items():
            known = {c: s for c, s in columns.items() if c in merged.get(scope, {})}
            merged.setdefault(scope, {}).update({c: s for c, s in known.items() if s["std"] > 0})
        return folder.with_statistics(merged)

    def _check_schema(self, schema: FeatureSchema, where: str) -> None:
        run = f"run {self.path}"
        now = {feature.name: feature for feature in schema.features}
        for feature in self._schema.features:
            if feature.name not in now:
                raise UserError(
                    f"{where}: has no feature {feature.name!r}, which {run} was trained on; keep "
                    "it in the schema, its values may be missing"
                )
            for name in _SAME:
                old, new = getattr(feature, name), getattr(now[feature.name], name)
                if old != new:
                    raise UserError(
                        f"{where}: feature {feature.name!r} has {name}={new!r}, in {run} "
                        f"{name}={old!r}; only a run without a start can use it"
                    )
        for name in ("labels", "hierarchy", "packed"):
            if getattr(schema, name) != getattr(self._schema, name):
                raise UserError(f"{where}: {name} differs from that of {run}")

    def apply(self, model: tf.keras.Model, folder: DataFolder) -> None:
        """Sets the weights of a model that was built for a data set of `described`.

        Raises a UserError for a variable that only one of the two models has, or whose shape is not
        that of the vocabularies, features and domains.
        """
        tables, known = _tables_of(model), {feature.name for feature in self._schema.features}
        variables = {
            variable.name: variable
            for variable in model.variables
            if variable.name not in tables or tables[variable.name][1] in known
        }
        for name in sorted(variables.keys() ^ self._variables.keys()):
            raise UserError(
                f"run {self.path}: {name.partition(':')[0]} is a weight of "
                f"{'the new model' if name in variables else 'this run'} only; start from a run "
                "of the same model and settings"
            )
        encoders = _encoders_of(model)
        widths = [
            _columns(self._encoders[layer], encoder, f"data {folder.path}")
            for layer, encoder in encoders.items()
        ]
        widths.sort(key=lambda change: -change[0])
        domains = _domain_names(encoders[FEATURES])
        for name, variable in variables.items():
            value = self._variables[name].numpy()
            if name in tables:
                value = self._moved(value, *tables[name])
            else:
                value = self._by_domain(name, value, domains)
            variable.assign(self._widened(variable, value, widths))

    def _moved(self, table: Array, now: FeatureEncoder, name: str) -> Array:
        """The rows of a feature's old table in the order of its new vocabulary."""
        if not now.schema.feature(name).has_vocabulary:
            return table
        before, tree = self._encoders[now.name], now.schema.hierarchy
        old, new = (encoder.lookups[name].get_vocabulary() for encoder in (before, now))
        is_child = tree is not None and tree.child == name
        parents = {*_domain_names(before), *_domain_names(now)} if is_child else None
        return _rows(table, old, new, parents)

    def _by_domain(self, name: str, value: Array, domains: Sequence[str]) -> Array:
        """The value with slots for the domains of those names, new ones as the unknown one."""
        before = _domain_names(self._encoders[FEATURES])
        last = _LAST_OF_DOMAINS.match(name) is not None
        if domains == before or not (last or _OF_DOMAINS.match(name)):
            return value
        slots = self._domain_experts if last or "domain_experts" in name else 1
        axis = value.ndim - 1 if last else 0
        number = {name: index for index, name in enumerate(before)}
        first = np.array([number.get(name, 0) for name in domains])[:, np.newaxis] * slots
        index = (first + np.arange(slots)).ravel()
        rest = np.arange(len(before) * slots, value.shape[axis])
        return np.take(value, np.concatenate([index, rest]), axis=axis)

    def _widened(self, variable: Any, value: Array, widths: Sequence[tuple[int, Array]]) -> Array:
        """The value with slots for new features along the axis of the input vector."""
        shape = tuple(variable.shape)
        axes = [a for a, (n, o) in enumerate(zip(shape, value.shape, strict=True)) if n != o]
        if not axes:
            return value
        axis = axes[0]
        before, more = value.shape[axis], shape[axis] - value.shape[axis]
        for width, columns in widths:
            if len(axes) == 1 and len(columns) - width == more and before >= width:
                columns = np.concatenate([columns, np.arange(width, before)])
                start = variable.numpy()
                if _LINEAR.search(variable.name):
                    start = np.zeros_like(start)
                known = columns != _NEW
                start = np.moveaxis(start, axis, 0).copy()
                start[known] = np.moveaxis(value, axis, 0)[columns[known]]
                return np.moveaxis(start, 0, axis)
        raise UserError(
            f"run {self.path}: {variable.name.partition(':')[0]} has shape "
            f"{list(value.shape)}, the model {list(shape)}; start from a run of the same settings"
        )


def _encoders_of(model: tf.keras.Model) -> dict[str, FeatureEncoder]:
    return {layer.name: layer for layer in model.layers if isinstance(layer, FeatureEncoder)}


def _tables_of(model: tf.keras.Model) -> dict[str, tuple[FeatureEncoder, str]]:
    """Variable -> the encoder and the feature by whose IDs its rows are numbered."""
    encoders = _encoders_of(model)
    tables = {
        embedding.embeddings.name: (encoder, name)
        for encoder in encoders.values()
        for name, embedding in encoder.embeddings.items()
    }
    head, tree = find_layer(model, CATEGORY_HEAD), encoders[FEATURES].schema.hierarchy
    if head is not None and tree is not None:
        for name, table in zip((tree.parent, tree.child), head.tables, strict=True):
            tables[table.embeddings.name] = encoders[FEATURES], name
    return tables


def _domain_names(encoder: FeatureEncoder) -> list[str]:
    """The vocabulary of the top categories, which are the domains of `ple` and `star`."""
    tree = encoder.schema.hierarchy
    if tree is None or not encoder.schema.feature(tree.parent).has_vocabulary:
        return []
    return list(encoder.lookups[tree.parent].get_vocabulary())


def _parent_of(word: str, parents: Collection[str]) -> str:
    """The parent of an entry `parent > child`, the longest of `parents` that it begins with."""
    parts = word.split(PAIR_SEPARATOR)
    prefixes = [PAIR_SEPARATOR.join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    return next((prefix for prefix in prefixes if prefix in parents), parts[0])


def _rows(
    before: Array, old: Sequence[str], new: Sequence[str], parents: Collection[str] | None = None
) -> Array:
    """The rows of the entries of a new vocabulary, the first of each being out of vocabulary.

    `parents` are the parent categories, for entries that are pairs.
    """
    number = {word: row for row, word in enumerate(old)}
    rows = np.array([number.get(word, _NEW) for word in new])
    rows[0] = 0
    result = before[np.maximum(rows, 0)]
    if parents is not None and (rows == _NEW).any():
        families: dict[str, list[int]] = {}
        for row, word in enumerate(old[1:], start=1):
            families.setdefault(_parent_of(word, parents), []).append(row)
        for row in np.flatnonzero(rows == _NEW):
            siblings = families.get(_parent_of(new[row], parents))
            if siblings:
                result[row] = before[siblings].mean(axis=0)
    return result


def _layout(encoder: FeatureEncoder) -> list[tuple[str, int]]:
    """Names and widths of the blocks of the input vector, in its order."""
    blocks = []
    scopes: tuple[Scope, ...] = ("example", "context")
    for scope in scopes:
        for kinds in (("categorical", "categorical_list"), ("numeric",)):
            for feature in encoder.schema.select(scope, *kinds):
                if feature.name not in encoder.left_out:
                    width = len(feature.inputs)
                    if feature.kind != "numeric":
                        width = encoder.embeddings[feature.name].output_dim
                    blocks.append((feature.name, width))
        if scope == "example":
            blocks += [(f"{f.name} (rank)", f.width) for f in encoder.ranked_features()]
    return blocks


def _columns(before: FeatureEncoder, now: FeatureEncoder, where: str) -> tuple[int, Array]:
    """The old width of the input vector, and the old column of each new one."""
    first, total = {}, 0
    for name, width in _layout(before):
        first[name] = total, width
        total += width
    columns = []
    for name, width in _layout(now):
        start, old = first.get(name, (_NEW, width))
        if old != width:
            raise UserError(
                f"{where}: feature {name!r} has embeddings of width {width}, the run it starts "
                f"from has {old}"
            )
        columns.append(np.full(width, _NEW) if start == _NEW else start + np.arange(width))
    index = np.concatenate(columns)
    known = index[index != _NEW]
    if not np.array_equal(known, np.arange(total)):
        raise UserError(f"{where}: its features are in another order than in the run")
    return total, index
