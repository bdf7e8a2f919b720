"""Tables of the papers on attention: a config for each row, run on any built data.

`<configs>/<table>/table.yaml` names the rows, their configs and the paper's numbers. A row is
trained with several seeds on each fold of the data and evaluated on a split of it; rows that
re-rank get their initial lists from `tfr_moe.reranking` first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import tensorflow as tf
from pydantic import BaseModel, ConfigDict, Field, field_validator
from rich.console import Console, RenderableType

from experiments.common.paper_tables_summary import mlp_differences, render, summarize_rows
from experiments.common.runs import Job, Result
from experiments.common.settings import StudySettings
from experiments.common.study import Study, StudyContext
from experiments.common.tables import load_table, select_rows
from experiments.common.training import train_once
from tfr_moe.config import BASELINE_NAMES, MODELS, RunConfig, applicable, load_config
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation import (
    Policy,
    evaluate_lists,
    evaluate_run,
    score_dataset,
    summarize,
)
from tfr_moe.reranking import rerank_data
from tfr_moe.schema import MASK, SCHEMA_FILE
from tfr_moe.utils import write_json


class Row(BaseModel):
    """A row of a table.

    Attributes:
        name: its name in the table.
        config: name of the config of its model, without `.yaml`.
        initial: the same for the ranker of the initial lists; None for the lists as they are.
        paper: the paper's numbers, one per metric; None where it has none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: str
    initial: str | None = None
    paper: tuple[float, ...] | None = None


class PaperTable(BaseModel):
    """A table of a paper.

    Attributes:
        title: with the unit.
        metrics: names, one for each of the paper's columns.
        policy: value of lists without a relevant item: skip, zero or one.
        split: the split to evaluate on.
        folds: number of folds that initial lists are cross-fitted in.
        relative_to_initial: whether numbers are gains over the order of the records.
        rows: in the paper's order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    metrics: tuple[str, ...]
    policy: Literal["skip", "zero", "one"]
    split: Literal["validation", "test"] = "test"
    folds: int = Field(5, ge=2)
    relative_to_initial: bool = False
    rows: tuple[Row, ...]


class TableSettings(StudySettings):
    """How a table is run.

    Attributes:
        configs: folder of the tables and their configs.
        runs: seeds of each row on each fold of the data.
        num_epochs: maximum number of epochs; None for the config's.
        batch_size: lists per step; None for the config's.
        rows: words; only rows that match one of them are run (`tables.select_rows`). None for all.
        with_settings: settings that override those of every neural row, such as a smaller model.
        with_model_settings: the same by name of the model, on top of `with_settings`.
    """

    configs: str
    runs: int = Field(3, ge=1)
    num_epochs: int | None = Field(None, ge=1)
    batch_size: int | None = Field(None, ge=1)
    rows: tuple[str, ...] | None = None
    with_settings: dict[str, Any] = Field(default_factory=dict)
    with_model_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {
            "runs": 2,
            "num_epochs": 3,
            # Only settings that all rows of a table share.
            "with_settings": {"attention_dim": 16, "expert_hidden_dims": [32, 16]},
        },
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs", "rows"})

    @field_validator("with_model_settings")
    @classmethod
    def _names_of_models(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name in value:
            if name not in MODELS:
                raise ValueError(f"model {name!r} is unknown; allowed: {', '.join(MODELS)}")
        return value


def paper_studies(tables: dict[str, str], settings: type[TableSettings]) -> dict[str, Study]:
    """Returns a study for each table: name of the study -> folder below the settings' `configs`."""
    return {
        name: Study(settings, functools.partial(run_table, name, folder), needs_data=True)
        for name, folder in tables.items()
    }


def folds_of(data: Path) -> list[Path]:
    """Returns the data sets to average over: the folder, or those in it (Fold1, Fold2, ...).

    Raises:
        UserError: if there is none.
    """
    if (data / SCHEMA_FILE).is_file():
        return [data]
    folds = sorted(path.parent for path in data.glob(f"*/{SCHEMA_FILE}"))
    if not folds:
        raise UserError(f"--data {data}: is not a data set and contains none")
    return folds


def row_config(settings: TableSettings, folder: Path, name: str, seed: int) -> RunConfig:
    """Returns the settings of a row's run."""
    config = load_config(folder / f"{name}.yaml", seed=seed)
    changes = {"num_epochs": settings.num_epochs, "batch_size": settings.batch_size}
    overrides = {
        **{k: v for k, v in changes.items() if v is not None},
        **settings.with_settings,
        **settings.with_model_settings.get(config.model, {}),
    }
    if not overrides or config.model in BASELINE_NAMES:
        return config
    used = applicable(config.model, overrides)
    return load_config(folder / f"{name}.yaml", seed=seed, **used)


