"""Fig. 5 of Adv & HSC-MoE: gate vectors by t-SNE, in the colours of groups of categories.

A gate vector is p^I of the paper's eq. 8: the softmax over all N clean logits of the inference gate, the
probability with which each expert would be asked. With the sub-category as the gate's only input all
lists of a sub-category have the same one, so each sub-category is a point. Gates that see more are
averaged over its lists. How well the points cluster is also a number: the silhouette over top
categories, between -1 and 1, which the paper does not give.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rich.console import RenderableType
from rich.table import Table

from tfr_moe.errors import UserError
from tfr_moe.folders import write_json
from tfr_moe.reproduce.fair_runs import FairSettings, fair_runs, judged_data
from tfr_moe.reproduce.mixture_tables import cells_of, need_hierarchy, read_table
from tfr_moe.reproduce.plots import COLOURS, MARKS, drawn
from tfr_moe.reproduce.runs import Job, Result
from tfr_moe.reproduce.settings import wanted_rows
from tfr_moe.reproduce.study import Place, Study

NAME = "adv-hsc-moe-fig5"
MODELS = ("moe", "adv_moe", "adv_hsc_moe")
REST = "(others)"


class GateSettings(FairSettings):
    """The settings of Fig. 5.

    Attributes:
        groups: semantic group -> names of its top categories, as the paper's Table VI; None gives each
            of the largest top categories a colour.
        perplexity: of t-SNE; less where there are few sub-categories.
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


def mean_by_category(
    names: Sequence[tuple[str, str]], vectors: NDArray[np.float64]
) -> dict[tuple[str, str], tuple[int, NDArray[np.float64]]]:
    """(Top, sub-)category -> number of rows, and the sum of its vectors.

    Example:
        >>> found = mean_by_category([("a", "x"), ("a", "x")], np.array([[1.0, 0], [0, 1]]))
        >>> found["a", "x"][0], found["a", "x"][1].tolist()
        (2, [1.0, 1.0])
    """
    found: dict[tuple[str, str], tuple[int, NDArray[np.float64]]] = {}
    keys = np.array([f"{parent}\0{child}" for parent, child in names])
    for key in np.unique(keys):
        parent, _, child = str(key).partition("\0")
        rows = vectors[keys == key]
        found[parent, child] = (len(rows), rows.sum(axis=0))
    return found


def read_gates(run: Path, data: Path, split: str) -> Gates:
    """The gate vectors of a run's model over the lists of a split.

    Raises:
        UserError: where the model has no inference gate.
    """
    from tfr_moe._compat import tf
    from tfr_moe.data import DataFolder, ElwcDatasetBuilder
    from tfr_moe.evaluation.score import compiled
    from tfr_moe.layers.mixture import CategoryMixtureOfExperts
    from tfr_moe.schema import MASK
    from tfr_moe.scorers.explain import call_inputs
    from tfr_moe.training import load_run

    loaded = load_run(run)
    tree = loaded.schema.hierarchy
    mixtures = [
        layer for layer in loaded.model.layers if isinstance(layer, CategoryMixtureOfExperts)
    ]
    if tree is None or not mixtures:
        raise UserError(f"run {run}: its model has no gate by category")
    _, *seen = call_inputs(mixtures[0])
    decided = mixtures[0].decide(*seen)
    gates = tf.keras.Model(loaded.model.input, tf.nn.softmax(decided.logits))
    dataset = ElwcDatasetBuilder(DataFolder(data)).build_evaluation_dataset(split)
    infer = compiled(gates, dataset.element_spec[0])
    gathered: dict[tuple[str, str], tuple[int, NDArray[np.float64]]] = {}
    for features, *_ in dataset:
        names = list(zip(_texts(features[tree.parent]), _texts(features[tree.child]), strict=True))
        vectors = _of_lists(infer(features).numpy().astype(np.float64), features[MASK].numpy())
        for key, (count, total) in mean_by_category(names, vectors).items():
            before = gathered.get(key, (0, np.zeros_like(total)))
            gathered[key] = (before[0] + count, before[1] + total)
    keys = sorted(gathered)
    counts = np.array([gathered[key][0] for key in keys])
    sums = np.stack([gathered[key][1] for key in keys])
    return Gates([k[0] for k in keys], [k[1] for k in keys], counts, sums / counts[:, np.newaxis])


def _texts(tensor: Any) -> list[str]:
    return [value.decode("utf-8", "replace") for value in tensor.numpy().reshape(-1)]


