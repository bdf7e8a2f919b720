"""The tables of the papers on attention: a config for each row, run on any built data.

`configs/<table>/table.yaml` names the rows, their configs and the paper's numbers. A row is trained with
several seeds on each fold of the data and judged on a split of it; rows that re-rank get their initial
lists from `tfr_moe.reranking` first. Everything that is finished is kept, so that the same command
resumes a study that was killed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console, RenderableType

from tfr_moe.config import BASELINE_NAMES, ModelName, RunConfig, load_config
from tfr_moe.errors import UserError
from tfr_moe.folders import write_json
from tfr_moe.reproduce.runs import Job, Result
from tfr_moe.reproduce.settings import CONFIGS, StudySettings, load_table, wanted_rows
from tfr_moe.reproduce.study import Place, Study
from tfr_moe.schema import SCHEMA_FILE

TABLES = {
    "context-aware-table2": "context_aware/table2",
    "context-aware-table3": "context_aware/table3",
    "context-aware-table4": "context_aware/table4",
    "context-aware-table5": "context_aware/table5",
    "prm-table3": "prm/table3",
    "prm-table4": "prm/table4",
    "prm-table5": "prm/table5",
}


class Row(BaseModel):
    """A row of a table.

    Attributes:
        name: what the table calls it.
        config: name of the file with the settings of its model, without `.yaml`.
        initial: the same for the ranker of the initial lists; None for the data as it is.
        paper: the paper's numbers, one for each metric; None where it has none.
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
        policy: what lists with nothing relevant count.
        split: of the data that is judged.
        folds: for initial lists.
        relative_to_initial: whether numbers are gains over the order in which the lists stand.
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
    """How much of a table is run.

    Attributes:
        runs: seeds of each row on each fold of the data.
        num_epochs: at most so many epochs; None for the config's own.
        batch_size: lists per step; None for the config's own.
        rows: words; only rows that one of them names are run (`settings.wanted_rows`). None for all.
        with_settings: settings above those of every neural row, such as a smaller model.
        with_model_settings: the same by the name of the model, above `with_settings`.
        configs: the folder of the configs.
    """

    runs: int = Field(3, ge=1)
    num_epochs: int | None = Field(None, ge=1)
    batch_size: int | None = Field(None, ge=1)
    rows: tuple[str, ...] | None = None
    with_settings: dict[str, Any] = Field(default_factory=dict)
    with_model_settings: dict[ModelName, dict[str, Any]] = Field(default_factory=dict)
    configs: str = str(CONFIGS)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {
            "runs": 2,
            "num_epochs": 3,
            # Nothing that the rows of a table differ in.
            "with_settings": {"attention_dim": 16, "expert_hidden_dims": [32, 16]},
        },
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs", "rows"})


def read_table(folder: Path) -> PaperTable:
    """The table of a folder of configs.

    Raises:
        UserError: where it is not there or not one.
    """
    return load_table(folder, PaperTable, "configs")


def folds_of(data: Path) -> list[Path]:
    """The data sets to average over: the folder itself, or those in it (Fold1, Fold2, ...).

    Raises:
        UserError: where there is none.
    """
    if (data / SCHEMA_FILE).is_file():
        return [data]
    found = sorted(path.parent for path in data.glob(f"*/{SCHEMA_FILE}"))
    if not found:
        raise UserError(f"--data {data}: is no data set, and has none in it")
    return found


def row_config(settings: TableSettings, folder: Path, name: str, seed: int) -> RunConfig:
    """The settings of a row's run."""
    config = load_config(folder / f"{name}.yaml", seed=seed)
    changes = {"num_epochs": settings.num_epochs, "batch_size": settings.batch_size}
    given = {
        **{k: v for k, v in changes.items() if v is not None},
        **settings.with_settings,
        **settings.with_model_settings.get(cast(ModelName, config.model), {}),
    }
    if not given or config.model in BASELINE_NAMES:
        return config
    return load_config(folder / f"{name}.yaml", seed=seed, **given)


