"""Scores of lists by an exported model, with Beam's RunInference: one model a worker, lists in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from apache_beam.ml.inference.base import ModelHandler

from tfr_moe.errors import UserError

_SCORES = "scores"


class SavedModelHandler(ModelHandler[bytes, list[float], Any]):
    """Serialized `ExampleListWithContext` -> scores of its places, by a SavedModel's default signature.

    The signature takes serialized lists [B] and gives scores [B, L], L the length of the longest list;
    what stands beyond a list's own length is padding.

    Args:
        folder: of the SavedModel, on a path that the workers have.
        batch_size: lists that are scored at a time.
    """

    def __init__(self, folder: str, batch_size: int):
        super().__init__()
        self._folder = folder
        self._batch_size = batch_size

    def load_model(self) -> Any:
        """Loads the model, once on each worker."""
        from tfr_moe._compat import tf

        if not Path(self._folder, "saved_model.pb").is_file():
            raise UserError(f"model {self._folder}: there is no saved_model.pb on this worker")
        return tf.saved_model.load(self._folder)

    def run_inference(
        self, batch: Sequence[bytes], model: Any, inference_args: Mapping[str, Any] | None = None
    ) -> Iterator[list[float]]:
        """Scores a batch.

        Raises:
            UserError: if the model refuses a list; the message is TensorFlow's.
        """
        from tfr_moe._compat import tf

        signature = model.signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]
        try:
            outputs = signature(**{name: tf.constant(list(batch), tf.string)})
        except tf.errors.OpError as error:
            reason = " ".join(str(error.message).split("<stack traces")[0].split())
            raise UserError(f"model {self._folder}: refuses a list: {reason}") from None
        scores = outputs[_SCORES] if _SCORES in outputs else next(iter(outputs.values()))
        yield from scores.numpy().tolist()

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """Batches of one size, so that a run can be repeated."""
        return {"min_batch_size": self._batch_size, "max_batch_size": self._batch_size}

    def get_metrics_namespace(self) -> str:
        """Under which Beam counts."""
        return "tfr_moe"
