"""Checks every output of every signature of an export against the Keras model.

The export runs in a fresh Python process that has TensorFlow and nothing of this library. The
Keras model reads the lists by the schema's plain parsing specs, not by the exported parsers.
"""

from __future__ import annotations

import os
import pickle
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
# too, and without what takes a third of the import of TensorFlow: an export needs neither Keras nor
# the libraries that TensorFlow and Keras look for.
_SCRIPT = """
import gc, pickle, sys
gc.disable()
unused = "keras", "tf_keras", "pandas", "scipy", "h5py", "setuptools"
sys.modules.update(dict.fromkeys(unused))
import tensorflow as tf

folder, signatures, batches = pickle.load(sys.stdin.buffer)
loaded = tf.saved_model.load(folder)

def outputs(signature, lists):
    tensors = loaded.signatures[signature](inputs=tf.constant(lists, tf.string))
    return {name: tensor.numpy() for name, tensor in tensors.items()}

found = [{name: outputs(name, lists) for name in signatures} for lists in batches]
ours = ("tfr_moe", "tensorflow_ranking")
foreign = sorted(name for name in sys.modules if name.split(".")[0] in ours)
if foreign:
    sys.exit("imported " + ", ".join(foreign))
with open("answers", "wb") as file:
    pickle.dump(found, file)
gc.freeze()
"""

Arrays = dict[str, np.ndarray]


class FreshProcess:
    """A Python process with TensorFlow and nothing of this library, which runs an export once.

    It runs on the CPU, and imports TensorFlow while the export is still written. At the end of its
    `with` block it is stopped.
    """

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            # An empty working directory, or Python would find packages in the current one.
            cwd=self._scratch.name,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> FreshProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._scratch.cleanup()

    def run(self, folder: Path, batches: Sequence[Sequence[bytes]]) -> list[dict[str, Arrays]]:
        """The outputs of an export for each batch of lists, by signature and name.

        Raises:
            UserError: if the process fails.
        """
        # This function and the script above alone write and read the pickles.
        task = pickle.dumps((str(folder.resolve()), (DEFAULT, RANK, SCHEMA), batches))
        _, errors = self._process.communicate(task)
        if code := self._process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
            reason = ([line for line in lines if "Error" in line] or lines)[-1].strip()
            raise UserError(f"the export does not run in a fresh process: {reason}")
        answers: list[dict[str, Arrays]] = pickle.loads(
            Path(self._scratch.name, "answers").read_bytes()
        )
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
    answers: Sequence[dict[str, Arrays]],
    schema: FeatureSchema,
    batches: Sequence[ReferenceBatch],
    tolerance: float,
) -> float:
    """Compares what an export answers to each batch with the answer of the Keras model.

    Differences up to `tolerance`, absolute and relative, are allowed, of whole numbers none;
    another one is a UserError. Returns the largest one.
    """
    largest = 0.0
    for batch, answer in zip(batches, answers, strict=True):
        for where, exported, expected in _pairs(batch, answer):
            if exported.shape != expected.shape:
                raise UserError(
                    f"{where}: the export returns shape {exported.shape}, "
                    f"the model {expected.shape}"
                )
            allowed = tolerance if exported.dtype.kind == "f" else 0
            for row, (theirs, ours) in enumerate(zip(exported, expected, strict=True)):
                gap = float(np.max(np.abs(theirs - ours), initial=0))
                if not np.allclose(theirs, ours, rtol=allowed, atol=allowed):
                    raise UserError(
                        f"warm-up list {batch.first + row}: {where}: the export's and the model's "
                        f"differ by {gap:.2g} (allowed: {allowed:g})"
                    )
                largest = max(largest, gap)
        if any(text != schema.to_json().encode() for text in answer[SCHEMA][SCHEMA].tolist()):
            raise UserError(f"the export's signature {SCHEMA!r} returns another schema")
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


def _pairs(
    batch: ReferenceBatch, answer: dict[str, Arrays]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields a name, what the export returns and what is expected, each with a row per list.

    The shapes of a pair may differ; those after it assume that they do not.
    """
    sizes = batch.mask.sum(axis=1)
    width = int(sizes.max())
    mask = batch.mask[:, :width]
    ranked = answer[RANK]
    order, slots = ranked["order"], np.arange(width)
    yield f"{RANK} valid", ranked["valid"], sizes
    # Each item once, best first, and the padding last, since its score is the lowest.
    ordered = np.sort(np.where(order < 0, width, order), axis=1)
    yield f"{RANK} order", ordered, np.where(mask, slots, width)
    best_first = np.argsort(-ranked[SCORES], axis=1, kind="stable")
    yield f"{RANK} sorted {SCORES}", best_first, np.broadcast_to(slots, mask.shape)
    scores = {n: v for n, v in batch.outputs.items() if not names_experts(n)}
    yield from _output_pairs(DEFAULT, answer[DEFAULT], scores, mask)
    yield from _output_pairs(RANK, in_request_order(ranked), batch.outputs, mask)


def _output_pairs(
    signature: str, exported: Arrays, expected: Arrays, mask: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The pairs of the outputs of a signature, in the order of the request."""
    if set(exported) != set(expected):
        raise UserError(
            f"the export's signature {signature!r} returns {', '.join(sorted(exported))}; "
            f"expected: {', '.join(sorted(expected))}"
        )
    width = mask.shape[1]
    for name, values in expected.items():
        if not names_experts(name):
            where = f"{signature} {name}"
            yield where, exported[name], np.where(mask, values[:, :width], LOWEST)
            padding = np.where(mask, 0, exported[name] - LOWEST)
            yield f"{where} at padding", padding, np.zeros(mask.shape)
        elif name.startswith(EXPERT_IDS):
            weights = name.replace(EXPERT_IDS, EXPERT_WEIGHTS)
            # Weights by expert, since equal weights have no order.
            num_experts = 1 + max(int(a[name].max(initial=0)) for a in (exported, expected))
            theirs, ours = (
                _by_expert(a[name], a[weights], num_experts) for a in (exported, expected)
            )
            if ours.ndim == 3:
                ours = np.where(mask[..., np.newaxis], ours[:, :width], 0)
            yield f"{signature} {weights}", theirs, ours


def _by_expert(ids: np.ndarray, weights: np.ndarray, num_experts: int) -> np.ndarray:
    """[..., K] of each -> the weight of every expert, [..., N]; negative ids are padding."""
    dense: Any = np.zeros([*ids.shape[:-1], num_experts], np.float32)
    np.put_along_axis(dense, np.maximum(ids, 0), np.where(ids < 0, 0, weights), axis=-1)
    return dense
