"""The model card: purpose, training data, metrics, category coverage and limits of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tfr_moe.schema import FeatureSchema, Scope

_CARD = """\
# Model card: {name}

`{model}`, a ranking model of tfr_moe, trained with seed {seed}.

## What it is for

Ranking the items of one list (a query's results, a user's recommendations) by the labels below. \
Scores are comparable within a list, not across lists or models.

* labels: {labels}
* loss: {loss}

## Data

{data}

## Metrics

{metrics}

## Category coverage

{coverage}

## Limits

* Trained on {trained}. Far longer lists are scored, but were not tested.
* Labels come from past impressions: items that were never shown have no evidence, and the biases \
of the earlier ranking are in the labels.
* IDs that are not in the training data count as unknown; numbers far outside the training range \
are clipped at 10 standard deviations.
* Required features: {required}. A request without one of them is rejected.
* Metrics over all lists hide small categories: compare models by category (`tfr-moe evaluate`).
"""


class Sample(NamedTuple):
    """A sample of lists: the number of items of each, and the key of its sub-category."""

    sizes: list[int]
    categories: list[str]


def sample_of(schema: FeatureSchema, lists: Iterable[bytes]) -> Sample:
    """Reads sizes and categories from serialized `ExampleListWithContext`s."""
    from tensorflow_serving.apis import input_pb2

    sample = Sample([], [])
    for serialized in lists:
        proto = input_pb2.ExampleListWithContext.FromString(serialized)
        sample.sizes.append(len(proto.examples))
        if schema.hierarchy is None:
            continue
        stored = proto.context.features.feature
        names = {
            name: b"".join(stored[name].bytes_list.value[:1]).decode("utf-8", "replace")
            for name in (schema.hierarchy.parent, schema.hierarchy.child)
        }
        child = schema.feature(schema.hierarchy.child)
        sample.categories.append(schema.lookup_key(child, names))
    return sample


def model_card(
    name: str,
    schema: FeatureSchema,
    details: Mapping[str, Any],
    sample: Sample,
    known: Collection[str],
) -> str:
    """The card as Markdown.

    Args:
        name: of the model.
        schema: of its requests.
        details: `config` and `metrics` of the run, and `data`, the manifest of its data set.
        sample: of the validation split.
        known: the keys of the sub-categories in the model's vocabulary.
    """
    config, metrics = details.get("config", {}), details.get("metrics", {})
    return _CARD.format(
        name=name,
        model=config.get("model", "a model"),
        seed=config.get("seed", "?"),
        labels=", ".join(schema.labels),
        loss=config.get("loss", "?"),
        data="\n".join(_data(schema, metrics, details.get("data", {}))),
        metrics="\n".join(_metrics(metrics)),
        coverage=_coverage(sample, known),
        trained=_trained(config.get("list_size"), sample.sizes),
        required=", ".join(f.name for f in schema.features if f.required) or "none",
    )


def _data(
    schema: FeatureSchema, metrics: Mapping[str, Any], manifest: Mapping[str, Any]
) -> list[str]:
    lines = [f"* training lists: {metrics.get('train_lists', 'unknown')}"]
    for split, counts in manifest.get("splits", {}).items():
        numbers = {key: value for key, value in counts.items() if isinstance(value, int)}
        text = ", ".join(f"{value} {key}" for key, value in numbers.items())
        lines.append(f"* {split}: {text}")
    scopes: dict[Scope, str] = {"context": "of the list", "example": "of the items"}
    for scope, words in scopes.items():
        names = ", ".join(f"{f.name} ({f.kind})" for f in schema.select(scope)) or "none"
        lines.append(f"* features {words}: {names}")
    return lines


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    best = metrics.get("best", {})
    values = {k: v for k, v in best.items() if k.startswith("val_") and isinstance(v, float)}
    if not values:
        return ["None are stored with this model."]
    epoch = metrics.get("best_epoch", "?")
    rows = [f"| {key.removeprefix('val_')} | {value:.4f} |" for key, value in values.items()]
    return [
        f"On the validation split after epoch {epoch}, which was selected by them. Compare models "
        "on the test split (`tfr-moe evaluate`).",
        "",
        "| metric | validation |",
        "|---|---|",
        *rows,
    ]


def _coverage(sample: Sample, known: Collection[str]) -> str:
    if not known:
        return "The data have no category tree."
    unknown = sum(category not in known for category in sample.categories)
    share = f"{100 * unknown / len(sample.categories):.1f} %" if sample.categories else "none"
    return (
        f"The model knows {len(known)} sub-categories. Of {len(sample.categories)} validation "
        f"lists, {share} have a sub-category that is unknown to the model; all of them share one "
        "embedding."
    )


def _trained(longest: int | None, sizes: list[int]) -> str:
    text = f"at most {longest} items" if longest else "lists of any length"
    if sizes:
        text += f"; the validation lists have {min(sizes)} to {max(sizes)} items"
    return text
