"""Fig. 5 of Adv & HSC-MoE: t-SNE of gate vectors, coloured by groups of categories.

A gate vector is p^I of the paper's eq. 8: the softmax over all N clean logits of the inference
gate. If the sub-category is the gate's only input, all lists of a sub-category share one vector, so
each sub-category is a point; otherwise vectors are averaged over its lists. How well the points
cluster is also a number, which the paper does not give: the silhouette over top categories, between
-1 and 1.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from pydantic import Field
from rich.console import RenderableType
from rich.table import Table
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score

from experiments.adv_hsc_moe.model_tables import (
    ModelTable,
    ModelTableSettings,
    cells_of,
    need_hierarchy,
)
from experiments.common.runs import Job, Result
from experiments.common.study import Study, StudyContext
from experiments.common.tables import load_table, score_cell, score_summary, select_rows
from experiments.common.tuned_runs import evaluation_data, tuned_runs
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.layers import CategoryMixtureOfExperts
from tfr_moe.report import Line, chart, label, write_figure
from tfr_moe.schema import MASK
from tfr_moe.training import load_run
from tfr_moe.utils import write_json

NAME = "adv-hsc-moe-fig5"
MODELS = ("moe", "adv_moe", "adv_hsc_moe")
OTHERS = "(others)"
MAX_GROUPS = 7


class GateSettings(ModelTableSettings):
    """Settings of Fig. 5.

    Attributes:
        groups: semantic group -> names of its top categories, as in the paper's Table VI; None
            gives each of the largest top categories a colour.
        perplexity: of t-SNE; reduced for few sub-categories.
    """

    groups: dict[str, tuple[str, ...]] | None = None
    perplexity: float = Field(30.0, gt=0)


class Gates(NamedTuple):
    """The gate vectors of sub-categories.

    Attributes:
        parents: [S] names of their top categories.
        children: [S] names.
        lists: [S] number of lists.
        vectors: [S, N].
    """

    parents: list[str]
    children: list[str]
    lists: NDArray[np.int64]
    vectors: NDArray[np.float64]


def sum_by_category(
    names: Sequence[tuple[str, str]], vectors: NDArray[np.float64]
) -> dict[tuple[str, str], tuple[int, NDArray[np.float64]]]:
    """Returns (top, sub-)category -> number of rows, and the sum of its vectors.

    Example:
        >>> sums = sum_by_category([("a", "x"), ("a", "x")], np.array([[1.0, 0], [0, 1]]))
        >>> sums["a", "x"][0], sums["a", "x"][1].tolist()
        (2, [1.0, 1.0])
    """
    sums: dict[tuple[str, str], tuple[int, NDArray[np.float64]]] = {}
    keys = np.array([f"{parent}\0{child}" for parent, child in names])
    for key in np.unique(keys):
        parent, _, child = str(key).partition("\0")
        rows = vectors[keys == key]
        sums[parent, child] = (len(rows), rows.sum(axis=0))
    return sums


def gate_model(run: Path, model: tf.keras.Model) -> tf.keras.Model:
    """Returns a model of the gate's softmax over all N experts, [B, N] or [B, L, N].

    Raises:
        UserError: if the model has no inference gate.
    """
    layers = [layer for layer in model.layers if isinstance(layer, CategoryMixtureOfExperts)]
    if not layers:
        raise UserError(f"run {run}: its model has no gate by category")
    given = layers[0].inbound_nodes[0].call_kwargs
    gate = layers[0].decide(given["gate_inputs"], given.get("constraint_inputs"))
    return tf.keras.Model(model.input, tf.nn.softmax(gate.logits))


def read_gates(run: Path, data: Path, split: str) -> Gates:
    """Returns the gate vectors of a run's model over the lists of a split.

    Raises:
        UserError: if the model has no inference gate.
    """
    loaded = load_run(run)
    gates = gate_model(run, loaded.model)
    tree = loaded.schema.hierarchy
    dataset = ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset(split)

    @tf.function(input_signature=[dataset.element_spec[0]])
    def infer(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return gates(features, training=False)

    sums: dict[tuple[str, str], tuple[int, NDArray[np.float64]]] = {}
    for features, *_ in dataset:
        names = list(zip(_texts(features[tree.parent]), _texts(features[tree.child]), strict=True))
        vectors = _of_lists(infer(features).numpy().astype(np.float64), features[MASK].numpy())
        for key, (count, total) in sum_by_category(names, vectors).items():
            before = sums.get(key, (0, np.zeros_like(total)))
            sums[key] = (before[0] + count, before[1] + total)
    keys = sorted(sums)
    counts = np.array([sums[key][0] for key in keys])
    totals = np.stack([sums[key][1] for key in keys])
    means = totals / counts[:, np.newaxis]
    return Gates([k[0] for k in keys], [k[1] for k in keys], counts, means)


def _texts(tensor: Any) -> list[str]:
    return [value.decode("utf-8", "replace") for value in tensor.numpy().reshape(-1)]


def _of_lists(vectors: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[B, N] as they are, or the mean over the items of a list of [B, L, N]."""
    if vectors.ndim == 2:
        return vectors
    weights = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return np.einsum("bln,bl->bn", vectors, weights)


