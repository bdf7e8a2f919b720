"""Compares every output of every signature of an export with the Keras model.

The export runs in a fresh Python process that has TensorFlow and nothing of this library: what
loads there loads in TensorFlow Serving. The Keras model reads the lists by the schema's plain
parsing specs, not by the parsers that are exported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema, QueryCategories

from .list_categories import Features, ListCategories
from .signatures import (
    DEFAULT,
    EXPERT_IDS,
    EXPERT_WEIGHTS,
    LOWEST,
    RANK,
    SCHEMA,
    SCORES,
    explained_by_name,
    names_experts,
    scores_by_name,
)

_BATCH_SIZE = 16
# Without the garbage collector, which takes a fifth of so short a process.
_SCRIPT = """
import gc, sys
gc.disable()
import numpy as np
import tensorflow as tf

folder, calls, answers = sys.argv[1:]
loaded = tf.saved_model.load(folder)
sent = np.load(calls, allow_pickle=True)
out = {}
for number, signature in enumerate(sent["signatures"]):
    inputs = tf.constant(sent[str(number)].tolist(), tf.string)
    for name, value in loaded.signatures[str(signature)](inputs=inputs).items():
        out[f"{number}:{name}"] = value.numpy()
ours = ("tfr_moe", "tensorflow_ranking")
foreign = sorted(name for name in sys.modules if name.split(".")[0] in ours)
if foreign:
    sys.exit("imported " + ", ".join(foreign))
