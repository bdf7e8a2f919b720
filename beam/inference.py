"""SavedModels that a pipeline runs on batches of strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError
from tfr_moe.utils.digests import check_model_files
from tfr_moe.utils.failures import load_saved_model, reason_of


class SavedModel:
    """The default signature of a SavedModel, which takes strings [B].

    Args:
        folder: of the SavedModel, on a path that the workers have.
        element: what it takes, such as "a list", for messages.

    Raises:
        UserError: if the folder has no SavedModel.
    """

    def __init__(self, folder: str, element: str):
        if not Path(folder, "saved_model.pb").is_file():
            raise UserError(f"model {folder}: there is no saved_model.pb on this worker")
        check_model_files(Path(folder))
        self._folder, self._element = folder, element
        self._model = load_saved_model(folder)

    def __call__(self, batch: Sequence[bytes] | Sequence[str]) -> dict[str, Any]:
        """Returns the outputs for a batch, by name, as lists with one entry per element.

        Raises:
            UserError: if the model rejects an element, with TensorFlow's message.
        """
        from tfr_moe._compat import tf

        signature = self._model.signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]
        try:
            outputs: Mapping[str, Any] = signature(**{name: tf.constant(list(batch), tf.string)})
        except tf.errors.OpError as error:
            raise UserError(
                f"model {self._folder}: rejects {self._element}: {reason_of(error)}"
            ) from None
        return {name: output.numpy().tolist() for name, output in outputs.items()}
