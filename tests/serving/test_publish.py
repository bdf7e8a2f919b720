"""The publish gate: its rule by hand, a bad run is held back, and a kill leaves nothing behind."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from tests.tiny import SCHEMA, SMALL, lists, small_config, write_data_folder
from tfr_moe.baselines import train_baseline
from tfr_moe.cli import main
from tfr_moe.config import make_config
from tfr_moe.errors import UserError
from tfr_moe.evaluation import PerListResult
from tfr_moe.schema import FeatureSchema
from tfr_moe.serving.export import export_run
from tfr_moe.serving.publish import publish, quality_checks, roll_back
from tfr_moe.serving.versions import versions_of
from tfr_moe.training import train

QUIET = Console(quiet=True)
STUMP = make_config(
    {
        "model": "lambdamart",
        "library_parameters": {"num_iterations": 1, "num_leaves": 2, "min_data_in_leaf": 5},
    }
)


def result(values, categories=None):
    count = len(values)
    return PerListResult(
        list_ids=np.array([f"l{i}" for i in range(count)], object),
        values={"mrr": np.array(values, float)},
        nothing_relevant={"mrr": np.zeros(count, bool)},
        num_items=np.full(count, 3),
        num_relevant=np.ones(count, int),
        categories=None if categories is None else np.array(categories, object),
    )


def checked(candidate, live, categories=None, margin=0.01, of_category=0.05):
    both = result(candidate, categories), result(live, categories)
    return list(quality_checks(*both, "mrr", margin, of_category))


def test_the_lower_bound_by_hand():
    # Differences 0.1, 0, 0.1, 0: mean 0.05, standard error 0.05 / sqrt(3), t(0.95, 3) = 2.3534.
    half_width = 2.353363 * 0.05 / 3**0.5
    (check,) = checked([0.6, 0.5, 0.6, 0.5], [0.5] * 4, margin=0.0)
    assert check.numbers["lower_bound"] == pytest.approx(0.05 - half_width, abs=1e-6)
    assert not check.passed
    # The half-width shrinks with the root of the number of lists: 4 (2.3534 / sqrt(3))^2 = 7.4.
    assert "undecided, needs about 8 lists" in check.text
    (check,) = checked([0.6, 0.5, 0.6, 0.5], [0.5] * 4, margin=0.02)
    assert check.passed


def test_equal_versions_pass_and_single_lists_decide_nothing():
    (check,) = checked([0.5, 1.0, 0.2], [0.5, 1.0, 0.2], margin=0.0)
    assert check.passed and check.numbers["lower_bound"] == 0.0
    assert not checked([1.0], [0.5])[0].passed


def test_a_category_that_becomes_worse_holds_a_better_model_back():
    categories = ["a"] * 400 + ["b"] * 100 + ["c"] * 3
    candidate = np.r_[np.full(400, 0.6), np.full(100, 0.4), 0.0, 1.0, 0.4]
    passed = {c.name: c.passed for c in checked(candidate, [0.5] * 503, categories)}
    # Three lists cannot show that c is worse.
    assert passed == {"mrr": True, "mrr in a": True, "mrr in b": False, "mrr in c": True}
    worse = np.r_[np.full(500, 0.6), 0.0, 0.01, 0.02]
    assert not checked(worse, [0.5] * 503, categories)[-1].passed


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data_folder(tmp_path_factory.mktemp("data") / "set", 150, 30, 120)


@pytest.fixture(scope="module")
def good(data, tmp_path_factory):
    """A trained run."""
    run = tmp_path_factory.mktemp("runs") / "good"
    train(data, run, small_config({**SMALL, "model": "dnn", "num_epochs": 4}), QUIET)
    return run


@pytest.fixture(scope="module")
def bad(data, tmp_path_factory):
    """A run of a single tree with two leaves."""
    run = tmp_path_factory.mktemp("runs") / "bad"
    train_baseline(data, run, STUMP, QUIET)
    return run


@pytest.fixture(scope="module")
def exported(data, good, tmp_path_factory):
    """The export of the good run, as version 1."""
    return export_run(good, tmp_path_factory.mktemp("models") / "shop", data)


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["publish", *map(str, arguments)])
    return ended.value.code


def decisions(to):
    return [json.loads(path.read_text()) for path in sorted((to / "decisions").iterdir())]


def test_a_bad_run_is_not_published_and_an_equal_one_is(
    data, good, bad, exported, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(publish_package(), "_ROUNDS", 3)  # of measured latencies
    to = tmp_path / "models" / "shop"
    with monkeypatch.context() as patch:  # the export is made once
        patch.setattr(publish_package(), "export_run", copy_of(exported))
        assert command("--run", good, "--to", to, "--data", data) == 0
    assert versions_of(to) == [1]
    inside = json.loads((to / "1" / "assets.extra" / "decision.json").read_text())
    assert inside == decisions(to)[0]
    assert (inside["published"], inside["live"], len(inside["checks"])) == (True, None, 1)

    before = {path: path.stat().st_mtime_ns for path in (to / "1").rglob("*")}
    capsys.readouterr()
    assert command("--run", bad, "--to", to, "--data", data, "--max-ratio", 9) == 3
    printed = capsys.readouterr().err
    assert "FAILED  purchase_ndcg_10: -0." in printed
    assert f"not published: {to}/2" in printed
    rejected = decisions(to)[-1]
    assert (rejected["published"], rejected["live"], rejected["version"]) == (False, 1, 2)
    failed = {c["name"] for c in rejected["checks"] if not c["passed"]}
    assert "purchase_ndcg_10" in failed and failed.isdisjoint({"size", "golden requests"})
    assert before == {path: path.stat().st_mtime_ns for path in (to / "1").rglob("*")}

    # The same model is not worse.
    shop = to.resolve()
    monkeypatch.setattr(publish_package(), "export_run", copy_of(exported))
    decision = publish(good, shop, data, max_ratio=9.0, margin=0.0, console=QUIET)
    assert decision.published and versions_of(to) == [1, 2]
    quality = {c.name: c.numbers for c in decision.checks}["purchase_ndcg_10"]
    assert quality["difference"] == 0.0 and quality["lists"] == 120
    assert {p.name for p in to.parent.iterdir() if versions_of(p)} == {"shop"}
    assert not list(to.parent.glob(".*"))

    assert command("--to", to, "--rollback") == 0
    assert versions_of(to) == [1] and versions_of(to / "retired") == [2]

    # Drift, size and latency each hold it back alone.
    cents = write_data_folder(tmp_path / "cents", 150, 30, 120, lists=in_cents)
    decision = publish(
        good, shop, cents, reference=data, max_ratio=1e-3, margin=1.0,
        category_margin=1.0, console=QUIET,
    )  # fmt: skip
    assert {c.name for c in decision.checks if not c.passed} == {"drift", "size", "latency"}
    assert decision.version == 3  # no number is used twice


def test_a_live_version_that_cannot_read_the_newest_lists_holds_the_candidate_back(
    exported, tmp_path
):
    features = [f.model_dump(exclude_unset=True) for f in SCHEMA.features if f.name != "sales"]
    schema = FeatureSchema(**{**SCHEMA.model_dump(exclude={"features"}), "features": features})
    data = write_data_folder(tmp_path / "data", 40, 10, 10, schema)
    run, to = tmp_path / "run", tmp_path / "shop"
    train_baseline(data, run, STUMP, QUIET)
    shutil.copytree(exported, to / "1")
    decision = publish(run, to, data, console=QUIET)
    assert versions_of(to) == [1] and decisions(to)[0]["published"] is False
    failed = {check.name: check.text for check in decision.checks if not check.passed}
    assert set(failed) == {"golden requests", "comparison"}
    assert failed["comparison"].startswith(f"a version cannot read the lists of {data}: ")


def publish_package():
    return sys.modules["tfr_moe.serving.publish"]


def copy_of(exported):
    def export(run, out, data, version, console):
        return shutil.copytree(exported, out / str(version))

    return export


def in_cents(count, seed):
    for list_id, context, items in lists(count, seed):
        for item in items:
            item["price"] *= 100
        yield list_id, context, items


def test_mistakes_are_one_line(data, good, tmp_path, capsys):
    to = tmp_path / "shop"
    assert command("--to", to, "--run", good) == 2
    assert capsys.readouterr().err == "error: --data: is required without --rollback\n"
    assert command("--to", to, "--rollback", "--data", data) == 2
    assert capsys.readouterr().err == "error: --data cannot be combined with --rollback\n"
    assert command("--to", to, "--run", good, "--data", data, "--max-ratio", "nan") == 2
    assert "Invalid value for '--max-ratio'" in capsys.readouterr().err
    with pytest.raises(UserError, match="there is no version to roll back to, it has no version"):
        roll_back(to)
    assert not to.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: is a file, must be a folder"):
        publish(good, tmp_path / "file", data, console=QUIET)
    other = shutil.copytree(data, tmp_path / "other")
    schema = FeatureSchema.load(other / "schema.json").model_copy(update={"list_id": "search"})
    schema.save(other / "schema.json")
    with pytest.raises(UserError, match=r"another schema than that of .*other: list_id"):
        export_run(good, to, other, console=QUIET)


# Forked before TensorFlow has done anything, a process is as good as a fresh one.
KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from tfr_moe.serving.publish import publish
from tfr_moe.serving.versions import versions_of
module = sys.modules["tfr_moe.serving.publish"]
exported, run, to, data = map(Path, sys.argv[1:])
rename = os.rename

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def publish_and_die(point):
    def export(run, out, data, version, console):
        folder = shutil.copytree(exported, out / str(version))
        return die() if point == "exported" else folder

    module.export_run = export
    if point == "before":
        os.rename = die
    elif point == "after":
        os.rename = lambda *names: (rename(*names), die())
    publish(run, to, data)

outcomes = {}
for point in ("exported", "before", "after"):
    process = os.fork()
    if not process:
        try:
            publish_and_die(point)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    outcomes[point] = [status, versions_of(to) if to.is_dir() else []]
print(json.dumps(outcomes))
"""


@pytest.mark.slow
def test_a_killed_publication_leaves_the_folder_as_it_was_or_complete(
    data, good, exported, tmp_path, monkeypatch
):
    to = tmp_path / "models" / "shop"
    code = [sys.executable, "-c", KILLED, *map(str, (exported, good, to, data))]
    done = subprocess.run(code, stdout=subprocess.PIPE, text=True, check=True)
    actual = json.loads(done.stdout)
    assert actual == {"exported": [-9, []], "before": [-9, []], "after": [-9, [1]]}
    assert json.loads((to / "1" / "assets.extra" / "decision.json").read_text())["published"]
    monkeypatch.setattr(publish_package(), "export_run", copy_of(exported))
    decision = publish(good, to, data, max_ratio=9.0, console=QUIET)
    assert decision.published and decision.live == 1
    assert not list(to.parent.glob(".*"))
    assert [actual["version"] for actual in decisions(to)] == [1, 2]  # that of the killed one, too
