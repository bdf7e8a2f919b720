"""What `predict` and `export --vectors` run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe.config import load_config
from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema
from tfr_moe.serving.versions import (
    EXTRA,
    SAVED_MODEL,
    load_meta_graph,
    signatures_of,
    versions_of,
)
from tfr_moe.training.run_folder import check_run_files, config_of, read_metrics
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.io import atomic_directory

_VECTORS = "vectors"
ITEM_IDS = ("item_id", "product_id", "doc_id", "document_id", "asin", "item", "product")
"""Names of features that are used as the item's ID by default."""


class _Model(NamedTuple):
    """A SavedModel or a function that loads what scores, the file of its schema, and its tasks."""

    model: Path | Callable[[], Any]
    schema: Path
    tasks: tuple[str, ...]


def _model_of_run(run: Path) -> _Model:
    path = run / SCHEMA_FILE
    tasks = load_config(config_of(run)).tasks_over(FeatureSchema.load(path))
    read_metrics(run)
    check_run_files(run)
    names = tuple(sorted(task.name for task in tasks))
    return _Model(partial(_load_run, run.resolve()), path, names)


def _load_run(run: Path) -> Any:
    """Serialized lists [B] -> outputs by name, for the workers of a pipeline."""
    from tfr_moe.baselines import keras_model, open_run
    from tfr_moe.serving.export.export import lists_function
    from tfr_moe.serving.export.parsing import RequestParser

    loaded = open_run(run)
    return lists_function(keras_model(loaded), RequestParser(loaded.schema, loaded.categories))


def _exported_model(model: Path) -> _Model:
    """The SavedModel of `MODELS/NAME`, its newest version, or of `MODELS/NAME/<version>`."""
    folder = model
    if not (model / SAVED_MODEL).is_file():
        versions = versions_of(model)
        if not versions:
            raise UserError(f"--model {model}: not an exported model; give MODELS/NAME")
        folder = model / str(versions[-1])
    outputs = signatures_of(load_meta_graph(folder))["serving_default"].outputs
    tasks = sorted(n.removeprefix("scores_") for n in outputs if n.startswith("scores_"))
    return _Model(folder.resolve(), folder / EXTRA / SCHEMA_FILE, tuple(tasks))


def _schema_for(stored: Path, given: Path | None) -> FeatureSchema:
    """The schema of the rows: `given` if it agrees with the stored one of the model, or that."""
    of_model = FeatureSchema.load(stored) if stored.is_file() else None
    if given is None:
        if of_model is None:
            raise UserError(f"model: has no {stored}; give a schema with --schema")
        return of_model
    schema = FeatureSchema.load(given)
    if of_model is not None:
        _check_same(given, schema, of_model)
    return schema


def _check_same(given: Path, schema: FeatureSchema, of_model: FeatureSchema) -> None:
    expected = {feature.name: feature for feature in of_model.features}
    features = {feature.name: feature for feature in schema.features}
    for name in dict.fromkeys([*expected, *features]):
        if expected.get(name) != features.get(name):
            what = "differs from the model's" if name in features else "of the model is missing"
            raise UserError(f"--schema {given}: feature {name!r} {what}")
    if list(expected) != list(features):
        raise UserError(f"--schema {given}: the order of the features differs from the model's")
    for name in ("packed", "hierarchy"):
        if getattr(schema, name) != getattr(of_model, name):
            raise UserError(f"--schema {given}: {name} differs from the model's")


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
    schema: Path | None = None,
    item_id: str | None = None,
    vectors: str | None = None,
    progress: ProgressCallback | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores all lists of the input and writes them to `out`, by a run or an exported model.

    `schema` and `item_id` are by default the model's and a feature with a usual name; `options` are
    others of `PredictOptions`.

    Returns:
        Numbers of rows `read`, `written`, `rejected`, `cut`, and of `lists`; `rejects` by reason.

    Raises:
        UserError: for invalid input, in one line.
    """
    from tfr_moe.beam import PredictOptions
    from tfr_moe.beam import predict as run_predict

    if (run is None) == (model is None):
        raise UserError("give either --run or --model")
    if run is not None:
        if vectors is not None:
            raise UserError("--vectors: needs --model, made with export --vectors, not --run")
        scorer = _model_of_run(run)
    else:
        assert model is not None
        scorer = _exported_model(model)
    described = _schema_for(scorer.schema, schema)
    complete = PredictOptions(
        model=scorer.model,
        input=input_pattern,
        schema=described,
        out=out,
        item_id=_item_id_of(described, item_id),
        vectors=vectors,
        tasks=scorer.tasks,
        **options,
    )
    return run_predict(complete, progress)


def export_vectors(run: str | Path, out: str | Path) -> Path:
    """Exports a run of `click_model` as a version that maps serialized lists to their vectors.

    Its default signature returns `vectors` [B, L, d].

    Raises:
        UserError: for a model without vectors.
    """
    from tfr_moe.scorers import vector_model
    from tfr_moe.serving.export.export import free_version, save_lists_model
    from tfr_moe.training import load_run

    loaded, out = load_run(run), Path(out)
    model = vector_model(loaded.model)
    if model is None:
        raise UserError(
            f"--run {run}: model {loaded.config.model} has no vectors; train one with "
            "--model click_model"
        )
    final = out / str(free_version(out))
    with atomic_directory(final) as folder:
        save_lists_model(model, loaded.schema, folder, _VECTORS, loaded.categories)
    return final
