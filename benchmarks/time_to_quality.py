"""How long a model, LightGBM and XGBoost take to the same NDCG on the validation split.

    python benchmarks/time_to_quality.py --data DATA [--model NAME] [--set key=value]...
        [--json FILE]

Each trains once. After each epoch, or every 50 trees, its scores of the validation split give a
point: the seconds so far, and the mean NDCG of the lists that have something relevant. Reading the
records counts for all, scoring for a point does not. There are two goals, the highest NDCG that all
of them reach, and LightGBM's best; a contestant's time is that of its first point there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rich.console import Console
from timing import machine, sizes_of, training_parser, write

from tfr_moe._compat import tf
from tfr_moe.baselines import boosting, lambdamart
from tfr_moe.baselines.rows import Rows, write_rows
from tfr_moe.config import load_config
from tfr_moe.data import DataFolder
from tfr_moe.metrics.per_list import ndcg
from tfr_moe.schema import MASK
from tfr_moe.training.pipeline import RankingPipeline
from tfr_moe.training.run import fit, make_builder

Curve = list[tuple[float, float]]
QUIET = Console(quiet=True)


def mean_ndcg(batches: Iterable[tuple[Any, Any, Any]]) -> float:
    """Over (scores, labels, mask) of the lists that have something relevant."""
    each = np.concatenate(
        [
            ndcg(np.asarray(scores), np.asarray(labels), np.asarray(mask))
            for scores, labels, mask in batches
        ]
    )
    return float(np.nanmean(each))


class Points(tf.keras.callbacks.Callback):
    """A point after each epoch, with the clock stopped while it is made."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.perf_counter()
        self.data: Any = None
        self.curve: Curve = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        stopped = time.perf_counter()
        quality = mean_ndcg(
            (self.model(features, training=False), labels, features[MASK])
            for features, labels, *_ in self.data
        )
        self.curve.append((stopped - self._begun, quality))
        self._begun += time.perf_counter() - stopped


def of_model(folder: DataFolder, config: Any, work: Path) -> Curve:
    points = Points()
    builder = make_builder(folder, config)
    points.data = builder.build_valid_dataset()

    class Watched(RankingPipeline):
        def build_callbacks(self) -> list[Any]:
            return [points, *super().build_callbacks()]

    work.mkdir()
    fit(builder, config, work, QUIET, Watched)
    return points.curve


def lists_of(rows: Rows, scores: Any) -> Iterable[tuple[Any, Any, Any]]:
    """Rows as padded lists, some at a time."""
    ends = np.cumsum(rows.sizes)
    for start in range(0, len(rows.sizes), 1024):
        sizes = rows.sizes[start : start + 1024]
        first = ends[start] - rows.sizes[start]
        mask = np.arange(sizes.max()) < sizes[:, None]
        padded = np.zeros((2, *mask.shape))
        for number, values in enumerate((scores, rows.labels)):
            padded[number][mask] = values[first : first + sizes.sum()]
        yield padded[0], padded[1], mask


def of_trees(
    module: ModuleType, staged: Callable[[Any, Any, int], Any], train: Rows, valid: Rows, seed: int
) -> Curve:
    started = time.perf_counter()
    times: list[float] = []
    fitted = module.fit(
        train,
        valid,
        module.settings_of({}, seed),
        lambda _line: times.append(time.perf_counter() - started),
    )
    times.append(time.perf_counter() - started)
    trees = [50 * (i + 1) for i in range(len(times) - 1)] + [fitted.rounds]
    values, best = np.asarray(valid.values), fitted.best_round
    return [
        # XGBoost keeps the trees up to the best one only, and neither library uses later ones.
        (seconds, mean_ndcg(lists_of(valid, staged(fitted.ranker, values, min(count, best)))))
        for seconds, count in zip(times, trees, strict=True)
    ]


STAGED: dict[str, tuple[ModuleType, Callable[[Any, Any, int], Any]]] = {
    "lambdamart": (lambdamart, lambda r, v, n: r._booster.predict(v, num_iteration=n)),
    "xgboost": (boosting, lambda r, v, n: r._booster.inplace_predict(v, iteration_range=(0, n))),
}


def _seconds_to(goal: float, curves: dict[str, Curve]) -> dict[str, float | None]:
    return {
        model: next((spent for spent, quality in curve if quality >= goal), None)
        for model, curve in curves.items()
    }


def main() -> None:
    arguments = training_parser(__doc__, rounds=1).parse_args()
    quick = ["num_epochs=2", "expert_hidden_dims=[16]"] if arguments.quick else []
    folder = DataFolder(arguments.data)
    settings = [f"seed={arguments.seed}", *quick, *arguments.settings]
    config = load_config(model=arguments.model, overrides=settings)
    curves: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        curves[arguments.model] = of_model(folder, config, work / "run")
        started = time.perf_counter()
        train, valid = (
            write_rows(folder, split, work, lambda *_: None, config.features)
            for split in ("train", "validation")
        )
        preparing = time.perf_counter() - started
        for model, (module, staged) in STAGED.items():
            trees = of_trees(module, staged, train, valid, arguments.seed)
            curves[model] = [(preparing + spent, quality) for spent, quality in trees]
    best = {model: max(quality for _, quality in curve) for model, curve in curves.items()}
    goals = {"all": min(best.values()), "LightGBM's best": best["lambdamart"]}
    seconds = {name: _seconds_to(goal, curves) for name, goal in goals.items()}
    result: dict[str, Any] = {
        "machine": machine(),
        "sizes": sizes_of(arguments),
        "goals": goals,
        "seconds_to_goals": seconds,
        "best": best,
        "rows_for_trees_seconds": preparing,
        "curves": curves,
    }
    for name, goal in goals.items():
        print(f"seconds to a validation NDCG of {goal:.4f} ({name}):")
        for model, spent in seconds[name].items():
            print(f"  {model}: {'not reached' if spent is None else f'{spent:.1f}'}")
    print(f"{preparing:.1f} s of those of the trees prepare their rows")
    write(result, arguments.json)


if __name__ == "__main__":
    main()
