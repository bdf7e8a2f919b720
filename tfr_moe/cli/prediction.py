"""What `predict` runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema
from tfr_moe.serving.versions import EXTRA, SAVED_MODEL, signatures_of, versions_of
from tfr_moe.training.run_folder import check_run_files, config_of, read_metrics
from tfr_moe.utils.console import ProgressCallback

ITEM_IDS = ("item_id", "product_id", "doc_id", "document_id", "asin", "item", "product")
"""Names of features that are used as the item's ID by default."""


class _Model(NamedTuple):
    """A SavedModel or a function that loads what scores, the file of its schema, and its tasks."""

    model: Path | Callable[[], Any]
    schema: Path
    tasks: tuple[str, ...]


def _model_of_run(run: Path, vectors: bool) -> _Model:
    path, config = run / SCHEMA_FILE, load_config(config_of(run))
    if vectors and config.model != "click_model":
        raise UserError(
            f"--vectors: model {config.model} of {run} has none; train one with --model click_model"
        )
    tasks = config.tasks_over(FeatureSchema.load(path))
    read_metrics(run)
    check_run_files(run)
    names = tuple(sorted(task.name for task in tasks))
    return _Model(partial(_load_run, run.resolve(), vectors), path, names)


def _load_run(run: Path, vectors: bool) -> Any:
    """Serialized lists [B] -> outputs by name, for the workers of a pipeline."""
    from tfr_moe.baselines import keras_model, open_run
    from tfr_moe.scorers import vector_model
    from tfr_moe.serving.export.parsing import RequestParser
    from tfr_moe.serving.export.signatures import lists_function

    loaded = open_run(run)
    model, parser = keras_model(loaded), RequestParser(loaded.schema, loaded.categories)
    return lists_function(vector_model(model) if vectors else model, parser, vectors)


def _exported_model(model: Path) -> _Model:
    """The SavedModel of `MODELS/NAME`, its newest version, or of `MODELS/NAME/<version>`."""
    folder = model
    if not (model / SAVED_MODEL).is_file():
        versions = versions_of(model)
        if not versions:
            raise UserError(f"--model {model}: not an exported model; give MODELS/NAME")
        folder = model / str(versions[-1])
    outputs = signatures_of(folder)["serving_default"].outputs
    tasks = sorted(n.removeprefix("scores_") for n in outputs if n.startswith("scores_"))
    return _Model(folder.resolve(), folder / EXTRA / SCHEMA_FILE, tuple(tasks))


def _item_id_of(schema: FeatureSchema, given: str | None) -> str:
    """The column with the item's ID: the given one, or the feature with a usual name."""
    if given is not None:
        return given
    names = [feature.name for feature in schema.select("example", "categorical")]
    usual = [name for name in ITEM_IDS if name in names]
    if not usual:
        allowed = ", ".join(names) or "none"
        raise UserError(f"--item-id is required; ID features of the items: {allowed}")
    return usual[0]


def predict(
    run: Path | None,
    model: Path | None,
    input_pattern: str,
    out: Path,
    item_id: str | None = None,
    vectors: str | None = None,
    progress: ProgressCallback | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores all lists of the input and writes them to `out`, by a run or an exported model.

    `item_id` is by default a feature with a usual name; `options` are others of
    `tfr_moe.beam.predict`, whose result is returned.
    """
    from tfr_moe.beam import predict as run_predict

    if (run is None) == (model is None):
        raise UserError("give either --run or --model")
    if run is not None:
        scorer = _model_of_run(run, vectors is not None)
    else:
        assert model is not None
        scorer = _exported_model(model)
    schema = FeatureSchema.load(scorer.schema)
    return run_predict(
        scorer.model,
        input_pattern,
        schema,
        out,
        _item_id_of(schema, item_id),
        vectors=vectors,
        tasks=scorer.tasks,
        progress=progress,
        **options,
    )
