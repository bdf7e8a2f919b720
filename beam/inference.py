"""Exported models under Beam's RunInference: one model a worker, elements in batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from apache_beam.ml.inference.base import ModelHandler

from tfr_moe.errors import UserError

_SCORES = "scores"
Element = TypeVar("Element", bytes, str)
Answer = TypeVar("Answer")


class SavedModelHandler(ModelHandler[Element, Answer, Any], Generic[Element, Answer], abc.ABC):
    """Runs the default signature of a SavedModel, which takes strings [B].

    Args:
        folder: of the SavedModel, on a path that the workers have.
        batch_size: elements that are given to it at a time.
    """

    element = "an element"

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
        self,
        batch: Sequence[Element],
        model: Any,
        inference_args: Mapping[str, Any] | None = None,
    ) -> Iterator[Answer]:
        """The model's answers to a batch.

        Raises:
            UserError: if the model refuses an element; the message is TensorFlow's.
        """
        from tfr_moe._compat import tf

        signature = model.signatures["serving_default"]
        (name,) = signature.structured_input_signature[1]
        try:
            outputs = signature(**{name: tf.constant(list(batch), tf.string)})
        except tf.errors.OpError as error:
            reason = " ".join(str(error.message).split("<stack traces")[0].split())
            raise UserError(f"model {self._folder}: refuses {self.element}: {reason}") from None
        yield from self.answers(outputs)

    @abc.abstractmethod
    def answers(self, outputs: Mapping[str, Any]) -> Sequence[Answer]:
        """The signature's outputs, taken apart by element."""

    def batch_elements_kwargs(self) -> Mapping[str, Any]:
        """Batches of one size, so that a run can be repeated."""
        return {"min_batch_size": self._batch_size, "max_batch_size": self._batch_size}

    def get_metrics_namespace(self) -> str:
        """Under which Beam counts."""
        return "tfr_moe"


class Scores(SavedModelHandler[bytes, list[float]]):
    """Serialized `ExampleListWithContext` -> scores of its places.

    The signature gives scores [B, L], L the length of the longest list; what stands beyond a list's own
    length is padding.
    """

    element = "a list"

    def answers(self, outputs: Mapping[str, Any]) -> list[list[float]]:
        """See `SavedModelHandler`."""
        scores = outputs[_SCORES] if _SCORES in outputs else next(iter(outputs.values()))
        return scores.numpy().tolist()


class QueryCategory(NamedTuple):
    """A query's category as a classifier sees it; `parent` is empty where it knows none."""

    child: str
    parent: str
    probability: float


class QueryCategories(SavedModelHandler[str, QueryCategory]):
    """Texts of queries -> their categories."""

    element = "a query"

    def answers(self, outputs: Mapping[str, Any]) -> list[QueryCategory]:
        """See `SavedModelHandler`."""
        children, parents = (outputs[name].numpy().tolist() for name in ("child", "parent"))
        sure = outputs["probability"].numpy().tolist()
        found = zip(children, parents, sure, strict=True)
        return [QueryCategory(child.decode(), parent.decode(), p) for child, parent, p in found]