def _of_lists(vectors: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[B, N] as they are, or the mean over the items of a list of [B, L, N]."""
    if vectors.ndim == 2:
        return vectors
    weights = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return np.einsum("bln,bl->bn", vectors, weights)


def silhouette(gates: Gates) -> float:
    """Mean silhouette of the gate vectors over top categories with two sub-categories or more.

    For a sub-category with mean distance a to its siblings and least mean distance b to the
    sub-categories of another top category it is (b - a) / max(a, b) (Rousseeuw 1987). NaN where fewer
    than two such top categories are there.
    """
    from sklearn.metrics import silhouette_score

    parents = np.array(gates.parents)
    names, counts = np.unique(parents, return_counts=True)
    kept = np.isin(parents, names[counts > 1])
    if len(np.unique(parents[kept])) < 2:
        return float("nan")
    return float(silhouette_score(gates.vectors[kept], parents[kept]))


def embed(gates: Gates, perplexity: float, seed: int) -> NDArray[np.float64]:
    """[S, 2] points by t-SNE (van der Maaten and Hinton 2008).

    Raises:
        UserError: below four sub-categories.
    """
    from sklearn.manifold import TSNE

    count = len(gates.children)
    if count < 4:
        raise UserError(f"t-SNE needs at least 4 sub-categories, the data has {count}")
    made = TSNE(perplexity=min(perplexity, (count - 1) / 3), init="pca", random_state=seed)
    return np.asarray(made.fit_transform(gates.vectors), np.float64)


def colour_groups(
    gates: Gates, groups: Mapping[str, Sequence[str]] | None
) -> tuple[list[str], list[str]]:
    """Per sub-category its group, and the groups in order; what has none is among the others.

    Raises:
        UserError: for a name in `groups` that is no top category.
    """
    if groups is None:
        sizes: dict[str, int] = {}
        for parent, lists in zip(gates.parents, gates.lists, strict=True):
            sizes[parent] = sizes.get(parent, 0) + int(lists)
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[: len(COLOURS)]
        groups = {name: (name,) for name in largest}
    of_parent = {name: group for group, names in groups.items() for name in names}
    for name in of_parent:
        if name not in gates.parents:
            there = ", ".join(sorted(set(gates.parents))[:20])
            raise UserError(f"groups: {name!r} is no top category; there are: {there}")
    found = [of_parent.get(parent, REST) for parent in gates.parents]
    return found, [*groups, *([REST] if REST in found else [])]


def _look(settings: GateSettings, data: str, job: Job) -> Result:
    """The silhouette of one run's gates and, of a model's first run, what the figure needs."""
    gates = read_gates(Path(job["run"]), Path(data), settings.split)
    found: Result = {"silhouette": silhouette(gates), "sub_categories": len(gates.children)}
    if job["seed"] == 1:
        points = embed(gates, settings.perplexity, job["seed"])
        groups, order = colour_groups(gates, settings.groups)
        found["points"] = [
            {"parent": p, "child": c, "lists": int(n), "group": g, "x": float(x), "y": float(y)}
            for p, c, n, g, (x, y) in zip(
                gates.parents, gates.children, gates.lists, groups, points, strict=True
            )
        ]
        found["order"] = order
    return found


def run(settings: GateSettings, place: Place) -> Sequence[RenderableType]:
    """Trains what is missing (see `runs_of`), looks at the gates, writes `results.json` and the figure."""
    from tfr_moe.evaluation.significance import seed_interval

    assert place.data is not None
    need_hierarchy(place.data)
    table = read_table(Path(settings.configs) / "table3")
    rows = [row for row in wanted_rows(table.rows, settings.rows) if row.config in MODELS]
    if not rows:
        raise UserError(f"rows: the figure is of {', '.join(MODELS)}, none of them is asked for")
    judged = judged_data(settings, place.data)
    cells = cells_of(rows, "table3", place.data, judged)
    runs = fair_runs(settings, cells, table.metrics, place)
    jobs = [
        {"cell": run.cell, "seed": run.seed, "run": str(run.path.resolve())}
        for row in rows
        for run in runs[row.name]
    ]
    looked = place.run_all(jobs, functools.partial(_look, settings, str(judged)), "gates")
    found = []
    for row in rows:
        own = [r for job, r in zip(jobs, looked, strict=True) if job["cell"] == row.name]
        interval = seed_interval([result["silhouette"] for result in own])
        found.append(
            {
                "model": row.name,
                "silhouette": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "runs": [result["silhouette"] for result in own],
                "sub_categories": own[0]["sub_categories"],
                "points": own[0]["points"],
                "order": own[0]["order"],
            }
        )
    write_json(place.out / "results.json", {"models": found})
    _draw(place.out, found)
    return [_shown(found)]


def _draw(out: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """The models side by side; the area of a point grows with the number of its lists."""
    with drawn(out, "figure_5_gate_vectors", panels=len(found), width=3.8, height=4.2) as panels:
        for axes, model in zip(panels, found, strict=True):
            for index, group in enumerate(model["order"]):
                points = [point for point in model["points"] if point["group"] == group]
                rest = group == REST
                axes.scatter(
                    [point["x"] for point in points],
                    [point["y"] for point in points],
                    s=[10 + 4 * np.log1p(point["lists"]) for point in points],
                    color="#B0B0B0" if rest else COLOURS[index % len(COLOURS)],
                    marker="." if rest else MARKS[index % len(MARKS)],
                    alpha=0.8,
                    linewidths=0,
                    label=group,
                )
            axes.set_title(f"{model['model']}, silhouette {model['runs'][0]:+.3f}", fontsize=10)
            axes.set_xticks([])
            axes.set_yticks([])
        panels[0].figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )


def _shown(found: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title=f"{NAME}: silhouette of gate vectors over top categories, mean over seeds ± 95 %; the paper "
        "shows pictures: Adv-MoE clusters better than MoE, Adv & HSC-MoE best",
        title_justify="left",
    )
    table.add_column("model")
    table.add_column("silhouette", justify="right")
    table.add_column("sub-categories", justify="right")
    for model in found:
        text = f"{model['silhouette']:+.4f}"
        if model["low"] == model["low"]:
            text += f" ±{model['high'] - model['silhouette']:.4f}"
        table.add_row(model["model"], text, str(model["sub_categories"]))
    return table


STUDY = Study(GateSettings, run, needs_data=True)
