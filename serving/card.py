"""The model card: what a model is, what it learned from, how good it was, and where it should not be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfr_moe.schema import FeatureSchema, Scope


class Coverage(NamedTuple):
    """A top category: its sub-categories that the model knows, and how many lists were seen of it.

    `unknown` of the lists had a sub-category that the model does not know.
    """

    category: str
    known: int
    lists: int
    unknown: int


class Sample(NamedTuple):
    """Lists that were looked at: their numbers of items, and parent and pair key of their category."""

    sizes: list[int]
    categories: list[tuple[str, str]]


def sample_of(schema: FeatureSchema, lists: Iterable[bytes]) -> Sample:
    """Looks at serialized `ExampleListWithContext`s."""
    from tensorflow_serving.apis import input_pb2

    sizes: list[int] = []
    categories: list[tuple[str, str]] = []
    for serialized in lists:
        proto = input_pb2.ExampleListWithContext.FromString(serialized)
        sizes.append(len(proto.examples))
        if schema.hierarchy is None:
            continue
        stored = proto.context.features.feature
        names = {
            name: b"".join(stored[name].bytes_list.value[:1]).decode("utf-8", "replace")
            for name in (schema.hierarchy.parent, schema.hierarchy.child)
        }
        child = schema.feature(schema.hierarchy.child)
        categories.append((names[schema.hierarchy.parent], schema.lookup_key(child, names)))
    return Sample(sizes, categories)


def coverage_of(
    categories: Sequence[tuple[str, str]], known: Sequence[str], separator: str
) -> list[Coverage]:
    """Counts by top category, the one of most lists first.

    Args:
        categories: of each list the parent and the key.
        known: the keys of all sub-categories in the model's vocabulary.
        separator: between the parent and the child in a key.

    Example:
        >>> seen = [("toys", "toys > balls"), ("toys", "toys > dolls"), ("food", "food > bread")]
        >>> coverage_of(seen, ["toys > balls", "books > novels"], " > ")
        [Coverage(category='toys', known=1, lists=2, unknown=1),
         Coverage(category='food', known=0, lists=1, unknown=1),
         Coverage(category='books', known=1, lists=0, unknown=0)]
    """
    keys = set(known)
    children = Counter(key.split(separator)[0] for key in known)
    lists = Counter(parent for parent, _ in categories)
    unknown = Counter(parent for parent, key in categories if key not in keys)
    names = sorted({*children, *lists}, key=lambda name: (-lists[name], -children[name], name))
    return [Coverage(name, children[name], lists[name], unknown[name]) for name in names]


_MOST_CATEGORIES = 50


def model_card(
    name: str,
    schema: FeatureSchema,
    details: Mapping[str, Any],
    sample: Sample,
    coverage: Sequence[Coverage],
    options: Sequence[str] = (),
) -> str:
    """The card as Markdown.

    Args:
        name: of the model.
        schema: of its requests.
        details: `config` and `metrics` of the run, and `data`, the manifest of its data set.
        sample: lists of the validation split that were looked at.
        coverage: see `coverage_of`; none for data without a hierarchy.
        options: how the export differs from the trained model, a sentence each.
    """
    config, metrics = details.get("config", {}), details.get("metrics", {})
    kind = config.get("model", "a model")
    lines = [f"# Model card: {name}", ""]
    lines += [f"`{kind}`, a ranking model of tfr_moe, trained with seed {config.get('seed', '?')}."]
    lines += [*(["", "## This export", ""] if options else []), *(f"* {text}" for text in options)]
    lines += ["", "## What it is for", ""]
    lines += [
        "Ranking the items of one list (a query's results, a user's recommendations) by the labels below. "
        "Scores compare items of the same list and mean nothing across lists or models.",
        "",
        f"* labels: {', '.join(schema.labels)}",
        f"* loss: {config.get('loss', '?')}",
    ]
    lines += ["", "## Data", "", *_data(schema, metrics, details.get("data", {}))]
    lines += ["", "## Metrics", "", *_metrics(metrics)]
    lines += ["", "## Category coverage", "", *_coverage(coverage, sample)]
    lines += ["", "## Limits", "", *_limits(schema, config, sample)]
    return "\n".join(lines) + "\n"


def _data(
    schema: FeatureSchema, metrics: Mapping[str, Any], manifest: Mapping[str, Any]
) -> list[str]:
    lines = [f"* training lists: {metrics.get('train_lists', 'unknown')}"]
    for split, counts in manifest.get("splits", {}).items():
        numbers = {key: value for key, value in counts.items() if isinstance(value, int)}
        shown = ", ".join(f"{value} {key}" for key, value in numbers.items())
        lines.append(f"* {split}: {shown}")
    scopes: dict[Scope, str] = {"context": "of the list", "example": "of the items"}
    for scope, words in scopes.items():
        names = ", ".join(f"{f.name} ({f.kind})" for f in schema.select(scope)) or "none"
        lines.append(f"* features {words}: {names}")
    return lines


def _metrics(metrics: Mapping[str, Any]) -> list[str]:
    best = metrics.get("best", {})
    shown = {k: v for k, v in best.items() if k.startswith("val_") and isinstance(v, float)}
    if not shown:
        return ["None are kept with this model."]
    epoch = metrics.get("best_epoch", "?")
    rows = [f"| {key.removeprefix('val_')} | {value:.4f} |" for key, value in shown.items()]
    return [
        f"Of the validation split, after epoch {epoch}, which was chosen by them: the test split, which "
        "`tfr-moe evaluate` reads, is what to compare models by.",
        "",
        "| metric | validation |",
        "|---|---|",
        *rows,
    ]


def _coverage(coverage: Sequence[Coverage], sample: Sample) -> list[str]:
    if not coverage:
        return ["The data have no category tree."]
    unknown, seen = sum(c.unknown for c in coverage), len(sample.categories)
    share = f"{100 * unknown / seen:.1f} %" if seen else "none"
    lines = [
        f"Of {seen} validation lists that were looked at, {share} have a sub-category that training did not "
        "see; all such share one embedding.",
        "",
        "| top category | sub-categories known | lists seen | of an unknown sub-category |",
        "|---|---|---|---|",
    ]
    for c in coverage[:_MOST_CATEGORIES]:
        lines.append(f"| {c.category or '(none)'} | {c.known} | {c.lists} | {c.unknown} |")
    if len(coverage) > _MOST_CATEGORIES:
        lines += ["", f"And {len(coverage) - _MOST_CATEGORIES} more."]
    return lines


def _limits(schema: FeatureSchema, config: Mapping[str, Any], sample: Sample) -> list[str]:
    longest = config.get("list_size")
    trained = f"at most {longest} items" if longest else "lists of any length"
    seen = (
        f"; the validation lists looked at had {min(sample.sizes)} to {max(sample.sizes)} items"
        if sample.sizes
        else ""
    )
    required = ", ".join(f.name for f in schema.features if f.is_required) or "none"
    return [
        f"* Trained on {trained}{seen}. Far longer lists are scored, untested.",
        "* It learned from what was shown and chosen, at the places where it was shown: what was never shown "
        "has no evidence, and the habits of the earlier ranking are in the labels.",
        "* An id that training never saw counts as unknown; a number far outside of the training range is "
        "clipped at 10 standard deviations.",
        f"* A request without one of these is refused: {required}.",
        "* Metrics over all lists hide small categories: compare them by category before relying on one.",
    ]