def _make_initial_list(
    settings: TableSettings, folder: str, folds: int, out: str, job: Job
) -> Result:
    """Writes the data set `data` in the order of the ranker `initial`."""
    path = initial_path(Path(out), job["data"], job["initial"])
    config = row_config(settings, Path(folder), job["initial"], seed=1)
    if not (path / SCHEMA_FILE).is_file():
        rerank_data(job["data"], path, config, folds, Console(quiet=True))
    return {"data": str(path)}


def initial_path(out: Path, data: str, ranker: str) -> Path:
    """Returns the folder of a study's initial lists."""
    return out / "initial" / f"{Path(data).name}-{ranker}"


def _run_row(settings: TableSettings, folder: str, table: PaperTable, out: str, job: Job) -> Result:
    """Trains and evaluates one row: `row`, `config`, `data`, `seed`."""
    config = row_config(settings, Path(folder), job["config"], job["seed"])
    slug = "-".join([job["config"], Path(job["data"]).name, str(job["seed"])])
    run = Path(out) / "runs" / slug
    trained = train_once(job["data"], run, config)
    result = evaluate_run(DataFolder(job["data"]), run, table.split, table.metrics)
    return {
        "metrics": {name: of.mean for name, of in summarize(result, table.policy).items()},
        **{name: trained[name] for name in ("best_epoch", "epochs", "parameters", "seconds")},
    }


def run_table(
    name: str, folder: str, settings: TableSettings, context: StudyContext
) -> Sequence[RenderableType]:
    """Runs what is missing of a table: initial lists, runs and `results.json`."""
    configs = Path(settings.configs) / folder
    table = load_table(configs, PaperTable)
    selected = select_rows(table.rows, settings.rows)
    for config in {name for row in selected for name in (row.config, row.initial) if name}:
        row_config(settings, configs, config, seed=1)  # rejects invalid settings before any run
    folds = [str(path.resolve()) for path in folds_of(context.need_data())]
    rows = [row for row in selected if _has_vectors(configs, row, DataFolder(folds[0]))]
    skipped = [row.name for row in selected if row not in rows]
    out = str(context.out)
    context.run_all(
        [
            {"data": data, "initial": ranker}
            for data in folds
            for ranker in dict.fromkeys(row.initial for row in rows if row.initial)
        ],
        functools.partial(_make_initial_list, settings, str(configs), table.folds, out),
        "initial",
    )
    jobs = [
        {
            "row": row.name,
            "config": row.config,
            "seed": seed,
            "data": str(initial_path(context.out, data, row.initial)) if row.initial else data,
        }
        for data in folds
        for seed in range(1, settings.runs + 1)
        for row in rows
    ]
    work = functools.partial(_run_row, settings, str(configs), table, out)
    finished = context.run_all(jobs, work, "runs")
    base = {}
    if table.relative_to_initial:
        base = {
            data: evaluate_display_order(data, table.split, table.metrics, table.policy)
            for data in folds
        }
    results = [{**job, **result} for job, result in zip(jobs, finished, strict=True)]
    summary = summarize_rows(table.metrics, rows, results, base)
    differences = mlp_differences(rows, results, table.metrics)
    write_json(context.out / "results.json", {"rows": summary, "comparisons": differences})
    title = (
        f"{name}: {table.title}; {table.split} lists, lists without a relevant item: "
        f"{table.policy}; {len(folds) * settings.runs} runs [95 %], the paper's in brackets"
    )
    return render(title, table.metrics, summary, differences, skipped)


def evaluate_display_order(
    data: str | Path, split: str, metrics: Sequence[str], policy: Policy
) -> dict[str, float]:
    """Returns the means over lists of the metrics of the order of the records, without a model."""
    folder = DataFolder(data)
    dataset = ElwcDatasetBuilder(folder).build_evaluation_dataset(split)

    def score(features: Mapping[str, Any]) -> tf.Tensor:
        return -tf.cumsum(tf.ones_like(features[MASK], tf.float32), axis=1)

    result = evaluate_lists(score_dataset(score, dataset, folder.schema), metrics)
    return {name: summary.mean for name, summary in summarize(result, policy).items()}


def _has_vectors(folder: Path, row: Row, data: DataFolder) -> bool:
    """Whether the data has the personalised vectors that a row's model reads, if it reads any."""
    config = load_config(folder / f"{row.config}.yaml")
    names = [feature.name for feature in data.schema.features]
    return config.model != "prm_personalized" or config.rerankers.personal_vector in names
