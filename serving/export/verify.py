"""Checks every output of every signature of an export against the Keras model.

The export runs in a fresh Python process that has TensorFlow and nothing of this library. The
Keras model reads the lists by the schema's plain parsing specs, not by the exported parsers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema, QueryCategories
from tfr_moe.utils.failures import reason_of

from .parsing import Features, ListCategories
from .signatures import (
    DEFAULT,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    LOWEST,
    RANK,
    SCHEMA,
    SCORES,
    names_experts,
    outputs_by_name,
)

_BATCH_SIZE = 16
# Without the garbage collector, which takes a fifth of so short a process and would run at its exit
# too, and without what takes another fifth to import: an export needs neither Keras nor the
# libraries that Keras looks for.
_SCRIPT = """
import gc, sys
gc.disable()
sys.modules.update(dict.fromkeys(("keras", "tf_keras", "pandas", "scipy")))
import numpy as np
import tensorflow as tf

folder, batches, answers, *signatures = sys.argv[1:]
loaded = tf.saved_model.load(folder)
out = {}
for number, lists in np.load(batches, allow_pickle=True).items():
    for signature in signatures:
        outputs = loaded.signatures[signature](inputs=tf.constant(lists.tolist(), tf.string))
        out |= {f"{number}:{signature}:{name}": value.numpy() for name, value in outputs.items()}
ours = ("tfr_moe", "tensorflow_ranking")
foreign = sorted(name for name in sys.modules if name.split(".")[0] in ours)
if foreign:
    sys.exit("imported " + ", ".join(foreign))
np.savez(answers, **out)
gc.freeze()
"""

Arrays = dict[str, np.ndarray]


def _answers_in_fresh_process(
    folder: Path, batches: Sequence[Sequence[bytes]], signatures: Sequence[str]
) -> list[dict[str, Arrays]]:
    """Runs an export on the CPU; returns the outputs of each batch by signature and name."""
    with tempfile.TemporaryDirectory() as scratch:
        inputs, outputs = Path(scratch) / "batches.npz", Path(scratch) / "answers.npz"
        # The pickle is written here and read by the script above alone.
        np.savez(inputs, **{str(n): np.array(lists, object) for n, lists in enumerate(batches)})
        files = map(str, (folder.resolve(), inputs, outputs))
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *files, *signatures],
            # An empty working directory, or Python would find packages in the current one.
            cwd=scratch,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        if run.returncode:
            lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
            reason = ([line for line in lines if "Error" in line] or lines)[-1].strip()
            raise UserError(f"the export does not run in a fresh process: {reason}")
        answers: list[dict[str, Arrays]] = [{name: {} for name in signatures} for _ in batches]
        with np.load(outputs, allow_pickle=True) as saved:
            for key, value in saved.items():
                number, signature, name = key.split(":")
                answers[int(number)][signature][name] = value
    return answers


class ReferenceBatch(NamedTuple):
    """Some lists from position `first` on, with the Keras model's answer: scores and experts."""

    first: int
    lists: list[bytes]
    mask: np.ndarray
    outputs: Arrays


@contextmanager
def fitting_schema(what: str) -> Iterator[None]:
    """Turns TensorFlow's errors inside the block, which parses `what`, into one line."""
    try:
        yield
    except tf.errors.OpError as error:
        raise UserError(f"{what} does not fit the schema: {reason_of(error)}") from error


def reference_batches(
    model: Callable[[Features], Any],
    schema: FeatureSchema,
    lists: Sequence[bytes],
    explanation: tf.keras.Model | None = None,
    categories: QueryCategories | None = None,
    name: str = "warm-up list",
) -> list[ReferenceBatch]:
    """Runs the Keras model on serialized lists; errors name a list by `name` and position."""
    batches = []
    add_categories = ListCategories(schema, categories)
    for first in range(0, len(lists), _BATCH_SIZE):
        batch = list(lists[first : first + _BATCH_SIZE])
        with fitting_schema(f"a {name}"):
            features = tfr.data.parse_from_example_list(
                tf.constant(batch),
                context_feature_spec=schema.feature_spec("context"),
                example_feature_spec=schema.feature_spec("example"),
                mask_feature_name=MASK,
            )
        features = add_categories(features)
        with tf.device("/CPU:0"):
            outputs = outputs_by_name(model(features))
            if explanation is not None:
                explained = outputs_by_name(explanation(features, training=False))
                outputs |= {n: v for n, v in explained.items() if names_experts(n)}
        arrays = {name: value.numpy() for name, value in outputs.items()}
        mask = features[MASK].numpy()
        for output, values in arrays.items():
            of_lists = names_experts(output) and values.ndim == 2
            for row, real in enumerate(mask):
                if not np.isfinite(values[row] if of_lists else values[row][real]).all():
                    raise UserError(f"{name} {first + row}: the model's {output} are not finite")
        batches.append(ReferenceBatch(first, batch, mask, arrays))
    return batches


