"""Scores of a table by a trained run or an exported model: what `tfr-moe predict` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tfr_moe.errors import UserError
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema
from tfr_moe.serving.versions import versions_of

_SAVED_MODEL = "saved_model.pb"
ITEM_IDS = ("item_id", "product_id", "doc_id", "document_id", "asin", "item", "product")
"""Names of features that are taken for the item's id where none is given."""


def run_model(run: Path) -> Path:
    """The SavedModel of a run.

    Raises:
        UserError: if the run has none.
    """
    folder = run / "saved_model"
    if not (folder / _SAVED_MODEL).is_file():
        raise UserError(f"--run {run}: has no saved_model/; is its training finished?")
    return folder


def exported_model(model: Path) -> Path:
    """The SavedModel of `MODELS/NAME`, its newest version, or of `MODELS/NAME/<version>`.

    Raises:
        UserError: if there is none.
    """
    if (model / _SAVED_MODEL).is_file():
        return model
    versions = versions_of(model) if model.is_dir() else []
    if not versions:
        raise UserError(f"--model {model}: is no exported model; give MODELS/NAME")
    return model / str(versions[-1])


def schema_for(folder: Path, stored: Sequence[Path], given: Path | None) -> FeatureSchema:
    """The schema of the rows: the given one where it agrees with the model's, else the model's own.

    Args:
        folder: the SavedModel, for messages.
        stored: where the model's own schema may be.
        given: file of the schema of the rows, or None.

    Raises:
        UserError: naming the feature in which the two differ.
    """
    own = next((FeatureSchema.load(path) for path in stored if path.is_file()), None)
    if given is None:
        if own is None:
            raise UserError(f"model {folder}: has no schema with it; give one by --schema")
        return own
    schema = FeatureSchema.load(given)
    if own is not None:
        _check_same(given, schema, own)
    return schema


def _check_same(given: Path, schema: FeatureSchema, own: FeatureSchema) -> None:
    ours = {feature.name: feature for feature in own.features}
    theirs = {feature.name: feature for feature in schema.features}
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            what = "is not the model's" if name in theirs else "of the model is missing"
            raise UserError(f"--schema {given}: feature {name!r} {what}")
    if list(ours) != list(theirs):
        raise UserError(f"--schema {given}: its features stand in another order than the model's")
    for name in ("packed", "hierarchy"):
        if getattr(schema, name) != getattr(own, name):
            raise UserError(f"--schema {given}: {name} differs from the model's")


def item_id_of(schema: FeatureSchema, given: str | None) -> str:
    """The column with the item's id.

    Raises:
        UserError: if none is given and no feature has one of the usual names.
    """
    if given is not None:
        return given
    names = [feature.name for feature in schema.select("example", "categorical")]
    found = [name for name in ITEM_IDS if name in names]
    if not found:
        there = ", ".join(names) or "none"
        raise UserError(f"--item-id: which column tells items apart? the items' ids are: {there}")
    return found[0]


def predict(
    run: Path | None,
    model: Path | None,
    input_pattern: str,
    out: Path,
    schema: Path | None = None,
    item_id: str | None = None,
    source: str | None = None,
    settings: Sequence[str] = (),
    batch_size: int = 128,
    overwrite: bool = False,
    beam_args: Sequence[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, int]:
    """Scores all lists of the input and writes them to `out`.

    Args:
        run: folder of a trained run; its best epoch scores.
        model: folder of an exported model, instead of a run.
        input_pattern: a table, or files of `ExampleListWithContext` ending in `.tfrecord(.gz)`.
        out: file to make, `.csv`, `.jsonl`, either `.gz`, or `.parquet`.
        schema: of the rows; None for the model's own.
        item_id: column that tells items apart; None for a feature of a usual name.
        source: name of a source of rows; None for a table of one row an item.
        settings: options of the source.
        batch_size: lists that are scored at a time.
        overwrite: replace `out`.
        beam_args: arguments for Beam.
        progress: called with the stage, what is done and the total.

    Returns:
        Numbers of rows `read`, `written`, `rejected`, `cut`, and of `lists`.

    Raises:
        UserError: in one line, for whatever can't work.
    """
    from tfr_moe.beam.predict import PredictOptions
    from tfr_moe.beam.predict import predict as run_predict

    if (run is None) == (model is None):
        raise UserError("give either --run or --model")
    if run is not None:
        folder, stored = run_model(run), [run / SCHEMA_FILE]
    else:
        assert model is not None
        folder = exported_model(model)
        stored = [folder / "assets.extra" / SCHEMA_FILE]
    described = schema_for(folder, stored, schema)
    options = PredictOptions(
        model=str(folder.resolve()),
        input=input_pattern,
        schema=described,
        out=out,
        item_id=item_id_of(described, item_id),
        source=source,
        settings=tuple(settings),
        batch_size=batch_size,
        overwrite=overwrite,
        beam_args=tuple(beam_args),
    )
    return run_predict(options, progress)
