"""The tables and figures of Adv & HSC-MoE: their configs, and one small study of all."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from experiments.adv_hsc_moe import category_table, gain_by_size
from experiments.adv_hsc_moe.category_data import top_sizes, training_sizes, write_category_data
from experiments.adv_hsc_moe.gate_vectors import Gates, colour_groups, embed, silhouette
from experiments.adv_hsc_moe.model_tables import CONFIGS, ModelTable, cells_of, pairs_of
from experiments.adv_hsc_moe.sweeps import SWEEPS, SweepSettings, sweep_pairs
from experiments.common import tuned_runs
from experiments.common.study import STUDIES, StudyContext, find, run_study
from experiments.common.tables import load_table
from experiments.common.tuned_runs import best_rates
from tests import tiny
from tests.evaluation.lists import result
from tfr_moe.config import load_config
from tfr_moe.config.models import preset_settings
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import evaluate_run, summarize
from tfr_moe.metrics.per_list import resolve
from tfr_moe.tuning import load_sweep_config

QUIET = Console(quiet=True)
TINY = (
    "with_settings={expert_hidden_dims: [4], embedding_dim: 4, num_epochs: 1, num_experts: 4, "
    "top_k: 2, batch_size: 64, metrics: [session_auc]}"
)


def printed(parts):
    out = io.StringIO()
    for part in parts:
        Console(file=out, width=300).print(part)
    return out.getvalue()


@pytest.mark.parametrize("folder", ["table3", "table4", "table5"])
def test_every_row_has_a_config_with_the_papers_settings(folder):
    table = load_table(CONFIGS / folder, ModelTable)
    names = [row.name for row in table.rows]
    columns = 3 if folder == "table5" else len(table.metrics)
    assert len(set(names)) == len(names)
    for name in table.metrics:
        resolve(name)
    for row in table.rows:
        config = load_config(CONFIGS / folder / f"{row.config}.yaml")
        assert config.model == row.config
        expected = {
            **preset_settings("paper", config.model),
            "embedding_dim": 64 if folder == "table4" else 16,
        }
        assert {name: config.flat()[name] for name in expected} == expected
        assert row.paper is None or len(row.paper) == columns
        assert row.paper_p is None or len(row.paper_p) == len(table.metrics)
        assert row.against is None or row.against in names
    assert {p.stem for p in (CONFIGS / folder).iterdir()} == {
        "table",
        *(r.config for r in table.rows),
    }


def test_sweeps_have_the_papers_settings_and_take_others():
    lambdas = {"table7": 0.01, "table8": 0.001, "fig6": 0.001}
    for name in SWEEPS.values():
        config = load_sweep_config(CONFIGS / f"{name}.yaml")
        assert (
            config.base.hsc.hsc_weight
            == config.base.adversarial.adversarial_weight
            == lambdas[name]
        )
        base, lambdas_of = config.base.flat(), ("hsc_weight", "adversarial_weight")
        expected = preset_settings("paper", config.base.model)
        assert {n: base[n] for n in expected if n not in lambdas_of} == {
            n: value for n, value in expected.items() if n not in lambdas_of
        }
    settings = SweepSettings(
        runs=2,
        with_settings={"expert_hidden_dims": [4]},
    )
    space = {"gate_features": [["sub"], ["all"]]}
    config = load_sweep_config(CONFIGS / "table7.yaml", sweep_pairs(settings, space))
    assert config.seeds == (1, 2)
    assert config.base.experts.expert_hidden_dims == (4,)
    assert config.space == space


def test_every_table_and_figure_is_a_study():
    ours = [name for name in STUDIES if name.startswith("adv-hsc-moe-")]
    assert len(ours) == 11
    assert all(find(name).needs_data for name in ours)


def test_rows_are_tested_against_the_references_before_them():
    rows = load_table(CONFIGS / "table3", ModelTable).rows
    assert pairs_of(rows[:4]) == [
        ("wide DNN", "DNN"),
        ("MoE", "DNN"),
        ("MoE", "wide DNN"),
        ("Adv-MoE", "DNN"),
        ("Adv-MoE", "wide DNN"),
        ("Adv-MoE", "MoE"),
    ]


def test_a_learning_rate_that_diverged_never_wins():
    values = {0.1: 0.6, 1.0: float("nan"), 0.01: 0.7}
    actual = [({"cell": "DNN", "rate": rate}, {"value": value}) for rate, value in values.items()]
    assert best_rates(actual) == {"DNN": 0.01}
    assert best_rates(actual[1:2]) == {"DNN": 1.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_data_folder(tmp_path_factory.mktemp("data") / "set", 90, 40, 60)


@pytest.fixture(scope="module")
def study(data, tmp_path_factory):
    """Table III with two rows, one learning rate and one seed."""
    context = StudyContext(tmp_path_factory.mktemp("study") / "table3", 1, data, QUIET)
    pairs = [TINY, "learning_rates=[0.01]"]
    pairs.append(f"configs={_two_rows(tmp_path_factory.mktemp('configs'))}")
    return context, pairs, printed(run_study("adv-hsc-moe-table3", context, pairs=pairs, runs=1))


def _two_rows(folder):
    """The configs without wide_dnn, whose training would show nothing more."""
    import shutil

    import yaml

    shutil.copytree(CONFIGS, folder / "configs")
    path = folder / "configs" / "table3" / "table.yaml"
    table = yaml.safe_load(path.read_text())
    table["rows"] = [row for row in table["rows"] if row["config"] in ("dnn", "adv_hsc_moe")]
    table["rows"][-1]["against"] = "DNN"
    path.write_text(yaml.safe_dump(table))
    return folder / "configs"


def test_table_3_stands_beside_the_papers_with_tests(study):
    context, _, text = study
    assert "(0.8131)" in text
    assert "(0.8212)" in text
    assert "of 60 lists evaluated" in text
    actual = json.loads((context.out / "results.json").read_text())
    assert [row["row"] for row in actual["rows"]] == ["DNN", "Adv & HSC-MoE"]
    (claim,) = [c for c in actual["claims"] if c["metric"] == "session_auc"]
    ours = [row["metrics"]["session_auc"]["ours"] for row in actual["rows"]]
    comparison = claim["comparison"]
    assert comparison["difference"] == pytest.approx(ours[1] - ours[0])
    assert (comparison["runs_a"], comparison["runs_b"]) == (1, 1)


def test_a_finished_study_trains_nothing_again(study, monkeypatch):
    context, pairs, text = study
    monkeypatch.setattr(tuned_runs, "_train", lambda *_: 1 / 0)
    assert printed(run_study("adv-hsc-moe-table3", context, pairs=pairs, runs=1)) == text


def test_figures_4_and_5_take_the_runs_of_the_table(study, data, tmp_path, monkeypatch):
    context, pairs, _ = study
    monkeypatch.setattr(tuned_runs, "_train", lambda *_: 1 / 0)
    taken = [*pairs, f"runs_of={context.out}"]
    four = StudyContext(tmp_path / "fig4", 1, data, QUIET)
    text = printed(run_study("adv-hsc-moe-fig4", four, pairs=[*taken, "buckets=2"], runs=1))
    actual = json.loads((four.out / "results.json").read_text())["buckets"]
    assert sum(bucket["training_lists"] for bucket in actual) == 90
    assert "Adv & HSC-MoE" in text
    assert (four.out / "figure_4_gain_by_size.svg").is_file()
    five = StudyContext(tmp_path / "fig5", 1, data, QUIET)
    groups = "groups={Fashion: [a]}"
    text = printed(run_study("adv-hsc-moe-fig5", five, pairs=[*taken, groups], runs=1))
    (model,) = json.loads((five.out / "results.json").read_text())["models"]
    assert len(model["runs"]) == 1
    assert {(p["parent"], p["group"]) for p in model["points"]} == {
        ("a", "Fashion"),
        ("b", "(others)"),
    }
    assert sum(p["lists"] for p in model["points"]) == 60
    assert (five.out / "figure_5_gate_vectors.svg").is_file()
    with pytest.raises(UserError, match="has no run of"):
        run_study(
            "adv-hsc-moe-fig4",
            StudyContext(tmp_path / "none", 1, data, QUIET),
            pairs=[TINY, f"runs_of={tmp_path}"],
        )


def test_runs_of_a_study_are_judged_on_another_split_without_training(
    study, data, tmp_path, monkeypatch
):
    context, pairs, _ = study
    monkeypatch.setattr(tuned_runs, "_train", lambda *_: 1 / 0)
    taken = [*pairs, f"runs_of={context.out}", "split=validation"]
    again = StudyContext(tmp_path / "again", 1, data, QUIET)
    text = printed(run_study("adv-hsc-moe-table3", again, pairs=taken, runs=1))
    assert "of 40 lists evaluated" in text
    actual = json.loads((again.out / "results.json").read_text())["rows"]
    for row, slug in zip(actual, ("dnn", "adv---hsc-moe"), strict=True):
        (run,) = (context.out / "runs" / slug).iterdir()
        evaluated = evaluate_run(DataFolder(data), run, "validation", ["ndcg"])
        assert row["metrics"]["ndcg"]["ours"] == pytest.approx(summarize(evaluated)["ndcg"].mean)
    monkeypatch.setattr(tuned_runs, "_evaluate", lambda *_: 1 / 0)
    assert printed(run_study("adv-hsc-moe-table3", again, pairs=taken, runs=1)) == text


def test_runs_are_judged_on_the_lists_of_other_data_without_training(
    study, data, tmp_path, monkeypatch
):
    context, pairs, _ = study
    monkeypatch.setattr(tuned_runs, "_train", lambda *_: 1 / 0)
    later = tiny.write_data_folder(tmp_path / "later", 30, 20, 50)
    taken = [*pairs, f"runs_of={context.out}", f"test_data={later}"]
    manifest = json.loads((later / "manifest.json").read_text())
    manifest["notes"] = {"negatives": "2 of the shelf"}
    (later / "manifest.json").write_text(json.dumps(manifest))
    again = StudyContext(tmp_path / "again", 1, data, QUIET)
    text = printed(run_study("adv-hsc-moe-table3", again, pairs=taken, runs=1))
    assert "of 50 lists evaluated" in text
    assert "negatives: 2 of the shelf" in text
    actual = json.loads((again.out / "results.json").read_text())["rows"][0]
    (run,) = (context.out / "runs" / "dnn").iterdir()
    evaluated = evaluate_run(DataFolder(later), run, "test", ["ndcg"])
    assert actual["metrics"]["ndcg"]["ours"] == pytest.approx(summarize(evaluated)["ndcg"].mean)

    four = StudyContext(tmp_path / "fig4", 1, data, QUIET)
    run_study("adv-hsc-moe-fig4", four, pairs=[*taken, "level=sub", "buckets=1"], runs=1)
    (bucket,) = json.loads((four.out / "results.json").read_text())["buckets"]
    assert (bucket["training_lists"], bucket["evaluated"]) == (90, 50)


def test_other_data_must_have_the_schema_of_the_data_learnt_from(study, data, tmp_path):
    _, pairs, _ = study
    other = tiny.write_data_folder(tmp_path / "other", 4, 4, 4)
    schema = json.loads((other / "schema.json").read_text())
    schema["features"] = schema["features"][:-1]
    (other / "schema.json").write_text(json.dumps(schema))
    with pytest.raises(UserError, match=f"test_data {other}: has another schema than {data}"):
        run_study(
            "adv-hsc-moe-table3",
            StudyContext(tmp_path / "out", 1, data, QUIET),
            pairs=[*pairs, f"test_data={other}"],
            runs=1,
        )


def test_an_unknown_split_is_rejected_before_any_training(study, data, tmp_path, monkeypatch):
    _, pairs, _ = study
    monkeypatch.setattr(tuned_runs, "_train", lambda *_: 1 / 0)
    context = StudyContext(tmp_path / "out", 1, data, QUIET)
    with pytest.raises(UserError, match="split 'tset' is unknown; allowed: train, validation"):
        run_study("adv-hsc-moe-table3", context, pairs=[*pairs, "split=tset"], runs=1)


def test_figure_4_is_of_sub_categories_between_edges_too(study, data, tmp_path):
    context, pairs, _ = study
    four = StudyContext(tmp_path / "fig4", 1, data, QUIET)
    sizes = training_sizes(data, "sub")
    middle = sorted(sizes.values())[-1]
    taken = [*pairs, f"runs_of={context.out}", "level=sub", f"edges=[{middle}]"]
    text = printed(run_study("adv-hsc-moe-fig4", four, pairs=taken, runs=1))
    small, large = json.loads((four.out / "results.json").read_text())["buckets"]
    assert "size of sub-categories" in " ".join(text.split())
    assert all(sizes[name] < middle for name in small["categories"])
    assert all(sizes[name] == middle for name in large["categories"])
    assert small["training_lists"] + large["training_lists"] == 90


def test_gains_by_hand():
    """Category p has one training list and gains 0.2, q has nine and gains 0.1."""
    base = dataclasses.replace(
        result([0.5, 0.5, 0.6, 0.6]), categories=np.array(["p", "p", "q", "q"], object)
    )
    better = dataclasses.replace(base, values={"mrr": np.array([0.7, 0.7, 0.7, 0.7])})
    actual = gain_by_size.gains({"DNN": [base], "MoE": [better]}, {"p": 1, "q": 9}, 2, metric="mrr")
    assert [bucket["name"] for bucket in actual] == ["1: 1 to 1 lists", "2: 9 to 9 lists"]
    assert [bucket["smallest"] for bucket in actual] == [1, 9]
    assert [b["gains"]["MoE"]["difference"] for b in actual] == pytest.approx([0.2, 0.1])
    edged = gain_by_size.gains(
        {"DNN": [base], "MoE": [better]}, {"p": 1, "q": 9}, [9, 50], metric="mrr"
    )
    assert edged == actual
    with pytest.raises(UserError, match="gains are over DNN"):
        gain_by_size.gains({"MoE": [better]}, {}, 1)


def test_buckets_hold_categories_of_similar_size():
    categories = np.array(["shoes", "books", "shoes", "tools"])
    actual = gain_by_size.bucketed(categories, {"shoes": 900, "books": 30}, 2)
    assert actual.tolist() == ["2: 900 to 900", "1: 0 to 30", "2: 900 to 900", "1: 0 to 30"]


def test_gains_of_many_models_fit_into_a_terminal():
    base = dataclasses.replace(
        result([0.5, 0.5, 0.6, 0.6]), categories=np.array(["p", "p", "q", "q"], object)
    )
    better = dataclasses.replace(base, values={"session_auc": np.full(4, 0.7)})
    base = dataclasses.replace(base, values={"session_auc": base.values["mrr"]})
    models = {"DNN": [base], **{f"model {i}": [better] for i in range(9)}}
    actual = gain_by_size.gains(models, {"p": 1, "q": 9}, 2)
    out = io.StringIO()
    Console(file=out, width=80).print(gain_by_size.gain_table(actual, gain_by_size.GainSettings()))
    for text in ("training lists", "1: 1 to 1 lists", "model 8", "+0.2000 [", "+0.1000 ["):
        assert text in out.getvalue()
    assert out.getvalue().count("+0.2000 [") == 9


def test_silhouette_by_hand():
    """Siblings 1 apart, strangers 10 or 11: (10.5 - 1) / 10.5 outside, (9.5 - 1) / 9.5 inside."""
    vectors = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    gates = Gates(["a", "a", "b", "b", "c"], list("vwxyz"), np.ones(5, int), vectors)
    assert silhouette(gates) == pytest.approx((9.5 / 10.5 + 8.5 / 9.5) / 2)
    alone = Gates(["a", "b"], ["x", "y"], np.ones(2, int), vectors[:2])
    assert np.isnan(silhouette(alone))
    with pytest.raises(UserError, match="at least 4 sub-categories, the data has 2"):
        embed(alone, 30.0, 1)


def test_groups_take_their_colours_and_the_rest_is_named():
    gates = Gates(["a", "b", "c"], list("xyz"), np.array([5, 9, 1]), np.eye(3))
    assert colour_groups(gates, None)[1] == ["b", "a", "c"]
    actual, order = colour_groups(gates, {"Fashion": ["a", "b"]})
    assert (actual, order) == (["Fashion", "Fashion", "(others)"], ["Fashion", "(others)"])
    with pytest.raises(UserError, match="groups: 'd' is no top category; allowed: a, b, c"):
        colour_groups(gates, {"Fashion": ["d"]})


def test_data_of_a_category_has_its_lists_alone(data, tmp_path):
    sizes = top_sizes(data)
    write_category_data(data, tmp_path / "a", ["a"])
    folder = DataFolder(tmp_path / "a")
    assert top_sizes(tmp_path / "a") == {"a": sizes["a"]}
    assert folder.num_lists("train") == sizes["a"]
    assert folder.statistics == DataFolder(data).statistics
    write_category_data(tmp_path / "nowhere", tmp_path / "a", ["a"])  # is there: nothing is read
    with pytest.raises(UserError, match="has no train list of 'zoo'"):
        write_category_data(data, tmp_path / "zoo", ["zoo"])
    assert not (tmp_path / "zoo").exists()


def test_table_5_trains_each_category_alone_and_all_together():
    rows = load_table(CONFIGS / "table5", ModelTable).rows
    paths = {"m": "/m", "b": "/b", "joint": "/joint"}
    cells = category_table.cells_of(rows, ["m", "b"], paths)
    assert [(cell.name, cell.data, list(cell.tests)) for cell in cells] == [
        ("own DNN: m", "/m", ["m"]),
        ("own DNN: b", "/b", ["b"]),
        ("joint DNN", "/joint", ["m", "b"]),
        ("joint ours", "/joint", ["m", "b"]),
    ]


def test_bad_input_is_refused(data, tmp_path):
    flat = tiny.SCHEMA.model_copy(update={"hierarchy": None})
    (tmp_path / "flat").mkdir()
    for path in data.iterdir():
        if path.is_file():
            (tmp_path / "flat" / path.name).write_bytes(path.read_bytes())
    flat.save(tmp_path / "flat" / "schema.json")
    for name in (n for n in STUDIES if n.startswith("adv-hsc-moe-")):
        with pytest.raises(UserError, match="names no hierarchy"):
            run_study(name, StudyContext(tmp_path / name, 1, tmp_path / "flat", QUIET))
    context = StudyContext(tmp_path / "five", 1, data, QUIET)
    with pytest.raises(UserError, match="'zoo' is no top category"):
        run_study("adv-hsc-moe-table5", context, pairs=["categories=[zoo, a]"])
    with pytest.raises(UserError, match="--set brand=NAME"):
        run_study("adv-hsc-moe-fig8", StudyContext(tmp_path / "eight", 1, data, QUIET))


def test_a_cell_for_each_row_learns_from_one_set_and_is_judged_on_the_other(data, tmp_path):
    (cell,) = cells_of(
        load_table(CONFIGS / "table3", ModelTable).rows[:1], "table3", data, tmp_path
    )
    assert cell == ("DNN", "table3/dnn.yaml", str(data.resolve()), {"all": str(tmp_path.resolve())})
