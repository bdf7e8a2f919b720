"""The simulated month: its days, its numbers by hand, and a small study with its kill and rerun."""

import json
import shutil

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.common.settings import choose
from experiments.studies.month.data import make_days
from experiments.studies.month.log import day_name
from experiments.studies.month.page import broken_rows, daily_rows, weekly_rows
from experiments.studies.month.results import broken_summary, compared, seconds_of
from experiments.studies.month.settings import Folders, MonthSettings, of_day
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.utils import read_json

TINY = MonthSettings(days=3, window=1, lists=100, broken=2)


def test_the_broken_day_is_in_no_window_and_a_rerun_builds_what_is_missing(tmp_path):
    folders = Folders(tmp_path)
    drifted = dict(make_days(TINY, folders))
    assert drifted == {1: [], 2: ["price"], 3: []}
    assert sorted(path.name for path in (tmp_path / "windows").iterdir()) == [
        day_name(day) for day in (0, 1, 3)
    ]
    days = {day: DataFolder(folders.window(day)).manifest["days"] for day in (0, 1, 3)}
    assert [list(of) for of in days.values()] == [[day_name(0)], [day_name(1)], [day_name(3)]]
    broken = DataFolder(folders.broken / "window").manifest["days"]
    assert list(broken) == [day_name(2)]
    assert folders.lists(2) == of_day(folders.corrected, 2)

    fingerprint = DataFolder(folders.window(3)).fingerprint
    shutil.rmtree(folders.window(3))
    shutil.rmtree(folders.broken / "window")
    (tmp_path / "drift" / f"{day_name(1)}.json").unlink()
    before = of_day(folders.data, 3).stat().st_mtime_ns
    assert dict(make_days(TINY, folders)) == drifted
    assert DataFolder(folders.window(3)).fingerprint == fingerprint
    assert of_day(folders.data, 3).stat().st_mtime_ns == before


def test_a_broken_day_that_is_none_of_the_days_is_rejected():
    with pytest.raises(UserError, match="broken must be at most days=5"):
        choose(MonthSettings, "default", ["days=5"])


def test_seconds_are_medians_of_the_days_with_a_run():
    settings = MonthSettings(runs=2)
    months = {("warm", 1): {"seconds": [2.0, 0.0, 4.0]}, ("warm", 2): {"seconds": [9.0, 3.0, 0.0]}}
    assert seconds_of(settings, months, "warm") == {"a_day": 3.5, "month": 9.0}


def both(values):
    return {"ndcg_10": np.array(values, float), "session_auc": np.array(values, float)}


def test_means_and_differences_pool_the_lists_of_days():
    # Two seeds that agree; differences of warm and once are 0.1, 0.3 and 0.2, 0.2.
    once, gains = [[0.5, 0.5]] * 2, ([[0.6, 0.8]] * 2, [[0.7, 0.7]] * 2)
    days = [{"once": both(once), "scratch": both(once), "warm": both(gain)} for gain in gains]
    of_month = compared(days)["ndcg_10"]
    assert of_month["once"]["mean"] == 0.5 and of_month["warm"]["mean"] == pytest.approx(0.7)
    gap = of_month["warm - once"]
    # Standard deviation sqrt(0.02 / 3), by the root of four lists; t of 3 degrees is 3.1824.
    half = 3.182446 * (0.02 / 3) ** 0.5 / 2
    assert (gap["mean"], gap["high"] - gap["mean"]) == pytest.approx((0.2, half), abs=1e-6)
    assert of_month["scratch - once"] == {"mean": 0.0, "low": 0.0, "high": 0.0}


def outcome(published, *failed):
    return {"published": published, "failed": [{"check": f, "text": "bad"} for f in failed]}


def content():
    """A month of two days by hand, the second of which is broken."""
    values = both([[0.5, 0.5]] * 2)
    numbers = compared([dict.fromkeys(("once", "scratch", "warm"), values)])
    scores = {"cents": {"ndcg_10": 0.4}, "corrected": {"ndcg_10": 0.8}}
    seeds = [
        {"with_drift": outcome(False, "drift"), "quality_alone": outcome(published),
         "live": scores, "candidate": scores}
        for published in (True, False)
    ]  # fmt: skip
    first = {"day": 1, "broken": False, "opens": True, "drifted": []}
    second = {"day": 2, "broken": True, "opens": False, "drifted": ["price"], "published": {}}
    decided = {"scratch": outcome(False, "click_ndcg_10"), "warm": outcome(True)}
    return {
        "days": [{**first, **numbers, "published": decided}, {**second, **numbers}],
        "weeks": [numbers],
        "month": numbers,
        "broken": broken_summary(seeds),
    }


def test_the_tables_by_hand():
    rows = daily_rows(content())
    assert rows[1][0] == "1 (new sub-category)"
    assert rows[1][-2:] == ["held: click_ndcg_10", "published"]
    assert rows[2][-2:] == ["stopped: price"] * 2
    assert [row[0] for row in weekly_rows(content(), "ndcg_10")] == ["days", "1 to 2", "1 to 2"]
    assert broken_rows(content())[1:] == [
        ["drift", "stopped", "price"],
        ["publish --reference", "published 0 of 2", "drift: bad"],
        ["publish", "published 1 of 2", ""],
        ["NDCG@10, prices in cents", "live 0.4000", "candidate 0.4000"],
        ["NDCG@10, right prices", "live 0.8000", "candidate 0.8000"],
    ]


@pytest.mark.slow
def test_a_small_study_and_its_rerun_after_a_kill(tmp_path):
    out = tmp_path / "month"
    words = ["--size", "small", "--seeds", "1", "--processes", "1"]
    command = ["month", "--out", str(out), *words, "--set", "days=2", "--set", "broken=1"]
    command += ["--set", "with_settings={expert_hidden_dims: [8], num_experts: 2, top_k: 1}"]
    assert main(command) == 0
    results = read_json(out / "results.json")
    assert [day["drifted"] for day in results["days"]] == [["price"], []]
    assert results["broken"]["with_drift"]["published"] == 0
    assert "drift" in results["broken"]["with_drift"]["failed"]
    assert set(results["days"][1]["published"]) == {"scratch", "warm"}
    assert (out / "month.svg").is_file() and (out / "month.html").is_file()

    # What a process that is killed in the middle of the month leaves.
    lines = (out / "months.jsonl").read_text().splitlines(keepends=True)
    (out / "months.jsonl").write_text("".join(lines[:1]) + lines[1][:20])
    last = sorted((out / "runs" / "scratch-1").iterdir())[-1]
    shutil.rmtree(last)
    (out / "results.json").unlink()
    assert main(command) == 0
    again = read_json(out / "results.json")
    for part in ("month", "broken", "weeks"):
        assert json.dumps(again[part]) == json.dumps(results[part])
