"""One day of a ranker in production: data set, drift, training from the live run, publication.

    python run_day.py 2024-06-02 --logs 'logs/2024-05-*' --schema schema.yaml --work work

Ends with 0 if the run of the day is live, and with 3 if the data have drifted or the run is worse
than the live one: then the live version stays. Any step may be killed; the same command continues
with it. After a bad day, `tfr-moe publish --rollback` is all there is to do: the next day starts
from the run of the version that is live then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tfr_moe.serving.versions import versions_of


def step(*arguments: object) -> None:
    """Runs a command of tfr-moe; ends as it does if that is not with 0."""
    code = subprocess.run([sys.executable, "-m", "tfr_moe.cli", *map(str, arguments)]).returncode
    if code:
        sys.exit(code)


def live_decision(model: Path) -> dict[str, Any] | None:
    """The decision by which the live version was published."""
    versions = versions_of(model) if model.is_dir() else []
    if not versions:
        return None
    path = model / str(versions[-1]) / "assets.extra" / "decision.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("day", help="name of the data set and run")
    parser.add_argument("--logs", required=True, help="files or pattern, such as the last 30 days")
    parser.add_argument("--schema", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="folder of data, runs and models")
    parser.add_argument("--name", default="shop", help="name of the served model")
    parser.add_argument("--config", type=Path, help="settings of the first run")
    parser.add_argument("--limits", type=Path, help="limits of drift")
    parser.add_argument("--publish", nargs="*", default=[], help="options of publish, margin=0.005")
    options = parser.parse_args()
    data, run = (options.work / kind / options.day for kind in ("data", "runs"))
    model = options.work / "models" / options.name
    limits = ["--limits", options.limits] if options.limits else []
    live = live_decision(model)
    if live is not None and Path(live["run"]) == run.resolve():
        return  # this day was published before

    if not data.is_dir():
        source = ["search-logs", "--input", options.logs, "--schema", options.schema]
        step("build", *source, "--out", data)
    start = ["--config", options.config] if options.config else []
    if live is not None:
        reference = Path(live["data"]["path"])
        step("drift", "--reference", reference, "--current", data, *limits)
        start = ["--from", live["run"], *start]
    if not (run / "metrics.json").is_file():
        step("train", "--data", data, "--out", run, *start)
    rules = [part for rule in options.publish for part in f"--{rule}".split("=", 1)]
    step("publish", "--run", run, "--to", model, "--data", data, *rules)


if __name__ == "__main__":
    main()
