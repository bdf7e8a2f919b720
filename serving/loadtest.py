"""`tfr-moe load-test`: one target or two under the same load, as numbers, ratios and a plot."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from tfr_moe.encoding import decode_list
from tfr_moe.errors import UserError

from .load import LoadGenerator, LoadResult, Request, Target, arrivals

_COMPARED = ("p50", "p95", "p99", "p99_9")
_LATE_MS = 10.0


class LoadOptions(NamedTuple):
    """How the load is made.

    Attributes:
        rates: requests a second, one run each.
        seconds: of each run.
        rounds: how often all is run; with two targets they take turns in each round.
        signature: `rank` or `serving_default`.
        timeout: seconds after which a request is an error.
        seed: of the moments at which requests are due.
    """

    rates: Sequence[float] = (20.0,)
    seconds: float = 10.0
    rounds: int = 3
    signature: str = "rank"
    timeout: float = 5.0
    seed: int = 0


class Run(NamedTuple):
    """One run: who was asked in which round, and what came of it."""

    target: str
    rate: float
    round: int
    result: LoadResult


def data_requests(data: str | Path, split: str, limit: int) -> list[Request]:
    """Real lists of a data set as requests, without their labels, in the order of the files.

    Raises:
        UserError: if there is no data set, no such split, or no list in it.
    """
    from tfr_moe.data import DataFolder, ElwcDatasetBuilder

    folder = DataFolder(data)
    records = ElwcDatasetBuilder(folder).serialized_lists(split).as_numpy_iterator()
    found = [Request(*decode_list(folder.schema, record)) for record in islice(records, limit)]
    if not found:
        raise UserError(f"data set {data}: split {split} has no list")
    return found


def run_load_test(
    targets: Sequence[Target],
    requests: Sequence[Request],
    options: LoadOptions,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Run]:
    """Puts each target under the same load: the same requests at the same moments.

    Of two targets, each begins every second round, so that what the machine does besides hits both.

    Raises:
        UserError: for options that make no load.
        RequestError: if a target does not answer.
    """
    if options.rounds < 1 or not options.rates:
        raise UserError("a load test needs at least one round and one rate")
    runs: list[Run] = []
    total = options.rounds * len(options.rates) * len(targets)
    with contextlib.ExitStack() as stack:
        generators = {}
        for target in targets:
            generator = LoadGenerator(target, requests, options.signature, options.timeout)
            stack.callback(generator.close)
            generators[target.name] = generator
        for number in range(options.rounds):
            for rate in options.rates:
                due = arrivals(rate, options.seconds, options.seed + number)
                names = list(generators) if number % 2 == 0 else list(reversed(generators))
                for name in names:
                    runs.append(Run(name, rate, number, generators[name].run(due)))
                    progress(len(runs), total)
    return runs


def pooled(results: Iterable[LoadResult]) -> LoadResult:
    """The runs of several rounds as one."""
    found = list(results)
    errors: dict[str, int] = {}
    for result in found:
        for code, count in result.errors.items():
            errors[code] = errors.get(code, 0) + count
    return LoadResult(
        statistics.fmean(result.rate for result in found),
        sum(result.seconds for result in found),
        np.concatenate([result.latencies for result in found]),
        errors,
        max(result.lag for result in found),
    )


def by_target(runs: Iterable[Run]) -> dict[tuple[str, float], list[LoadResult]]:
    """The results of all rounds by target and rate."""
    found: dict[tuple[str, float], list[LoadResult]] = {}
    for run in runs:
        found.setdefault((run.target, run.rate), []).append(run.result)
    return found


def report(
    runs: Sequence[Run],
    targets: Sequence[Target],
    requests: Sequence[Request],
    options: LoadOptions,
) -> dict[str, Any]:
    """Everything as plain data: a summary for each target and rate, and the ratios of two targets.

    A ratio is taken within each round; the median of them is given, and the lowest and highest.
    """
    results = by_target(runs)
    sizes = [len(request.items) for request in requests]
    summaries = [
        {"target": name, **pooled(found).summary(), "rate": rate}
        for (name, rate), found in results.items()
    ]
    ratios = []
    if len(targets) == 2:
        first, second = targets
        for rate in options.rates:
            pairs = zip(results[second.name, rate], results[first.name, rate], strict=True)
            rounds = [(above.summary(), below.summary()) for above, below in pairs]
            ratios.append({"rate": rate, "of": second.name, "to": first.name, **_ratios(rounds)})
    return {
        "options": {**options._asdict(), "rates": list(options.rates)},
        "targets": [{"name": t.name, "address": t.address, "model": t.model} for t in targets],
        "lists": {
            "count": len(sizes),
            "items_median": statistics.median(sizes),
            "items_max": max(sizes),
        },
        "results": summaries,
        "ratios": ratios,
    }


def _ratios(rounds: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    def over(*keys: str) -> dict[str, float] | None:
        found = []
        for pair in rounds:
            above, below = (_at(summary, keys) for summary in pair)
            if above is not None and below:
                found.append(above / below)
        if not found:
            return None
        return {
            "median": round(statistics.median(found), 3),
            "low": round(min(found), 3),
            "high": round(max(found), 3),
        }

    latencies = {name: over("latency_ms", name) for name in _COMPARED}
    return {"latency": latencies, "throughput": over("throughput")}


def _at(summary: Any, keys: Sequence[str]) -> float | None:
    for key in keys:
        summary = summary[key]
    return summary


def tables(found: Mapping[str, Any]) -> list[Table | str]:
    """The report for people: a table of latencies, and of two targets one of ratios."""
    table = Table(title="latency in ms from when a request was due", title_justify="left")
    for title in ("target", "rate/s", "sent", "errors", "answers/s", *_COMPARED, "max"):
        table.add_column(title, justify="left" if title == "target" else "right")
    late = False
    for entry in found["results"]:
        errors = ", ".join(f"{count} {code}" for code, count in entry["errors"].items()) or "0"
        cells = [entry["target"], f"{entry['rate']:g}", str(entry["sent"]), errors]
        cells.append(f"{entry['throughput']:.1f}")
        cells += [_number(entry["latency_ms"][name]) for name in (*_COMPARED, "max")]
        table.add_row(*cells)
        late |= entry["send_lag_ms_p99"] > _LATE_MS
    parts: list[Table | str] = [table]
    if found["ratios"]:
        first = found["ratios"][0]
        ratios = Table(title=f"{first['of']} / {first['to']}: median (low to high) over the rounds")
        for title in ("rate/s", *_COMPARED, "answers/s"):
            ratios.add_column(title, justify="right")
        for entry in found["ratios"]:
            cells = [entry["latency"][name] for name in _COMPARED] + [entry["throughput"]]
            ratios.add_row(f"{entry['rate']:g}", *map(_ratio, cells))
        parts.append(ratios)
    if late:
        parts.append(
            f"warning: requests were sent more than {_LATE_MS:g} ms late; this machine is too slow or "
            "too busy for the rate"
        )
    return parts


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ratio(entry: Mapping[str, float] | None) -> str:
    if entry is None:
        return "-"
    return f"{entry['median']:.2f} ({entry['low']:.2f} to {entry['high']:.2f})"


def plot(runs: Sequence[Run], path: str | Path) -> None:
    """Latency over the percentiles, a line for each target and rate, into an image file.

    Raises:
        UserError: where matplotlib is not installed, or for a name that is not that of an image.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("plots need matplotlib: pip install 'tfr_moe[report]'") from None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    shares = 1 - np.logspace(0, -3, 200)
    for (name, rate), found in by_target(runs).items():
        latencies = pooled(found).latencies
        if len(latencies):
            axes.plot(1 / (1 - shares), np.quantile(latencies, shares), label=f"{name}, {rate:g}/s")
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 10, 100, 1000], ["min", "p50", "p90", "p99", "p99.9"])
    axes.set_yscale("log")
    axes.set_xlabel("percentile")
    axes.set_ylabel("latency in ms")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise UserError(f"plot {path}: {error}") from error
