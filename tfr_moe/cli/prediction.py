"""What `predict` runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tfr_moe.cli.options import usual
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema
from tfr_moe.serving.versions import EXTRA, SAVED_MODEL, signatures_of, versions_of
from tfr_moe.training.run_folder import finished_run

ITEM_IDS = ("item_id", "product_id", "sku", "doc_id", "document_id", "asin", "item", "product")
"""Names of columns that are used as the ID of the items by default."""


_Model: TypeAlias = tuple[Path | Callable[[], Any], FeatureSchema, tuple[str, ...]]
"""A SavedModel or a function that loads what scores, its schema, and its tasks."""


def _model_of_run(run: Path, vectors: bool) -> _Model:
    finished = finished_run(run)
    if vectors and (model := finished.config.model) != "click_model":
        raise UserError(
            f"--vectors: model {model} of {run} has none; train one with --model click_model"
        )
    tasks = tuple(sorted(finished.task_names))
    return partial(_load_run, run.resolve(), vectors), finished.schema, tasks


def _load_run(run: Path, vectors: bool) -> Any:
    """Serialized lists [B] -> outputs by name, for the workers of a pipeline."""
    from tfr_moe.baselines import open_run
    from tfr_moe.scorers import vector_model
    from tfr_moe.serving.export.parsing import RequestParser
    from tfr_moe.serving.export.signatures import lists_function

    loaded = open_run(run)
    model, parser = loaded.served_model(), RequestParser(loaded.schema, loaded.categories)
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
    return folder.resolve(), FeatureSchema.load(folder / EXTRA / SCHEMA_FILE), tuple(tasks)


def predict(
    run: Path | None,
    model: Path | None,
    input_pattern: str,
    out: Path,
    item_id: str | None = None,
    vectors: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores all lists of the input and writes them to `out`, by a run or an exported model.

    `item_id` is by default a column with a usual name; `options` are others of
    `tfr_moe.beam.predict`, whose result is returned.
    """
    from tfr_moe.beam import predict as run_predict
    from tfr_moe.beam.sources.files import columns, match

    if (run is None) == (model is None):
        raise UserError("give either --run or --model")
    if run is not None:
        scorer, schema, tasks = _model_of_run(run, vectors is not None)
    else:
        assert model is not None
        scorer, schema, tasks = _exported_model(model)
    if item_id is None:
        first = next(iter(match(input_pattern)))
        item_id = usual("--item-id", ITEM_IDS, sorted(columns(first)))
    return run_predict(
        scorer,
        input_pattern,
        schema,
        out,
        item_id,
        vectors=vectors,
        tasks=tasks,
        **options,
    )
