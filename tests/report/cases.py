"""Reports made by hand, not by training: a winner, no difference, a collapsed gate, tasks."""

import numpy as np

from tfr_moe.analysis.calibration import CalibrationCounter
from tfr_moe.analysis.drift import DriftRow
from tfr_moe.analysis.list_examples import ShownItem, ShownList
from tfr_moe.config import make_config
from tfr_moe.evaluation.breakdown import per_category
from tfr_moe.evaluation.evaluate import compare_results
from tfr_moe.evaluation.leaderboard import make_leaderboard
from tfr_moe.evaluation.results import PerListResult
from tfr_moe.metrics.per_list import ListBatch
from tfr_moe.report.build import Report
from tfr_moe.report.figures import learning_curves
from tfr_moe.report.run_part import RunPart
from tfr_moe.scorers.gate_maps import GateMap
from tfr_moe.training.collapsed_gates import collapsed_gates

TOPS = ["shoes", "books", "toys", "garden", "food", "music"]
METRICS = ("session_auc", "ndcg_10", "mrr")
LISTS = 600
SIZES = {"lambdamart": 12_400, "dnn": 812_345, "adv_hsc_moe": 3_456_789, "mmoe": 1_234_567}
GAIN_OF_MIXTURE = 0.03


def result(gains, seed=1, metrics=METRICS):
    """Metrics of lists whose difficulty is shared by all models; `gains` by top category."""
    shared, of_seed = np.random.default_rng(0), np.random.default_rng(seed)
    tops = np.array([TOPS[i] for i in shared.integers(len(TOPS), size=LISTS)], object)
    values, undefined = {}, shared.random(LISTS) < 0.05
    for name in metrics:
        difficulty = 0.7 + 0.15 * shared.normal(size=LISTS)
        chance = 0.02 * of_seed.normal(size=LISTS)
        gain = np.array([gains.get(top, gains.get("", 0.0)) for top in tops])
        values[name] = np.where(undefined, np.nan, np.clip(difficulty + gain + chance, 0, 1))
    return PerListResult(
        np.array([f"q{i}" for i in range(LISTS)], object),
        values,
        dict.fromkeys(metrics, undefined),
        np.full(LISTS, 10),
        np.where(undefined, 0, 2),
        tops,
        tops + " > " + np.array(["A", "B"] * (LISTS // 2), object),
    )


def gate_report(num_experts=8, top_k=2, collapsed=False, dense=False, seed=3):
    """The gate of lists of two sub-categories each; each top category has experts of its own."""
    rng = np.random.default_rng(seed)
    gate = GateMap(num_experts)
    tops = np.array([TOPS[i % len(TOPS)] for i in range(240)], object)
    subs = np.array([f"{top} {'AB'[i // 120]}" for i, top in enumerate(tops)], object)
    if dense:
        ids = np.tile(np.arange(num_experts), (240, 1))
        weights = rng.dirichlet(np.ones(num_experts), 240)
    else:
        first = np.array([0 if collapsed else TOPS.index(top) for top in tops])
        ids = np.stack([first, (first + 1) % num_experts], axis=1)
        weights = np.tile([0.7, 0.3], (240, 1))
    gate.add(ids, weights, np.ones([240, 9], bool), tops, subs)
    return gate.report()


def calibration(shift):
    rng, counter = np.random.default_rng(5), CalibrationCounter()
    logits = rng.normal(-2, 1.5, (400, 10))
    labels = (rng.random((400, 10)) < 1 / (1 + np.exp(-logits))).astype(float)
    ids = np.array([f"q{i}" for i in range(400)], object)
    counter({"": ListBatch(logits + shift, labels, np.ones((400, 10), bool), ids)})
    return counter.result()


def run_part(name, model, gates=None, shift=None, attention=None):
    config = make_config({"model": model})
    rng = np.random.default_rng(7)
    history = [
        {
            "epoch": epoch,
            "loss": 0.7 - 0.05 * epoch,
            "val_loss": 0.7 - 0.04 * epoch + 0.004 * epoch**2,
            **{f"val_{m}": 0.6 + 0.02 * epoch + 0.005 * rng.random() for m in METRICS},
            **({"gate_entropy": 0.6, "busiest_share": 0.4, "dead_experts": 0.0} if gates else {}),
            **({"hsc": 0.1, "adversarial_share": 0.02} if model == "adv_hsc_moe" else {}),
        }
        for epoch in range(1, 9)
    ]
    seconds = {"lambdamart": 14.0, "dnn": 95.0}.get(model, 640.0)
    return RunPart(
        name=name,
        path=f"comparison/runs/{name}/lr-0.001-seed-1",
        model=model,
        settings={"learning_rate": 0.001},
        metrics={
            "data": "data/shop",
            "monitor": "val_session_auc",
            "best_epoch": 6,
            "epochs": 8,
            "parameters": SIZES[model],
            "seconds": seconds,
            "versions": {"tensorflow": "2.15.1"},
        },
        milliseconds=seconds / 200,
        command=f"tfr-moe train --data data/shop --config {name}/config.yaml --out RUN",
        curves={} if model == "lambdamart" else learning_curves(history),
        gates=gates or {},
        warnings=collapsed_gates(gates or {}, config),
        calibration=None if shift is None else calibration(shift),
        attention={"position": attention} if attention else {},
        attention_lists=2000 if attention else 0,
    )


def shown_lists(names):
    def example(number):
        items = [
            ShownItem(rank, 2.0 - rank / 3, float(rank == 3), 7 - rank,
                      {"brand": f"brand {rank}", "price": 19.99 * rank, "sales": 1200.0 * rank})
            for rank in range(1, 7)
        ]  # fmt: skip
        values = {name: 0.5 + 0.1 * i for i, name in enumerate(names)}
        context = {"query": "running shoes", "top": "shoes", "sub": "shoes A"}
        return ShownList(f"query {number}", values, context, items, 9)

    kinds = ("worst", "best", "lost", "gained")
    return {kind: [example(4 * k + i) for i in range(2)] for k, kind in enumerate(kinds)}


ATTENTION = {
    "labels": ["1", "2", "3", "4"],
    "lift": [[0.97, 1.02, 1.0, 0.99], [1.02, 0.98, 1.0, 1.01]] + [[1.0, 1.0, 1.01, 0.99]] * 2,
    "pairs": [[9] * 4] * 4,
}


def make(gains, gates=None, metrics=METRICS, seeds=3, baseline=None, notes=None, labels=("buy",)):
    """A report of models with these gains by top category, `seeds` runs each."""
    split = {m: [result(g, seed=10 * i + s + 1, metrics=metrics) for s in range(seeds)]
             for i, (m, g) in enumerate(gains.items())}  # fmt: skip
    models = {m: ("mmoe" if m.startswith("mmoe") else m) for m in gains}
    names = {m: {f"{m}/seed-{s}": {"seconds": {"lambdamart": 14.0, "dnn": 95.0}.get(m, 640.0),
                                   "parameters": SIZES[models[m]]} for s in range(seeds)}
             for m in gains}  # fmt: skip
    metric = metrics[0]
    board = make_leaderboard(metric, split, split, names, dict.fromkeys(gains), "test", baseline)
    ranked = [entry.model for entry in board.entries]
    reference = [*([baseline] if baseline else reversed(board.references)), *ranked]
    base = next((m for m in reference if m != board.ship), None) if len(gains) > 1 else None
    subject = next(m for m in ranked if m != base)
    results = {m: split[m][0] for m in dict.fromkeys([*([base] if base else []), *gains])}
    counts = {}
    if base:
        ours, theirs = (results[m].values[metric] for m in (subject, base))
        counts = {"better": int((ours > theirs).sum()), "equal": int((ours == theirs).sum()),
                  "worse": int((ours < theirs).sum())}  # fmt: skip
    parts = [
        run_part(m, models[m], (gates or {}).get(m), 0.5 if m == subject else None,
                 ATTENTION if m == "dnn" else None)
        for m in results
    ]  # fmt: skip
    return Report(
        command="tfr-moe compare --data data/shop --out comparison",
        made="2026-11-23T12:00:00+00:00",
        split="test",
        metric=metric,
        data={
            "path": "data/shop",
            "source": "lists",
            "period": "from 2026-09-01 on",
            "splits": {"train": {"lists": 51_234, "items": 512_340}, "test": {"lists": LISTS}},
            "features": {"categorical": 5, "numeric": 12},
            "labels": labels,
            "hierarchy": ("top", "sub"),
            "notes": notes or {},
            "warnings": [],
        },
        evaluation=compare_results(results, base, category_metric=metric),
        sub_categories=per_category(results, metric, base, level="sub"),
        runs=parts,
        leaderboard=board,
        subject=subject,
        lists=shown_lists(list(results)),
        importance=None,
        list_counts=counts,
    )  # fmt: skip


def wins():
    """The mixture wins, most of all for shoes and not at all for food."""
    gains = {"": GAIN_OF_MIXTURE, "shoes": 0.06, "food": -0.03}
    models = {"lambdamart": {"": -0.02}, "dnn": {}, "adv_hsc_moe": gains}
    return make(models, {"adv_hsc_moe": {"": gate_report(6)}})


def nothing_differs():
    """Three models that differ by chance only, with sampled negatives."""
    notes = {"negatives": "sampled: these items were not shown to the user", "seed": 1}
    models = {"lambdamart": {"": -0.0001}, "dnn": {"": 0.0001}, "adv_hsc_moe": {"": 0.0006}}
    gates = {"adv_hsc_moe": {"": gate_report(6)}}
    return make(models, gates, notes=notes)


def collapsed():
    """A mixture whose gate selects the same two of eight experts for all categories."""
    return make(
        {"dnn": {}, "adv_hsc_moe": {"": 0.01}},
        {"adv_hsc_moe": {"": gate_report(8, collapsed=True)}},
    )


def tasks():
    """Two multi-task runs as given: better by clicks, level by purchases."""
    metrics = tuple(f"{task}_{m}" for task in ("buy", "click") for m in METRICS)
    gates = {
        f"mmoe-{run}": {task: gate_report(4, dense=True, seed=run) for task in ("buy", "click")}
        for run in (1, 2)
    }
    report = make({"mmoe-1": {}, "mmoe-2": {"": 0.02}}, gates,
                  metrics, 1, "mmoe-1", labels=("buy", "click"))  # fmt: skip
    return report


def single():
    """One run."""
    return make({"adv_hsc_moe": {}}, {"adv_hsc_moe": {"": gate_report(6)}}, seeds=1)


CASES = {f.__name__: f for f in (wins, nothing_differs, collapsed, tasks, single)}


def drift_row(column, category="", psi=0.01, shift=None, missing=0.0, unknown=None, above=None):
    """A row whose reference has no missing values and 2 % of unknown IDs."""
    of_reference = None if unknown is None else 0.02
    lists = (600, 620) if category else (5000, 5200)
    # The reference has mean 12.5 and deviation 10.
    means = (None, None) if shift is None else (12.5 + 10 * shift, 12.5)
    return DriftRow(column, category, *lists, psi, shift, missing, 0.0, unknown, of_reference,
                    *means, above or {})  # fmt: skip


def drift():
    """Prices in another unit, new brands, missing sales, ratings of toys; labels as before."""
    rows = [
        drift_row("buy", shift=0.01),
        drift_row("price", psi=0.41, shift=0.72, above={"psi": 0.26, "mean_shift": 0.58}),
        drift_row("sales", psi=0.1, shift=0.1, missing=0.2, above={"missing": 0.06}),
        drift_row("brand", psi=0.2, unknown=0.31, above={"out_of_vocabulary": 0.21}),
        drift_row("rating", shift=0.02),
    ]
    of_tops = [
        drift_row(row.column, top, psi=0.4, above={"psi": 0.3})
        if (row.column, top) in {("price", "shoes"), ("rating", "toys")}
        else drift_row(row.column, top)
        for row in rows
        for top in TOPS
    ]
    return [*rows, *of_tops]