def silhouette(gates: Gates) -> float:
    """Returns the mean silhouette over top categories with two or more sub-categories.

    For a sub-category with mean distance a to its siblings and least mean distance b to the
    sub-categories of another top category it is (b - a) / max(a, b) (Rousseeuw 1987). NaN with
    fewer than two such top categories.
    """
    parents = np.array(gates.parents)
    names, counts = np.unique(parents, return_counts=True)
    selected = np.isin(parents, names[counts > 1])
    if len(np.unique(parents[selected])) < 2:
        return float("nan")
    return float(silhouette_score(gates.vectors[selected], parents[selected]))


def embed(gates: Gates, perplexity: float, seed: int) -> NDArray[np.float64]:
    """Returns the t-SNE coordinates [S, 2] of the gate vectors.

    Raises:
        UserError: for fewer than 4 sub-categories.
    """
    count = len(gates.children)
    if count < 4:
        raise UserError(f"t-SNE needs at least 4 sub-categories, the data has {count}")
    tsne = TSNE(perplexity=min(perplexity, (count - 1) / 3), init="pca", random_state=seed)
    return np.asarray(tsne.fit_transform(gates.vectors), np.float64)


def colour_groups(
    gates: Gates, groups: Mapping[str, Sequence[str]] | None
) -> tuple[list[str], list[str]]:
    """Returns the group of each sub-category, and the groups in order; ungrouped ones are `OTHERS`.

    Raises:
        UserError: for a name in `groups` that is no top category.
    """
    if groups is None:
        sizes: dict[str, int] = {}
        for parent, lists in zip(gates.parents, gates.lists, strict=True):
            sizes[parent] = sizes.get(parent, 0) + int(lists)
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_GROUPS]
        groups = {name: (name,) for name in largest}
    group_of = {name: group for group, names in groups.items() for name in names}
    for name in group_of:
        if name not in gates.parents:
            some = ", ".join(sorted(set(gates.parents))[:20])
            raise UserError(f"groups: {name!r} is no top category; allowed: {some}")
    assigned = [group_of.get(parent, OTHERS) for parent in gates.parents]
    return assigned, [*groups, *([OTHERS] if OTHERS in assigned else [])]


def _analyse(settings: GateSettings, data: str, job: Job) -> Result:
    """The silhouette of one run's gates and, for a model's first run, the points of the figure."""
    gates = read_gates(Path(job["run"]), Path(data), settings.split)
    result: Result = {"silhouette": silhouette(gates), "sub_categories": len(gates.children)}
    if job["seed"] == 1:
        points = embed(gates, settings.perplexity, job["seed"])
        groups, order = colour_groups(gates, settings.groups)
        result["points"] = [
            {"parent": p, "child": c, "lists": int(n), "group": g, "x": float(x), "y": float(y)}
            for p, c, n, g, (x, y) in zip(
                gates.parents, gates.children, gates.lists, groups, points, strict=True
            )
        ]
        result["order"] = order
    return result


def run(settings: GateSettings, context: StudyContext) -> Sequence[RenderableType]:
    """Trains what is missing (see `runs_of`), writes `results.json` and the figure."""
    data = context.need_data()
    need_hierarchy(data)
    table = load_table(Path(settings.configs) / "table3", ModelTable)
    rows = [row for row in select_rows(table.rows, settings.rows) if row.config in MODELS]
    if not rows:
        raise UserError(f"rows: the figure needs one of {', '.join(MODELS)}")
    evaluate_on = evaluation_data(settings, data)
    cells = cells_of(rows, "table3", data, evaluate_on)
    runs = tuned_runs(settings, cells, table.metrics, context)
    jobs = [
        {"cell": run.cell, "seed": run.seed, "run": str(run.path.resolve())}
        for row in rows
        for run in runs[row.name]
    ]
    work = functools.partial(_analyse, settings, str(evaluate_on))
    results = context.run_all(jobs, work, "gates")
    models = []
    for row in rows:
        of_row = [r for job, r in zip(jobs, results, strict=True) if job["cell"] == row.name]
        summary = score_summary([result["silhouette"] for result in of_row], None)
        first = {name: of_row[0][name] for name in ("sub_categories", "points", "order")}
        models.append({"model": row.name, **summary, **first})
    write_json(context.out / "results.json", {"models": models})
    _draw(context.out, models)
    return [_silhouettes(models)]


def _draw(out: Path, models: Sequence[Mapping[str, Any]]) -> None:
    """The models side by side, a colour and shape of marks for each top category."""
    panels = []
    for model in models:
        lines = []
        for group in model["order"]:
            points = [point for point in model["points"] if point["group"] == group]
            across, up = ([point[axis] for point in points] for axis in "xy")
            lines.append(Line(label(group), across, up, kind="points"))
        finding = f"{model['model']}, silhouette {model['runs'][0]:+.3f}"
        panels.append(chart(lines, finding, "", "", title=finding))
    write_figure(panels, out / "figure_5_gate_vectors.svg")


def _silhouettes(models: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title=f"{NAME}: silhouette of gate vectors over top categories, mean over seeds ± 95 %; "
        "the paper shows pictures: Adv-MoE clusters better than MoE, Adv & HSC-MoE best",
        title_justify="left",
    )
    table.add_column("model")
    table.add_column("silhouette", justify="right")
    table.add_column("sub-categories", justify="right")
    for model in models:
        table.add_row(model["model"], score_cell(model), str(model["sub_categories"]))
    return table


STUDIES = {NAME: Study(GateSettings, run, needs_data=True)}