def verify(
    folder: Path, schema: FeatureSchema, batches: Sequence[ReferenceBatch], tolerance: float
) -> float:
    """Runs every signature of an export in a fresh process and compares all outputs.

    Differences up to `tolerance`, absolute and relative, are allowed; another one is a UserError.
    Returns the largest one of a score.
    """
    lists = [batch.lists for batch in batches]
    answers = _answers_in_fresh_process(folder, lists, (DEFAULT, RANK, SCHEMA))
    largest = 0.0
    for batch, answer in zip(batches, answers, strict=True):
        check = _Check(batch, tolerance)
        scores = {n: v for n, v in batch.outputs.items() if not names_experts(n)}
        check.outputs(DEFAULT, answer[DEFAULT], scores)
        check.order(answer[RANK])
        check.outputs(RANK, in_request_order(answer[RANK]), batch.outputs)
        if any(text != schema.to_json().encode() for text in answer[SCHEMA][SCHEMA].tolist()):
            raise UserError(f"the export's signature {SCHEMA!r} returns another schema")
        largest = max(largest, check.largest)
    return largest


def in_request_order(outputs: Arrays) -> Arrays:
    """The outputs of `rank` but order and valid, those of items as the request has them."""
    order = outputs["order"]
    by_item = np.argsort(np.where(order < 0, order.shape[1], order), axis=1, kind="stable")
    restored = {}
    for name in outputs.keys() - {"order", "valid"}:
        values = restored[name] = outputs[name]
        if values.ndim == 3:  # the experts of items; those of lists are [B, K]
            restored[name] = np.take_along_axis(values, by_item[..., np.newaxis], axis=1)
        elif not names_experts(name):
            restored[name] = np.take_along_axis(values, by_item, axis=1)
    return restored


class _Check:
    """Compares the answers for one batch; `largest` is the largest difference of a score so far."""

    def __init__(self, batch: ReferenceBatch, tolerance: float):
        self.largest = 0.0
        self._first = batch.first
        self._tolerance = tolerance
        self._sizes = batch.mask.sum(axis=1)
        self._mask = batch.mask[:, : int(self._sizes.max())]

    def order(self, answer: Arrays) -> None:
        """Checks that `rank` orders all items of each list by their scores, padding last."""
        order, scores, width = answer["order"], answer[SCORES], self._mask.shape[1]
        self._check_shape(f"{RANK} order", order, self._mask)
        slots = np.where(self._mask, np.arange(width), width)
        consistent = (np.sort(np.where(order < 0, width, order), axis=1) == slots).all(axis=1)
        consistent &= ((order < 0) == ~self._mask).all(axis=1) & (answer["valid"] == self._sizes)
        consistent &= (np.diff(scores, axis=1) <= 0).all(axis=1)
        if not consistent.all():
            number = self._first + int(np.argmin(consistent))
            raise UserError(f"warm-up list {number}: {RANK}: order, valid and scores disagree")

    def outputs(self, signature: str, exported: Arrays, expected: Arrays) -> None:
        """Compares the outputs of a signature in the order of the request."""
        if set(exported) != set(expected):
            raise UserError(
                f"the export's signature {signature!r} returns {', '.join(sorted(exported))}; "
                f"expected: {', '.join(sorted(expected))}"
            )
        for name, values in expected.items():
            where = f"{signature} {name}"
            if name.startswith(EXPERT_IDS):
                weights = name.replace(EXPERT_IDS, EXPERT_WEIGHTS)
                # Weights by expert, since equal weights have no order.
                num_experts = 1 + max(int(a[name].max(initial=0)) for a in (exported, expected))
                theirs, ours = (
                    _by_expert(a[name], a[weights], num_experts) for a in (exported, expected)
                )
                if ours.ndim == 3:
                    ours = np.where(self._mask[..., np.newaxis], self._cut(ours), 0)
                self._compare(f"{signature} {weights}", theirs, ours)
            elif not names_experts(name):
                ours = np.where(self._mask, self._cut(values), LOWEST)
                self._compare(where, exported[name], ours)
                if (exported[name][~self._mask] != LOWEST).any():
                    raise UserError(f"{where}: padding is not the lowest float")
                gap = np.abs(exported[name] - ours).max(initial=0.0)
                self.largest = max(self.largest, float(gap))

    def _cut(self, values: np.ndarray) -> np.ndarray:
        return values[:, : self._mask.shape[1]]

    def _compare(self, where: str, exported: np.ndarray, expected: np.ndarray) -> None:
        """Compares list by list; an error has the largest difference of the first wrong list."""
        self._check_shape(where, exported, expected)
        for number, (theirs, ours) in enumerate(zip(exported, expected, strict=True), self._first):
            if not np.allclose(theirs, ours, rtol=self._tolerance, atol=self._tolerance):
                raise UserError(
                    f"warm-up list {number}: {where}: the export's and the model's differ by "
                    f"{np.abs(theirs - ours).max():.2g} (allowed: {self._tolerance:g})"
                )

    @staticmethod
    def _check_shape(where: str, exported: np.ndarray, expected: np.ndarray) -> None:
        if exported.shape != expected.shape:
            raise UserError(
                f"{where}: the export returns shape {exported.shape}, the model {expected.shape}"
            )


def _by_expert(ids: np.ndarray, weights: np.ndarray, num_experts: int) -> np.ndarray:
    """[..., K] of each -> the weight of every expert, [..., N]; negative ids are padding."""
    dense: Any = np.zeros([*ids.shape[:-1], num_experts], np.float32)
    np.put_along_axis(dense, np.maximum(ids, 0), np.where(ids < 0, 0, weights), axis=-1)
    return dense
