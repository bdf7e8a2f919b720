"""One query explained: as data, as text of 80 columns and as a page."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from tfr_moe._compat import tf
from tfr_moe.analysis.leads import Lead, ScoreTerms, SumOf, explain_leads
from tfr_moe.analysis.substitution import Substitutions
from tfr_moe.baselines import BaselineRun, open_run
from tfr_moe.errors import UserError
from tfr_moe.metrics.per_list import Array
from tfr_moe.report.figures import label
from tfr_moe.schema import FeatureSchema
from tfr_moe.scorers.base import routing_of
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.serving.client.request import RequestEncoder, load_request
from tfr_moe.serving.export.parsing import RequestParser
from tfr_moe.training import LoadedRun
from tfr_moe.utils.console import TableColumn, fitted_table
from tfr_moe.utils.formats import number, percent

MOST_LEADS = 10
_MOST_FEATURES = 4  # of a lead, in the terminal
_MOST_TEXT = 28
_WIDTH = 80


@dataclass(frozen=True)
class ExplainedItem:
    """An item of the query; `rank` is 1 for the first, `index` its index in the request, from 0.

    Attributes:
        name: the value of the first ID in which all items differ; "" without one.
        terms: term -> its part of the score; they add up to it. Empty where it is no sum.
        tasks: score of each task; empty for a model of one task.
        gates: gate -> expert -> weight of the item's own choice; empty where all items of a list
            share it.
    """

    rank: int
    index: int
    name: str
    score: float
    terms: dict[str, float]
    tasks: dict[str, float]
    gates: dict[str, dict[int, float]]
    item: dict[str, Any]

    @property
    def title(self) -> str:
        """Index and name."""
        return f"item {self.index}" + (f" ({label(self.name, _MOST_TEXT)})" if self.name else "")


@dataclass(frozen=True)
class Explanation:
    """A query.

    Attributes:
        gates: gate -> expert -> weight, heaviest first; "" for a single gate. Empty without
            experts, or where each item has its own choice.
        sum_of: what the score is the sum of: `experts`, `tasks`, or "" where it is no sum.
        pointwise: whether the score of an item does not depend on the other items.
        items: best first.
        leads: of the first items, at most ten, over the next one.
    """

    run: str
    model: str
    context: dict[str, Any]
    gates: dict[str, dict[int, float]]
    sum_of: SumOf
    pointwise: bool
    items: list[ExplainedItem]
    leads: list[Lead]

    def __str__(self) -> str:
        """The text of `tfr-moe explain`, 80 columns wide."""
        console = Console(width=_WIDTH)
        with console.capture() as text:
            for part in _text(self):
                console.print(part, highlight=False)
        return text.get().rstrip()

    def save(self, path: str | Path) -> None:
        """Writes the page of `tfr-moe explain --out`."""
        from tfr_moe.report.html import render, write_page

        page = render("explain.html", explanation=self, texts=sys.modules[__name__])
        write_page(page, Path(path))


def explain_request(run: str | Path, request: str | Path) -> Explanation:
    """Explains how a run orders the items of a request, a JSON file as for `tfr-moe rank`."""
    loaded = open_run(run)
    query = load_request(request, loaded.schema)
    try:
        return explain_query(loaded, *query)
    except UserError as error:
        raise UserError(f"request {request}: {error}") from error


def explain_query(
    loaded: LoadedRun | BaselineRun, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> Explanation:
    """Explains how a loaded run orders the items of a request."""
    record = RequestEncoder(loaded.schema).encode(context, items)
    if not items:
        raise UserError("items: must not be empty")
    parsed = RequestParser(loaded.schema, loaded.categories).lists(tf.constant([record]))
    features = {name: value.numpy() for name, value in parsed.items()}
    score = ScoreTerms(loaded)
    # Without the axis of lists: [L, ...] by item, [...] by list.
    outputs = {name: value[0] for name, value in score.outputs(features).items()}
    scored = Substitutions(score, loaded.schema, features)
    order = np.argsort(-scored.values[:, 0], kind="stable").tolist()
    raw = [dict(item) for item in items]
    routing = routing_of(outputs).items()
    terms, used = scored.values[:, 1:].tolist(), scored.values[:, 1:].any(axis=0)
    names = _names(loaded.schema, raw)
    explained = [
        ExplainedItem(
            rank=rank,
            index=index,
            name=names[index],
            score=float(scored.values[index, 0]),
            terms={n: t for n, t, u in zip(score.names, terms[index], used, strict=True) if u},
            tasks={t: float(outputs[f"{SCORES}_{t}"][index]) for t in loaded.task_names},
            gates={
                name: _weights(ids[index], weights[index])
                for name, (ids, weights) in routing
                if ids.ndim == 2
            },
            item=raw[index],
        )
        for rank, index in enumerate(order, start=1)
    ]
    return Explanation(
        run=str(loaded.path),
        model=loaded.config.model,
        context=dict(context),
        gates={name: _weights(ids, weights) for name, (ids, weights) in routing if ids.ndim == 1},
        sum_of=score.sum_of,
        pointwise=scored.pointwise,
        items=explained,
        leads=explain_leads(scored, order[: MOST_LEADS + 1], raw, score.names),
    )


def _weights(ids: Array, weights: Array) -> dict[int, float]:
    """Expert -> weight of a choice [K]."""
    return dict(zip(ids.tolist(), weights.tolist(), strict=True))


def _names(schema: FeatureSchema, items: Sequence[Mapping[str, Any]]) -> list[str]:
    for feature in schema.select("example", "categorical"):
        names = [str(item.get(feature.name) or "") for item in items]
        if len(set(names)) == len(names) > 1:
            return names
    return [""] * len(items)


def value_text(value: Any) -> str:
    """Formats the value of a feature."""
    if isinstance(value, list | tuple):
        return label(", ".join(map(value_text, value)), _MOST_TEXT) or "none"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isnan(value):
            return "missing"
        whole = float(value).is_integer() or abs(value) >= 1e4
        return f"{value:,.0f}" if whole else f"{value:.4g}"
    return label(value, _MOST_TEXT) if value not in (None, "") else "missing"


def experts_text(weights: Mapping[int, float]) -> str:
    """The selected experts: `3 (61 %), 0 (39 %)`."""
    return ", ".join(f"{expert} ({percent(weight)})" for expert, weight in weights.items())


def decisive(explanation: Explanation) -> dict[str, float]:
    """Feature -> its part of the sum of all absolute shares, largest first."""
    sums: dict[str, float] = {}
    for lead in explanation.leads:
        for feature in lead.features:
            sums[feature.feature] = sums.get(feature.feature, 0.0) + abs(feature.share)
    total = sum(sums.values()) or 1.0
    return dict(sorted(((n, v / total) for n, v in sums.items()), key=lambda entry: -entry[1]))


def finding(explanation: Explanation) -> str:
    """Says which features decide the order."""
    main = [f"{name} ({percent(part)})" for name, part in decisive(explanation).items()][:3]
    if not main:
        return "No feature differs between neighbours in the order."
    return f"Most of the order is due to {', '.join(main)}."


def reason(lead: Lead) -> str:
    """What puts the item ahead: the features with at least a quarter of the lead, three at most."""
    main = [f for f in lead.features if f.share >= max(lead.lead, 1e-12) / 4][:3]
    if not main:
        return "no single feature" if lead.features else "the order of the request: equal features"
    texts = (f"{f.feature} {value_text(f.ahead)} against {value_text(f.behind)}" for f in main)
    return "; ".join(texts)


def changes(explanation: Explanation, lead: Lead) -> str:
    """What would put the next item ahead."""
    ahead, behind = explanation.items[lead.rank - 1 : lead.rank + 1]
    # The name of the other item is nothing that could change.
    swaps = {n: v for n, v in lead.swaps.items() if not ahead.name or str(v) != ahead.name}
    if not swaps:
        return f"No single feature of {behind.title} would put it ahead."
    ways = ", or ".join(f"{name} {value_text(value)}" for name, value in swaps.items())
    return f"I{behind.title[1:]} would be ahead with {ways}."  # capitalize() lowers the name


_SUMS = {
    "experts": "The score is the sum of experts, each its weight times its own score; their parts "
    "are exact. ",
    "tasks": "The score is the weighted sum of the tasks; their parts are exact. ",
}


def method(explanation: Explanation) -> str:
    """How to read the contributions."""
    remainder = (
        " Scores depend on the other items: what remains with all features replaced is due to the "
        "position in the list."
    )
    return (
        f"{_SUMS.get(explanation.sum_of, '')}A feature's share is what the score loses when it is "
        "replaced by that of the next item, averaged over the orders in which features are "
        "replaced (Shapley value); shares add up to the lead. A change would put an item ahead if "
        "its feature had the value of the item above or, for a number, a value on the way there."
        f"{'' if explanation.pointwise else remainder}"
    )


def _text(explanation: Explanation) -> Iterator[RenderableType]:
    """The order, and what puts each item ahead; names the fields that do not fit."""
    yield Text(f"{explanation.model}: why {len(explanation.items)} items are in this order")
    if explanation.context:
        pairs = (f"{name} {value_text(value)}" for name, value in explanation.context.items())
        yield Text(f"query: {', '.join(pairs)}")
    for name, weights in explanation.gates.items():
        yield Text(f"{f'experts of {name}' if name else 'experts'}: {experts_text(weights)}")
    yield Text(f"{finding(explanation)}\n")
    yield fitted_table(_columns(explanation), always=3, width=_WIDTH)
    for lead in explanation.leads:
        yield Text("")
        yield from _lead(explanation, lead)
    if explanation.leads:
        yield Text("")
        yield Text(method(explanation))


def _columns(explanation: Explanation) -> list[TableColumn]:
    items = explanation.items
    columns = [
        TableColumn("rank", [str(item.rank) for item in items]),
        TableColumn("item", [item.title.removeprefix("item ") for item in items], numeric=False),
        TableColumn("score", [number(item.score) for item in items]),
    ]
    for task in items[0].tasks:
        columns.append(TableColumn(f"{task} score", [number(item.tasks[task]) for item in items]))
    for gate in items[0].gates:
        title = f"experts of {gate}" if gate else "experts"
        columns.append(
            TableColumn(title, [experts_text(item.gates[gate]) for item in items], False)
        )
    for name in item_fields(explanation):
        values = [item.item.get(name) for item in items]
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        columns.append(TableColumn(name, list(map(value_text, values)), numeric))
    return columns


def item_fields(explanation: Explanation) -> list[str]:
    """The fields of the items, those that decide the order first, without that of their names."""
    items = explanation.items
    names = dict.fromkeys([*decisive(explanation), *(n for item in items for n in item.item)])
    named = all(item.name for item in items)
    return [
        name
        for name in names
        if not named or [str(item.item.get(name)) for item in items] != [i.name for i in items]
    ]


def _lead(explanation: Explanation, lead: Lead) -> Iterator[RenderableType]:
    ahead, behind = explanation.items[lead.rank - 1 : lead.rank + 1]
    yield Text(f"{lead.rank} {ahead.title} over {behind.title}: {number(lead.lead, True)}")
    lines = []
    if lead.terms:
        terms = (f"{name} {number(value, True)}" for name, value in lead.terms.items())
        lines.append(f"{explanation.sum_of}: {', '.join(terms)}")
    largest = lead.features[:_MOST_FEATURES]
    for f in largest:
        values = f"{value_text(f.ahead)} against {value_text(f.behind)}"
        lines.append(f"{number(f.share, True)}  {f.feature}: {values}")
    if len(lead.features) > len(largest):
        rest = sum(f.share for f in lead.features[len(largest) :])
        lines.append(f"{number(rest, True)}  {len(lead.features) - len(largest)} other features")
    if not explanation.pointwise:
        lines.append(f"{number(lead.position, True)}  position in the list")
    lines.append(changes(explanation, lead))
    yield from (Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines)