np.savez(answers, **out)
"""

Arrays = dict[str, np.ndarray]


class Call(NamedTuple):
    """A signature and the strings that it takes."""

    signature: str
    inputs: Sequence[bytes]


def answers_in_fresh_process(folder: Path, calls: Sequence[Call]) -> list[Arrays]:
    """Runs a SavedModel in a process that has only TensorFlow, on the CPU.

    Args:
        folder: a SavedModel.
        calls: the signatures and inputs to run.

    Returns:
        For each call its outputs by name.

    Raises:
        UserError: if the model cannot be loaded or run there, or needs code of this library.
    """
    arrays = {str(i): np.array(call.inputs, object) for i, call in enumerate(calls)}
    with tempfile.TemporaryDirectory() as scratch:
        inputs, outputs = Path(scratch) / "calls.npz", Path(scratch) / "answers.npz"
        # The pickle is written here and read by the script above alone.
        np.savez(inputs, signatures=np.array([c.signature for c in calls]), **arrays)
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *map(str, (folder.resolve(), inputs, outputs))],
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
        answers: list[Arrays] = [{} for _ in calls]
        with np.load(outputs, allow_pickle=True) as saved:
            for key in saved.files:
                number, _, name = key.partition(":")
                answers[int(number)][name] = saved[key]
    return answers


class ReferenceBatch(NamedTuple):
    """Some lists with the Keras model's answer to them.

    Attributes:
        first: position of the first list among all.
        lists: serialized `ExampleListWithContext`s.
        features: the parsed lists and their mask [B, L].
        outputs: `scores`, `scores_<task>` [B, L] and the experts, as the explanation returns them.
    """

    first: int
    lists: list[bytes]
    features: Arrays
    outputs: Arrays


def reference_batches(
    model: Callable[[Features], Any],
    schema: FeatureSchema,
    lists: Sequence[bytes],
    explanation: tf.keras.Model | None = None,
    categories: QueryCategories | None = None,
    name: str = "warm-up list",
) -> list[ReferenceBatch]:
    """Runs the Keras model on serialized lists; `name` is that of a list in messages.

    Raises:
        UserError: if a list does not fit the schema, or if its scores are not finite.
    """
    batches = []
    add_categories = ListCategories(schema, categories)
    for first in range(0, len(lists), _BATCH_SIZE):
        batch = list(lists[first : first + _BATCH_SIZE])
        features = add_categories(_parsed(schema, batch, name))
        with tf.device("/CPU:0"):
            outputs = scores_by_name(model(features))
            if explanation is not None:
                explained = explained_by_name(explanation(features, training=False))
                outputs |= {n: v for n, v in explained.items() if names_experts(n)}
        arrays = {name: value.numpy() for name, value in outputs.items()}
        mask = features[MASK].numpy()
        for output, values in arrays.items():
            of_lists = names_experts(output) and values.ndim == 2
            for row, real in enumerate(mask):
                if not np.isfinite(values[row] if of_lists else values[row][real]).all():
                    raise UserError(f"{name} {first + row}: the model's {output} are not finite")
        parsed = {name: value.numpy() for name, value in features.items()}
        batches.append(ReferenceBatch(first, batch, parsed, arrays))
    return batches


def _parsed(schema: FeatureSchema, lists: Sequence[bytes], name: str) -> Features:
    try:
        return tfr.data.parse_from_example_list(
            tf.constant(lists),
            context_feature_spec=schema.feature_spec("context"),
            example_feature_spec=schema.feature_spec("example"),
            mask_feature_name=MASK,
        )
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())
        raise UserError(f"a {name} does not fit the schema: {reason}") from error


def verify(
    folder: Path, schema: FeatureSchema, batches: Sequence[ReferenceBatch], tolerance: float
) -> float:
    """Runs every signature of an export in a fresh process and compares all outputs.

    Args:
        folder: the SavedModel.
        schema: of the lists.
        batches: the lists with the Keras model's answers.
        tolerance: allowed difference of numbers, absolute and relative.

    Returns:
        The largest difference of a score.

    Raises:
        UserError: if the model does not run there, or naming the list, the signature and the output
            that differs.
    """
    calls = [Call(signature, b.lists) for b in batches for signature in (DEFAULT, RANK, SCHEMA)]
    answers = iter(answers_in_fresh_process(folder, calls))
    largest = 0.0
    for batch in batches:
        check = _Check(batch, tolerance)
        scores = {n: v for n, v in batch.outputs.items() if not names_experts(n)}
        check.outputs(DEFAULT, next(answers), scores)
        check.outputs(RANK, check.in_request_order(next(answers)), batch.outputs)
        if any(text != schema.to_json().encode() for text in next(answers)[SCHEMA].tolist()):
            raise UserError(f"the export's signature {SCHEMA!r} returns another schema")
        largest = max(largest, check.largest)
    return largest


class _Check:
    """Compares the answers for one batch; `largest` is the largest difference of a score so far."""

    def __init__(self, batch: ReferenceBatch, tolerance: float):
        self.largest = 0.0
        self._batch = batch
        self._tolerance = tolerance
        self._sizes = batch.features[MASK].sum(axis=1)
        self._width = int(self._sizes.max())
        self._mask = batch.features[MASK][:, : self._width]

    def outputs(self, signature: str, exported: Arrays, expected: Arrays) -> None:
        """Compares the outputs of a signature in the order of the request."""
        if set(exported) != set(expected):
            raise UserError(
                f"the export's signature {signature!r} returns {', '.join(sorted(exported))}; "
                f"expected: {', '.join(sorted(expected))}"
            )
        for name, values in expected.items():
            if not names_experts(name):
                self._scores(f"{signature} {name}", exported[name], values[:, : self._width])
            elif name.startswith(EXPERT_IDS):
                weights = name.replace(EXPERT_IDS, EXPERT_WEIGHTS)
                # Weights by expert, since equal weights have no order.
                num_experts = 1 + max(int(a[name].max(initial=0)) for a in (exported, expected))
                theirs, ours = (
                    _by_expert(a[name], a[weights], num_experts) for a in (exported, expected)
                )
                if ours.ndim == 3:
                    ours = np.where(self._mask[..., np.newaxis], ours[:, : self._width], 0)
                self._lists(f"{signature} {weights}", theirs, ours)

    def in_request_order(self, exported: Arrays) -> Arrays:
        """The outputs of `rank` but order and valid, those of items at their request positions."""
        order, scores = exported["order"], exported[SCORES]
        _check_shape(f"{RANK} order", order, self._mask)
        positions = np.where(order < 0, self._width, order)
        slots = np.where(self._mask, np.arange(self._width), self._width)
        consistent = (np.sort(positions, axis=1) == slots).all(axis=1)
        consistent &= ((order < 0) == ~self._mask).all(axis=1) & (exported["valid"] == self._sizes)
        consistent &= (np.diff(scores, axis=1) <= 0).all(axis=1)
        if not consistent.all():
            number = self._batch.first + int(np.argmin(consistent))
            raise UserError(f"warm-up list {number}: {RANK}: order, valid and scores disagree")
        by_position = np.argsort(positions, axis=1, kind="stable")
        outputs = {name: exported[name] for name in set(exported) - {"order", "valid"}}
        for name, values in outputs.items():
            if values.ndim == 3:  # the experts of items; those of lists are [B, K]
                outputs[name] = np.take_along_axis(values, by_position[..., np.newaxis], axis=1)
            elif not names_experts(name):
                outputs[name] = np.take_along_axis(values, by_position, axis=1)
        return outputs

    def _scores(self, where: str, exported: np.ndarray, expected: np.ndarray) -> None:
        _check_shape(where, exported, expected)
        if (exported[~self._mask] != LOWEST).any():
            raise UserError(f"{where}: padding is not the lowest float")
        expected = np.where(self._mask, expected, LOWEST)
        self._lists(where, exported, expected)
        self.largest = max(self.largest, float(np.abs(exported - expected).max(initial=0.0)))

    def _lists(self, where: str, exported: np.ndarray, expected: np.ndarray) -> None:
        _check_shape(where, exported, expected)
        for row, values in enumerate(expected):
            self.close(f"warm-up list {self._batch.first + row}: {where}", exported[row], values)

    def close(self, where: str, exported: np.ndarray, expected: np.ndarray) -> None:
        """Compares two arrays.

        Raises:
            UserError: with the largest difference, or the shapes.
        """
        _check_shape(where, exported, expected)
        if not np.allclose(exported, expected, rtol=self._tolerance, atol=self._tolerance):
            largest = np.abs(exported - expected).max()
            raise UserError(
                f"{where}: the export's and the model's differ by {largest:.2g} "
                f"(allowed: {self._tolerance:g})"
            )


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
