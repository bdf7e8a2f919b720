"""Our own comparisons: the models side by side, and the variants."""

import itertools
import json

import pytest
from rich.console import Console

from experiments.adv_hsc_moe.model_tables import ModelTable
from experiments.common.study import StudyContext, run_study
from experiments.common.tables import load_table
from experiments.datasets.complete_journey.lists import schema as journey_schema
from experiments.studies.comparisons import CONFIGS
from tests import tiny
from tfr_moe.config import load_config
from tfr_moe.config.models import PRESET_MODELS


def test_a_variant_is_the_start_with_one_thing_changed():
    folder = CONFIGS / "variants"
    table = load_table(folder, ModelTable)
    assert {p.stem for p in folder.iterdir()} == {"table", *(row.config for row in table.rows)}
    assert len({row.name for row in table.rows}) == len(table.rows)
    settings = {
        row.config: load_config(folder / f"{row.config}.yaml").model_dump() for row in table.rows
    }
    start = settings.pop("start")
    assert start["num_experts"] == 20
    others = [name for name, its in settings.items() if its["model"] != "adv_hsc_moe"]
    changed = {
        name: {key for key in its if its[key] != start.get(key)}
        for name, its in settings.items()
        if name not in (*others, "paper", "paper_shared_residual")
    }
    assert len(changed) == 14
    assert min(map(len, changed.values())) == 1
    assert changed["recommended"] == {"shared_expert", "gate_residual"}
    distinct = {frozenset({k: settings[n][k] for k in c}.items()) for n, c in changed.items()}
    assert len(distinct) == 14
    several = {name for name, keys in changed.items() if len(keys) > 2}
    assert several == {"start_attention", "few_experts"}


def test_the_models_are_compared_under_the_papers_settings():
    folder = CONFIGS / "models"
    table = load_table(folder, ModelTable)
    assert {p.stem for p in folder.iterdir()} == {"table", *(row.config for row in table.rows)}
    for row in table.rows:
        papers = {"preset": "paper"} if row.config in PRESET_MODELS else {}
        expected = load_config(None, model=row.config, **papers)
        assert load_config(folder / f"{row.config}.yaml") == expected


def test_the_towers_of_the_complete_journey_cost_the_same():
    folder = CONFIGS / "complete_journey"
    table = load_table(folder, ModelTable)
    assert {p.stem for p in folder.iterdir()} == {"table", *(row.config for row in table.rows)}
    configs = {
        row.config: load_config(folder / f"{row.config}.yaml").model_dump() for row in table.rows
    }
    # 19 numbers, the ranks of the 17 of items, two categories of 8 and nine IDs of 4 are an item's
    # vector of 88 values.
    schema = journey_schema()
    widths = [feature.embedding_dim or 8 for feature in schema.select("context", "categorical")]
    width = sum(widths) + sum(1 for feature in schema.features if feature.kind == "numeric")
    width += len(list(schema.select("example", "numeric")))
    assert width == 88

    def cost(hidden: list[int]) -> int:
        return sum(a * b for a, b in itertools.pairwise([width, *hidden, 1]))

    moe, wide = configs["moe"], configs["wide_dnn"]
    assert cost(moe["expert_hidden_dims"]) == 88 * 64 + 64 * 32 + 32
    assert cost(configs["dnn"]["expert_hidden_dims"]) == pytest.approx(
        moe["top_k"] * cost(moe["expert_hidden_dims"]), rel=0.02
    )
    assert wide["top_k"] == moe["num_experts"] == 2.5 * moe["top_k"]
    recommended = configs["recommended"]
    assert (recommended["top_k"], recommended["shared_expert"]) == (2, True)
    assert 3 * cost(recommended["expert_hidden_dims"]) == pytest.approx(
        moe["top_k"] * cost(moe["expert_hidden_dims"]), rel=0.02
    )
    for name in ("dnn", "moe", "recommended"):
        assert configs[f"{name}_head"] == {**configs[name], "category_head": True}
    trees = [name for name in configs if configs[name]["model"] == "lambdamart"]
    assert trees and all(configs.pop(name)["list_relative"] for name in trees)
    for settings in configs.values():
        for key in ("loss", "batch_size", "num_epochs", "embedding_dim", "list_relative"):
            assert settings[key] == moe[key]


def test_a_baseline_has_no_learning_rate_to_choose(tmp_path):
    data = tiny.write_data_folder(tmp_path / "set", 90, 40, 60)
    context = StudyContext(tmp_path / "variants", 1, data, Console(quiet=True))
    pairs = ["rows=[lambdamart]", "with_settings={cache: memory, ignored_features: [brand]}"]
    table, *_ = run_study("adv-hsc-moe-variants", context, pairs=pairs, runs=2)
    assert "validation lists" in table.title
    (row,) = json.loads((context.out / "results.json").read_text())["rows"]
    assert row["learning_rate"] is None
    assert len((context.out / "learning rates.jsonl").read_text().splitlines()) == 1
    assert len(row["metrics"]["ndcg"]["runs"]) == 2
