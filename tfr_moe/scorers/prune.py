"""A model for some categories alone: embeddings and experts that only others need are left out."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.gating import NoisyTopKGate
from tfr_moe.layers.star import StarTowers
from tfr_moe.schema import PAIR_SEPARATOR, Hierarchy
from tfr_moe.scorers.base import FeatureScorer
from tfr_moe.scorers.category_gates import decisions, mixing_layer, parent_rows
from tfr_moe.scorers.mixture import MixtureScorer
from tfr_moe.scorers.multitask import CategoryMMoEScorer


class Pruned(NamedTuple):
    """A smaller model.

    Attributes:
        model: gives the same scores as the whole one for lists of the kept categories.
        categories: the keys `parent > child` of the kept sub-categories.
        experts: for each of its experts the number that it has in the whole model.
    """

    model: tf.keras.Model
    categories: list[str]
    experts: list[int]


def matching_categories(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """The keys that are meant by names of top categories and by keys `parent > child`.

    Raises:
        UserError: for a name that stands for nothing, with the nearest one that does.

    Example:
        >>> known = ["toys > balls", "toys > dolls", "food > bread", "food > milk"]
        >>> matching_categories(["toys", "food > milk"], known)
        ['toys > balls', 'toys > dolls', 'food > milk']
    """
    parents = {key.split(PAIR_SEPARATOR)[0] for key in known}
    for name in wanted:
        if name not in parents and name not in known:
            close = difflib.get_close_matches(name, [*parents, *known], n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(f"categories: the model knows no category {name!r}{hint}")
    chosen = set(wanted)
    return [k for k in known if k in chosen or k.split(PAIR_SEPARATOR)[0] in chosen]


def pruned(
    scorer: FeatureScorer, model: tf.keras.Model, wanted: Sequence[str], unknown: bool = False
) -> Pruned:
    """Leaves out what the other categories need.

    Experts go where the gate sees the category alone: then it is known which of them any of these
    categories chooses. Embeddings of other categories go in every model.

    Args:
        scorer: made `model`.
        model: the trained model.
        wanted: names of top categories, or keys `parent > child`.
        unknown: keep the experts that unknown categories choose as well.

    Raises:
        UserError: without a category tree or its vocabularies, and for categories that there aren't.
    """
    hierarchy = scorer.schema.hierarchy
    if hierarchy is None:
        raise UserError("categories: the schema names no `hierarchy`")
    words = {name: _words(scorer, name) for name in (hierarchy.child, hierarchy.parent)}
    keys = matching_categories(wanted, words[hierarchy.child])
    if not keys:
        raise UserError("categories: none is named")
    parents = {key.split(PAIR_SEPARATOR)[0] for key in keys}
    kept = {
        hierarchy.child: keys,
        hierarchy.parent: [name for name in words[hierarchy.parent] if name in parents],
    }
    experts = _chosen_experts(scorer, model, hierarchy, keys, unknown)
    small = type(scorer).from_config(_smaller(scorer, kept, experts)).build_model(model.name)
    _copy_weights(model, small, kept, experts)
    return Pruned(small, keys, experts)


def _words(scorer: FeatureScorer, name: str) -> list[str]:
    found = scorer.tables.vocabularies.get(name)
    if found is None:
        raise UserError(f"categories: feature {name!r} has no vocabulary, hash_buckets won't do")
    text = Path(found).read_text(encoding="utf-8").splitlines() if isinstance(found, str) else found
    return list(text)


def is_gated_by_category(scorer: FeatureScorer) -> bool:
    """Whether a scorer's experts are chosen by the category alone."""
    if isinstance(scorer, CategoryMMoEScorer):
        return True
    hierarchy = scorer.schema.hierarchy
    return (
        isinstance(scorer, MixtureScorer)
        and hierarchy is not None
        and scorer.gate_features == (hierarchy.child,)
    )


def _chosen_experts(
    scorer: FeatureScorer,
    model: tf.keras.Model,
    hierarchy: Hierarchy,
    keys: Sequence[str],
    unknown: bool,
) -> list[int]:
    layer = mixing_layer(model)
    if layer is None or not is_gated_by_category(scorer):
        return []
    encoder = model.get_layer("features")
    children = tf.cast(encoder.lookups[hierarchy.child](tf.constant(keys)), tf.int32)
    parents = parent_rows(encoder, hierarchy, keys)
    if unknown:
        # Unknown sub-categories: of each parent that is kept, and of an unknown one.
        others = tf.concat([tf.unique(parents).y, [0]], 0)
        children = tf.concat([children, tf.zeros_like(others)], 0)
        parents = tf.concat([parents, others], 0)
    decided = decisions(layer, encoder, hierarchy, children, parents)
    return sorted({int(i) for gate in decided for i in np.ravel(gate.indices)})


def _smaller(
    scorer: FeatureScorer, kept: dict[str, list[str]], experts: Sequence[int]
) -> dict[str, Any]:
    """The scorer's settings with fewer words and experts."""
    config = copy.deepcopy(scorer.get_config())
    config["tables"]["vocabularies"] |= kept
    if config.get("category_groups"):
        names = {name for words in kept.values() for name in words}
        groups = config["category_groups"]
        config["category_groups"] = [[name for name in g if name in names] for g in groups]
    if experts:
        holder = config["settings"] if isinstance(scorer, CategoryMMoEScorer) else config
        holder["num_experts"] = len(experts)
    if "num_adversarial" in config:
        config["num_adversarial"] = 0  # there may be no idle expert left
    return config


def _copy_weights(
    model: tf.keras.Model, small: tf.keras.Model, kept: dict[str, list[str]], experts: list[int]
) -> None:
    cut = {id(new): value for new, value in _cut_weights(model, small, kept, experts)}
    old = model.get_weight_paths()
    for path, new in small.get_weight_paths().items():
        # What training shows by expert is no part of what is served.
        if id(new) in cut or new.shape == old[path].shape:
            new.assign(cut.get(id(new), old[path]))


def _cut_weights(
    model: tf.keras.Model, small: tf.keras.Model, kept: dict[str, list[str]], experts: list[int]
) -> Iterator[tuple[Any, Any]]:
    """Variables of the small model that have another shape, with their values."""
    whole, part = model.get_layer("features"), small.get_layer("features")
    for name, words in kept.items():
        rows = tf.concat([[0], tf.cast(whole.lookups[name](tf.constant(words)), tf.int32)], 0)
        table = tf.convert_to_tensor(whole.embeddings[name].embeddings)
        yield part.embeddings[name].embeddings, tf.gather(table, rows)
    if not experts:
        return
    for kind in (ExpertTowers, StarTowers, NoisyTopKGate):
        for old, new in zip(_parts(model, kind), _parts(small, kind), strict=True):
            if kind is NoisyTopKGate:
                for a, b in zip(old.weights, new.weights, strict=True):
                    yield b, tf.gather(tf.convert_to_tensor(a), experts, axis=-1)
            elif new.num_experts == len(experts):
                for a, b in zip(_stacked(old), _stacked(new), strict=True):
                    yield b, tf.gather(tf.convert_to_tensor(a), experts)


def _stacked(towers: ExpertTowers) -> list[Any]:
    """The weights that each expert has its own of."""
    return [*towers.kernels, *towers.biases, *(weight for norm in towers.norms for weight in norm)]


def _parts(model: tf.keras.Model, kind: type) -> list[Any]:
    return [part for part in model.submodules if type(part) is kind]
