"""Importance of features: what a ranking metric loses when the values of a feature are shuffled.

Permutation importance (Breiman 2001; Fisher et al. 2019, https://arxiv.org/abs/1801.01489), for any
model: it needs scores alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.breakdown import NO_CATEGORY
from tfr_moe.evaluation.evaluate import check_schema, split_metric
from tfr_moe.evaluation.results import t_interval
from tfr_moe.evaluation.scoring import list_batch, of_task
from tfr_moe.metrics.naming import check_columns
from tfr_moe.metrics.per_list import Array, Floats, resolve
from tfr_moe.schema import MASK, FeatureSchema, Scope
from tfr_moe.training import LoadedRun
from tfr_moe.utils.console import ProgressCallback

SIGNIFICANCE = 0.05
MIN_LISTS = 20
"""Evaluated lists of a category that is shown and compared."""


@dataclass(frozen=True)
class ImportanceRow:
    """The importance of a feature, over all lists or those of one top category.

    Attributes:
        feature: the feature; the names of features that are shuffled together are joined by ` + `.
        category: the top category; "" for all lists.
        drop: what the metric loses, a mean over lists; `low` and `high` are the ends of its 95 % t
            interval, NaN below two lists.
        lists: number of lists with the metric.
        p_value: that the drop is the same in all categories (Brown and Forsythe's F test),
            corrected for the number of features (Benjamini and Hochberg); NaN below two categories.
    """

    feature: str
    category: str
    drop: float
    low: float
    high: float
    lists: int
    p_value: float

    @property
    def differs(self) -> bool:
        """Whether the importance differs between categories."""
        return self.p_value < SIGNIFICANCE


@dataclass(frozen=True)
class Importance:
    """Importance of all features for one model.

    Attributes:
        metric: the metric, `<task>_<metric>` for a task.
        mean: its mean with all features as they are.
        lists: number of lists that were scored, `evaluated` that of those with the metric.
        rows: those over all lists, then those of each category, largest first; the features of
            each in the same order, most important first.
    """

    metric: str
    mean: float
    lists: int
    evaluated: int
    repeats: int
    rows: list[ImportanceRow]

    def of(self, category: str = "") -> list[ImportanceRow]:
        """The rows of one category; by default those over all lists."""
        return [row for row in self.rows if row.category == category]

    @property
    def categories(self) -> list[str]:
        """The top categories, largest first."""
        return [name for name in dict.fromkeys(row.category for row in self.rows) if name]

    @property
    def scale(self) -> float:
        """The largest absolute end of the intervals over all lists."""
        ends = [(row.drop, row.low, row.high) for row in self.of()]
        return float(np.nanmax(np.abs(ends), initial=0.0))

    def frame(self) -> pd.DataFrame:
        """The rows, `category` "" for all lists, as a data frame whose `attrs` have `findings`."""
        frame = pd.DataFrame(self.rows)
        frame.attrs["findings"] = self.findings()
        return frame

    def findings(self) -> list[str]:
        """Says in sentences what matters, and whether categories differ in it."""
        overall = self.of()
        first, significant = overall[0], [row for row in overall if row.low > 0]
        if not significant:
            return ["No feature has a significant importance."]
        count = f"{len(significant)} of {len(overall)} features have a significant importance"
        lines = [
            f"{first.feature} matters most: shuffled, it costs {first.drop:.4f} of {self.mean:.4f} "
            f"{self.metric} (95 % interval {first.low:.4f} to {first.high:.4f}). {count}."
        ]
        if len(self.categories) < 2:
            return lines
        differing = [self._range(r.feature) for r in significant if r.differs]
        if differing:
            lines.append(
                f"Importance differs between top categories for {'; '.join(differing)}. "
                "Categories weigh features differently, which is the reason for a gate."
            )
        else:
            lines.append(
                "No significant difference of importance between top categories: these "
                f"{self.evaluated:,} lists do not show that categories need separate experts."
            )
        return lines

    def _range(self, feature: str) -> str:
        """A feature with the categories in which it matters least and most."""
        rows = [row for row in self.rows if row.feature == feature and row.category]
        least, *_, most = sorted(rows, key=lambda row: row.drop)
        ends = " to ".join(f"{row.category} {row.drop:+.4f}" for row in (least, most))
        return f"{feature} ({ends})"


def feature_groups(schema: FeatureSchema) -> list[tuple[str, ...]]:
    """The features, those of the category tree together: only their pairs have a meaning."""
    tree = schema.hierarchy
    joint = [(tree.parent, tree.child), schema.item_categories] if tree else []
    groups = [group for group in joint if group]
    tied = {name for group in groups for name in group}
    return [*groups, *((f.name,) for f in schema.features if f.name not in tied)]


def brown_forsythe(groups: Sequence[Floats]) -> float:
    r"""P value of equal means of groups whose variances may differ (Brown and Forsythe 1974).

    $$ F = \frac{\sum_g n_g (\bar{x}_g - \bar{x})^2}{\sum_g (1 - n_g / n) s_g^2} $$

    It is 1 if no group has a variance and all means are equal.
    """
    sizes = np.array([len(group) for group in groups], np.float64)
    means = np.array([group.mean() for group in groups])
    between = float(sizes @ (means - sizes @ means / sizes.sum()) ** 2)
    parts = (1 - sizes / sizes.sum()) * [group.var(ddof=1) for group in groups]
    within = float(parts.sum())
    if within <= 1e-24:
        return 1.0 if between <= 1e-24 else 0.0
    freedom = within**2 / float(np.sum(parts**2 / (sizes - 1)))
    return float(stats.f.sf(between / within, len(groups) - 1, freedom))


class _Sample:
    """The first lists of a split in memory, scored with features shuffled between lists.

    Values stay within their top category, so that a category does not get prices of another one;
    the categories themselves are shuffled between all lists.
    """

    def __init__(
        self,
        run: LoadedRun | BaselineRun,
        folder: DataFolder,
        split: str,
        metric: str,
        max_lists: int,
        batch_size: int,
    ):
        self._schema = schema = folder.schema
        task, bare = split_metric(metric, run.task_names)
        self.metric = f"{task}_{bare}" if task else bare
        self._per_list = resolve(bare)
        check_columns([bare], schema.position, schema.weight)
        builder = ElwcDatasetBuilder(folder, max_lists, tasks=(task,) if task else ())
        first = next(iter(builder.build_evaluation_dataset(split)), None)
        if first is None:
            raise UserError(f"data {folder.path}: split {split!r} has no lists")
        self._features, labels, extras = first
        self._infer, self._batch_size = of_task(run, task), batch_size
        labels = labels[task] if task else labels
        scores = self._scores(self._features)
        self._batch = list_batch(self._features, labels, extras, scores, schema)
        self.values = self._per_list(self._batch)
        tops = self._batch.categories
        self.categories = None if tops is None else tops.astype(str)

    def _scores(self, features: Mapping[str, Any]) -> tf.Tensor:
        """Scores [lists, L], computed in batches."""
        starts = range(0, len(features[MASK]), self._batch_size)
        batches = ({n: v[i : i + self._batch_size] for n, v in features.items()} for i in starts)
        return tf.concat([self._infer(batch) for batch in batches], axis=0)

    def shuffled(self, names: Sequence[str], rng: np.random.Generator) -> Floats:
        """The metric of each list with the values of some features shuffled."""
        scope = self._schema.feature(names[0]).scope  # that of all features of a group
        rows = self._permutation(scope, names, rng)
        real = self._batch.mask if scope == "example" else slice(None)
        features = dict(self._features)
        for name in names:
            tensor, part = self._schema.stored_at(name)
            values = np.array(features[tensor])
            stored = values[real]
            stored[:, part] = stored[rows][:, part]
            values[real] = stored
            features[tensor] = tf.constant(values)
        scores = self._scores(features).numpy()
        return self._per_list(replace(self._batch, scores=scores))

    def _permutation(
        self, scope: Scope, names: Sequence[str], rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """From which row each row takes its values: of all lists, or of all items."""
        groups = np.zeros(len(self.values), np.int64)
        tree = self._schema.hierarchy
        if self.categories is not None and tree is not None and tree.parent not in names:
            groups = np.unique(self.categories, return_inverse=True)[1].reshape(-1)
        if scope == "example":
            groups = np.repeat(groups, self._batch.mask.sum(axis=1))
        rows = np.empty(len(groups), np.intp)
        rows[np.argsort(groups, kind="stable")] = np.lexsort([rng.random(len(groups)), groups])
        return rows


def feature_importance(
    run: LoadedRun | BaselineRun,
    folder: DataFolder,
    split: str = "validation",
    metric: str = "ndcg_10",
    max_lists: int = 2000,
    repeats: int = 3,
    seed: int = 0,
    batch_size: int = 128,
    move: ProgressCallback | None = None,
) -> Importance:
    r"""Measures what a metric loses when the values of each feature are shuffled between lists.

    $$ I_j = \frac{1}{n} \sum_{l=1}^{n} \Big( m_l - \frac{1}{R} \sum_{r=1}^{R} m_l^{(j, r)} \Big) $$

    with m_l the metric of list l and m_l^(j, r) that in shuffle r of feature j, see `_Sample`. The
    features of the category tree are shuffled together.

    Args:
        metric: a metric; for several tasks `<task>_<metric>`, by default that of the first task.
        max_lists: number of lists from the start of the split, which are held in memory.
        move: called with the number of shuffles done, of all, and a text.

    Raises:
        UserError: for data of another schema, an unknown metric or split.
    """
    check_schema(run, folder)
    sample = _Sample(run, folder, split, metric, max_lists, batch_size)
    groups = feature_groups(folder.schema)
    losses = []
    for number, names in enumerate(groups):
        loss = np.zeros(len(sample.values))
        for repeat in range(repeats):
            rng = np.random.default_rng([seed, repeat, number])
            loss += sample.values - sample.shuffled(names, rng)
            if move is not None:
                done = number * repeats + repeat + 1
                move(done, len(groups) * repeats, f"shuffling {' + '.join(names)}")
        losses.append(loss / repeats)
    evaluated = ~np.isnan(sample.values)
    selected: dict[str, Array] = {"": evaluated}
    if sample.categories is not None:
        names, counts = np.unique(sample.categories[evaluated], return_counts=True)
        for i in np.argsort(-counts, kind="stable"):
            if counts[i] >= MIN_LISTS:
                selected[str(names[i]) or NO_CATEGORY] = evaluated & (sample.categories == names[i])
    p_values = np.full(len(groups), np.nan)
    if len(selected) > 2:
        _, *of_categories = selected.values()
        tests = [brown_forsythe([loss[at] for at in of_categories]) for loss in losses]
        p_values = stats.false_discovery_control(tests)
    rows = []
    order = np.argsort([-t_interval(loss[evaluated])[0] for loss in losses], kind="stable").tolist()
    for category, lists in selected.items():
        for i in order:
            mean, _, low, high = t_interval(losses[i][lists])
            number = int(lists.sum())
            feature, p_value = " + ".join(groups[i]), float(p_values[i])
            rows.append(ImportanceRow(feature, category, mean, low, high, number, p_value))
    return Importance(
        metric=sample.metric,
        mean=t_interval(sample.values[evaluated])[0],
        lists=len(evaluated),
        evaluated=int(evaluated.sum()),
        repeats=repeats,
        rows=rows,
    )
