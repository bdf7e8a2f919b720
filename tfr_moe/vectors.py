"""Personalised vectors: those of a click model, exported, and joined into a data set for PRM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder
from tfr_moe.prediction import exported_model, schema_for
from tfr_moe.schema import SCHEMA_FILE
from tfr_moe.scorers import vector_model
from tfr_moe.serving.graph import check_operations, load_meta_graph, signatures_of
from tfr_moe.serving.parsing import RequestParser
from tfr_moe.serving.versions import versions_of
from tfr_moe.training import load_run

VECTORS = "vectors"
_EXTRA = "assets.extra"


def export_vectors(run: str | Path, out: str | Path) -> Path:
    """Exports the vectors of a run's model as a SavedModel: serialized lists [B] -> `vectors` [B, L, d].

    Args:
        run: a finished run of `click_model`.
        out: `MODELS/NAME`; a new version appears below it when it is complete.

    Returns:
        The folder of the version.

    Raises:
        UserError: for a model without vectors.
    """
    loaded, out = load_run(run), Path(out)
    model = vector_model(loaded.model)
    if model is None:
        raise UserError(
            f"run {run}: model {loaded.config.model} has no vectors; train one with "
            "--model click_model"
        )
    parser = RequestParser(loaded.schema)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def vectors(inputs: Any) -> dict[str, Any]:
        return {VECTORS: model(parser.lists(inputs), training=False)}

    signature = vectors.get_concrete_function()
    # Variables and lookup tables alone: the Keras model would bring its training graph along.
    kind = tf.saved_model.experimental.TrackableResource
    module = tf.Module(name=VECTORS)
    module.used_variables = list(signature.variables)
    module.used_resources = [
        node for node in tf.train.TrackableView(model).descendants() if isinstance(node, kind)
    ]
    versions = versions_of(out) if out.is_dir() else []
    final = out / str(max(versions, default=0) + 1)
    with complete_folder(final) as folder:
        tf.saved_model.save(module, str(folder), signatures={"serving_default": signature})
        check_operations(folder)
        (folder / _EXTRA).mkdir()
        loaded.schema.save(folder / _EXTRA / SCHEMA_FILE)
    return final


def vector_width(folder: Path) -> int:
    """The width of the vectors that a SavedModel gives.

    Raises:
        UserError: if it gives none.
    """
    signatures = signatures_of(load_meta_graph(folder))
    signature = signatures.get("serving_default")
    if signature is None or VECTORS not in signature.outputs:
        raise UserError(
            f"--model {folder}: gives no vectors; make one with `tfr-moe export-vectors`"
        )
    return int(signature.outputs[VECTORS].tensor_shape.dim[-1].size)


def join_vectors(
    model: Path,
    data: Path,
    out: Path,
    name: str = "personal_vector",
    batch_size: int = 128,
    overwrite: bool = False,
    beam_args: Sequence[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, int]:
    """Makes a data set of another with a model's vectors as one more feature of the items.

    Args:
        model: folder that `export_vectors` made, `MODELS/NAME` or a version of it.
        data: data-set folder whose features are those that the model was trained on.
        out: data-set folder to make.
        name: of the feature.
        batch_size: lists at a time.
        overwrite: replace `out`.
        beam_args: arguments for Beam.
        progress: called with the stage, what is done and the total.

    Returns:
        The number of lists by split.

    Raises:
        UserError: in one line, for whatever can't work.
    """
    from tfr_moe.beam.vectors import JoinOptions, join

    folder = exported_model(model)
    schema_for(folder, [folder / _EXTRA / SCHEMA_FILE], data / SCHEMA_FILE)
    options = JoinOptions(
        model=str(folder.resolve()),
        width=vector_width(folder),
        data=data,
        out=out,
        name=name,
        batch_size=batch_size,
        overwrite=overwrite,
        beam_args=tuple(beam_args),
    )
    return join(options, progress)
