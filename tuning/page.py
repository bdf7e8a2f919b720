"""A sweep as one HTML page that needs no network: light and dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import yaml

from tfr_moe import webpage
from tfr_moe.config import make_config

from . import figures, lines, tables, words
from .records import Trial
from .summary import Entry, Summary

MOST_ROWS = 500


def render(
    summary: Summary,
    best_settings: Mapping[str, Any] | None = None,
    retrained: Mapping[str, Any] | None = None,
) -> str:
    """The page.

    Args:
        summary: the sweep.
        best_settings: the settings of the best trial's run, all of them.
        retrained: the content of `retrained/results.json`, where there is one.
    """
    parts = [
        _head(summary),
        _best(summary, best_settings),
        _retrained(summary, retrained),
        _failures(summary.failed),
        *_pictures(summary),
        _trials(summary),
        _curves(summary),
        _parallel(summary),
        _marginals(summary),
        _made_by(summary),
    ]
    return webpage.page(f"{summary.path.resolve().name}: {summary.objective}", parts)


def _head(summary: Summary) -> str:
    settings, best = summary.settings, summary.best
    about = {
        "data": settings.get("data"),
        "space": _name(settings.get("space")),
        "search": _name(settings.get("algorithm")),
    }
    told = "; ".join(f"{key}: {value}" for key, value in about.items() if value)
    better = "higher" if summary.higher else "lower"
    tiles = []
    if best is not None:
        what = words.settings(best.trial.hyperparameters, summary.varying) or "the one trial"
        tiles.append(webpage.tile(words.measured(best.value, best.std), f"best: {what}", True))
    tiles.append(webpage.tile(str(len(summary.entries)), "trials with a result"))
    if summary.failed:
        tiles.append(webpage.tile(str(len(summary.failed)), "trials failed"))
    if summary.open:
        tiles.append(webpage.tile(str(len(summary.open)), "trials running or interrupted"))
    if summary.noise is not None:
        tiles.append(webpage.tile(f"{summary.noise.std:.4f}", "deviation between seeds"))
    seconds = sum(seed.seconds for e in summary.entries for seed in e.trial.seeds)
    tiles.append(webpage.tile(webpage.duration(seconds), "of training"))
    return (
        f"<h1>{escape(summary.path.resolve().name)}</h1>\n"
        f'<p class="lead">Tuning for {escape(summary.objective)} on the validation split, '
        f"{better} is better.<br>{escape(told)}</p>\n"
        f'<div class="tiles">{"".join(tiles)}</div>\n<p>{escape(tables.noise_line(summary))}</p>'
    )


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("preset") or value.get("function") or ", ".join(value))
    return "" if value is None else str(value)


def _best(summary: Summary, settings: Mapping[str, Any] | None) -> str:
    if summary.best is None:
        return ""
    best = summary.best
    pairs = [
        (words.heading(name), words.shown(best.trial.hyperparameters.get(name)))
        for name in summary.varying or best.trial.hyperparameters
    ]
    found = (
        f"<h2>Best configuration</h2>\n<p>Trial {escape(best.trial.trial_id)}. "
        "It is the best of many on the lists it was chosen by, so that its number is a little too "
        "good; retraining with other seeds and the test split say what it is worth.</p>\n"
        + webpage.table(["hyper-parameter", "value"], pairs, text=1)
    )
    if settings is not None:
        data = summary.settings.get("data", "DATA")
        command = f"tfr-moe train --data {data} --config {summary.path}/best.yaml --out RUN"
        found += f"\n<pre>{escape(command)}</pre>"
    return found


def _retrained(summary: Summary, retrained: Mapping[str, Any] | None) -> str:
    if retrained is None or summary.best is None:
        return ""
    rows = []
    for split, metrics in retrained["summary"].items():
        for name, m in metrics.items():
            interval = "–" if m["low"] is None else f"{m['low']:.4f} to {m['high']:.4f}"
            rows.append((name, split, f"{m['mean']:.4f}", interval))
    seeds = ", ".join(str(run["seed"]) for run in retrained["runs"])
    note = f"Trained anew with seeds {seeds}; the interval is a 95 % t interval over these seeds."
    if retrained["trial_id"] != summary.best.trial.trial_id:
        note += f" These are runs of trial {retrained['trial_id']}, which was the best before."
    return f"<h2>Retrained and tested</h2>\n<p>{escape(note)}</p>\n" + webpage.table(
        ["metric", "split", "mean", "interval"], rows, text=2
    )


def _failures(failed: Sequence[Trial]) -> str:
    if not failed:
        return ""
    rows = []
    for trial in failed:
        what = words.settings(trial.hyperparameters, trial.hyperparameters)
        rows.append((trial.trial_id, what, trial.error or "no number"))
    body = "".join(
        f'<p><b class="failed">Trial {escape(i)}</b> ({escape(what)})<br>{escape(error)}</p>\n'
        for i, what, error in rows
    )
    return f"<h2>Failed trials</h2>\n{body}"


def _pictures(summary: Summary) -> Iterable[str]:
    heat = figures.heat_map(summary)
    if heat is not None:
        across, down = figures.grid_axes(summary) or ("", "")
        others = [name for name in summary.varying if name not in (across, down)]
        yield "<h2>Heat map</h2>"
        yield webpage.figure(
            heat,
            f"{summary.objective} by {words.heading(across)} and {words.heading(down)}, mean and "
            "deviation over seeds; brighter is better, the best is framed. Far worse trials share "
            "the darkest colour."
            + (f" Each cell is the best over {', '.join(others)}." if others else ""),
            wide=True,
        )
        return
    drawn = figures.bars(summary)
    if drawn is not None:
        yield "<h2>By setting</h2>"
        yield webpage.figure(
            drawn,
            "Mean over seeds, dots are the single seeds, whiskers one standard deviation. The axis "
            "does not begin at 0.",
        )


def _trials(summary: Summary) -> str:
    if not summary.entries:
        return ""
    names = [words.heading(name) for name in summary.varying]
    headings = ["", summary.objective, "gap", *names, "seeds", "best epoch", "epochs", "s", "trial"]
    rows = [_row(summary, entry) for entry in summary.entries[:MOST_ROWS]]
    hidden = len(summary.entries) - MOST_ROWS
    return (
        "<h2>All trials</h2>\n"
        + webpage.table(headings, rows, best=0, box="scroll tall")
        + '\n<p class="note">Gap: by how much it is worse than the best; ~ marks what the seeds\' '
        "noise could make." + (f" {hidden} more are in results.csv." if hidden > 0 else "") + "</p>"
    )


def _row(summary: Summary, entry: Entry) -> list[str]:
    trial = entry.trial
    near = " ~" if entry.tied and entry.rank > 1 else ""
    return [
        str(entry.rank),
        words.measured(entry.value, entry.std),
        "" if entry.rank == 1 else f"{entry.gap:.4f}{near}",
        *(words.shown(trial.hyperparameters.get(name)) for name in summary.varying),
        str(len(trial.seeds)),
        words.span([seed.best_epoch for seed in trial.seeds]),
        words.span([seed.epochs for seed in trial.seeds]),
        f"{sum(seed.seconds for seed in trial.seeds):.0f}",
        trial.trial_id,
    ]


def _curves(summary: Summary) -> str:
    drawn = [
        (
            lines.learning_curves(summary),
            "The best five trials in colour, the others in grey. Curves that still rise at their "
            "end want more epochs.",
        ),
        (
            lines.loss_curves(summary),
            "The same trials' loss on the validation split: where it rises, a trial has begun to "
            "learn the training lists by heart.",
        ),
    ]
    found = [webpage.figure(drawing, caption) for drawing, caption in drawn if drawing is not None]
    if not found:
        return ""
    return f'<h2>Learning curves</h2>\n<div class="columns">{"".join(found)}</div>'


def _parallel(summary: Summary) -> str:
    drawing = lines.parallel_coordinates(summary)
    if drawing is None:
        return ""
    caption = "A line is a trial, brighter is better, the best is thick; only what varied is shown."
    return "<h2>Parallel coordinates</h2>\n" + webpage.figure(drawing, caption, wide=True)


def _marginals(summary: Summary) -> str:
    found = tables.marginals(summary)
    if len(summary.varying) < 2 or not found:
        return ""
    blocks = [
        webpage.table(
            [words.heading(name), f"mean {summary.objective}", "trials"],
            [(words.shown(value), f"{mean:.4f}", str(count)) for value, mean, count in rows],
        )
        for name, rows in found.items()
    ]
    return (
        "<h2>By value</h2>\n<p>The mean over all trials with a value. In a full grid that is what "
        "the value does on average; in other searches the groups differ in more than it.</p>\n"
        f'<div class="columns">{"".join(f"<div>{block}</div>" for block in blocks)}</div>'
    )


def _made_by(summary: Summary) -> str:
    settings, usual = dict(summary.settings), make_config({}).model_dump(mode="json")
    base = settings.get("base") or {}
    settings["base"] = {k: v for k, v in base.items() if k not in usual or usual[k] != v}
    text = yaml.safe_dump(
        settings, sort_keys=False, allow_unicode=True, default_flow_style=None, width=90
    )
    return (
        "<h2>What was run</h2>\n<p>All numbers are of the validation split; tuning does not read the "
        "test split. The sweep's settings, and of its runs those that are not the usual ones:</p>\n"
        f"<pre>{escape(text)}</pre>"
    )
