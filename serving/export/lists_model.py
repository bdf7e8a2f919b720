"""A SavedModel with one signature, from serialized lists to outputs of their items.

The pipeline of `predict` runs it; what is deployed is made by `tfr_moe.serving.export.export`.
"""

from __future__ import annotations

from pathlib import Path

from tfr_moe._compat import tf
from tfr_moe.schema import SCHEMA_FILE, FeatureSchema

from ..versions import EXTRA
from .graph import check_operations
from .parsing import RequestParser
from .signatures import DEFAULT, INPUT, Tensors, module_of, scores_by_name


def save_lists_model(
    model: tf.keras.Model, schema: FeatureSchema, folder: Path, output: str | None = None
) -> None:
    """Writes the SavedModel into an existing folder.

    Its default signature takes serialized `ExampleListWithContext` [B] and returns what the model
    returns, [B, L] or [B, L, d], L the length of the longest list of the batch.

    Args:
        model: maps the features of `schema` (raw values) and the mask to a tensor or a dict of
            them.
        schema: describes the lists; it is written beside the model.
        folder: the folder.
        output: name of the output of a model with a single one; None for `scores`.

    Raises:
        UserError: if the graph has operations that cannot serve.
    """
    parser = RequestParser(schema)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, INPUT)], autograph=False)
    def outputs(inputs: tf.Tensor) -> Tensors:
        found = model(parser.lists(inputs), training=False)
        return scores_by_name(found) if output is None else {output: found}

    signature = outputs.get_concrete_function()
    check_operations([signature])
    module = module_of([signature], [model])
    tf.saved_model.save(module, str(folder), signatures={DEFAULT: signature})
    (folder / EXTRA).mkdir()
    schema.save(folder / EXTRA / SCHEMA_FILE)