def _make_initial_list(
    settings: TableSettings, folder: str, folds: int, out: str, job: Job
) -> Result:
    """One set of initial lists: `initial` is the ranker's config, `data` the set, `out` where it goes."""
    from tfr_moe.reranking import rerank_data

    path = initial_path(Path(out), job["data"], job["initial"])
    config = row_config(settings, Path(folder), job["initial"], seed=1)
    if not (path / SCHEMA_FILE).is_file():
        rerank_data(job["data"], path, config, folds, Console(quiet=True))
    return {"data": str(path)}


def initial_path(out: Path, data: str, ranker: str) -> Path:
    """Where a study keeps initial lists."""
    return out / "initial" / f"{Path(data).name}-{ranker}"


def _run_row(settings: TableSettings, folder: str, table: PaperTable, out: str, job: Job) -> Result:
    """Trains and judges one row: `row`, `config`, `data`, `seed`."""
    from tfr_moe._compat import tf
    from tfr_moe.comparison import mean_metrics, train_model

    tf.keras.backend.clear_session()
    config = row_config(settings, Path(folder), job["config"], job["seed"])
    slug = "-".join([job["config"], Path(job["data"]).name, str(job["seed"])])
    run = Path(out) / "runs" / slug
    found = train_model(job["data"], run, config, Console(quiet=True))
    metrics = mean_metrics(job["data"], run, table.split, table.metrics, table.policy)
    kept = {name: found[name] for name in ("best_epoch", "epochs", "parameters", "seconds")}
    return {"metrics": metrics, **kept}


def run(name: str, settings: TableSettings, place: Place) -> Sequence[RenderableType]:
    """The whole table, or what is left of it: initial lists, runs, `results.json`, and what to show."""
    from tfr_moe.comparison import shown_order
    from tfr_moe.data import DataFolder
    from tfr_moe.reproduce.paper_tables_summary import comparisons, shown, summarize

    assert place.data is not None
    folder = Path(settings.configs) / TABLES[name]
    table = read_table(folder)
    wanted = wanted_rows(table.rows, settings.rows)
    folds = [str(path.resolve()) for path in folds_of(place.data)]
    rows = [row for row in wanted if _has_vectors(folder, row, DataFolder(folds[0]))]
    left_out = [row.name for row in wanted if row not in rows]
    initial = dict.fromkeys(row.initial for row in rows if row.initial)
    place.run_all(
        [{"data": data, "initial": ranker} for data in folds for ranker in initial],
        functools.partial(_make_initial_list, settings, str(folder), table.folds, str(place.out)),
        "initial",
    )
    jobs = [
        {
            "row": row.name,
            "config": row.config,
            "seed": seed,
            "data": str(initial_path(place.out, data, row.initial)) if row.initial else data,
        }
        for data in folds
        for seed in range(1, settings.runs + 1)
        for row in rows
    ]
    found = place.run_all(
        jobs, functools.partial(_run_row, settings, str(folder), table, str(place.out)), "runs"
    )
    base = {}
    if table.relative_to_initial:
        base = {data: shown_order(data, table.split, table.metrics, table.policy) for data in folds}
    results = [{**job, **result} for job, result in zip(jobs, found, strict=True)]
    summary = summarize(table, rows, results, base)
    pairs = comparisons(rows, results, table.metrics)
    write_json(place.out / "results.json", {"rows": summary, "comparisons": pairs})
    return shown(name, table, summary, pairs, left_out, len(folds) * settings.runs)


def _has_vectors(folder: Path, row: Row, data: Any) -> bool:
    """Whether the data has the personalised vectors that a row's model reads, if it reads any."""
    config = load_config(folder / f"{row.config}.yaml")
    names = [feature.name for feature in data.schema.features]
    return config.model != "prm_personalized" or config.personal_vector in names


STUDIES = {
    name: Study(TableSettings, functools.partial(run, name), needs_data=True) for name in TABLES
}
