"""The scores of a Keras model and those of its export, to be compared.

The export is loaded in a fresh Python process that has TensorFlow and nothing of ours: what loads
there loads in TensorFlow Serving.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, FeatureSchema

from .signatures import DEFAULT, RANK, SCORES, scores_by_name

_BATCH = 16

_SCRIPT = """
import sys
import numpy as np
import tensorflow as tf

folder, records, answers, batch, default, rank = sys.argv[1:]
loaded = tf.saved_model.load(folder)
out = {}
for i, lists in enumerate(tf.data.TFRecordDataset(records).batch(int(batch))):
    out[f"scores_{i}"] = loaded.signatures[default](inputs=lists)["scores"].numpy()
    ranked = loaded.signatures[rank](inputs=lists)
    out[f"order_{i}"] = ranked["order"].numpy()
    out[f"ranked_{i}"] = ranked["scores"].numpy()
foreign = sorted(name for name in sys.modules if name.split(".")[0] in ("tfr_moe", "tensorflow_ranking"))
if foreign:
    sys.exit("imported " + ", ".join(foreign))
np.savez(answers, **out)
"""


def scores_in_fresh_process(
    folder: Path, lists: Sequence[bytes], tolerance: float
) -> list[np.ndarray]:
    """The scores of each list, in the request's order, from a process that has only TensorFlow.

    The process runs on the CPU, so that it needs no memory of a GPU that this one holds.

    Args:
        folder: a SavedModel.
        lists: serialized `ExampleListWithContext`s.
        tolerance: by how much `rank` and `predict` may differ, absolute and relative.

    Returns:
        For each list its scores, float32 [items], padding cut off.

    Raises:
        UserError: if the model can't be loaded or run there, or if `rank` contradicts `predict`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        records, answers = Path(scratch) / "lists.tfrecord", Path(scratch) / "answers.npz"
        with tf.io.TFRecordWriter(str(records)) as writer:
            for serialized in lists:
                writer.write(serialized)
        arguments = [folder.resolve(), records, answers, _BATCH, DEFAULT, RANK]
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *map(str, arguments)],
            # From an empty folder, or Python would find packages in the current one.
            cwd=scratch,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        if run.returncode:
            raise UserError(f"the export does not run in a fresh process: {_reason(run)}")
        with np.load(answers) as saved:
            batches = {name: saved[name] for name in saved.files}
    found: list[np.ndarray] = []
    for i in range(len(batches) // 3):
        for scores, order, ranked in zip(
            batches[f"scores_{i}"], batches[f"order_{i}"], batches[f"ranked_{i}"], strict=True
        ):
            real = order[order >= 0]
            if not np.allclose(scores[real], ranked[: len(real)], rtol=tolerance, atol=tolerance):
                raise UserError(f"the export contradicts itself: {RANK} and {DEFAULT} differ")
            found.append(scores[: len(real)])
    return found


def scores_in_process(
    model: tf.keras.Model, schema: FeatureSchema, lists: Sequence[bytes]
) -> list[np.ndarray]:
    """The scores that the Keras model itself gives each list, float32 [items], padding cut off.

    Lists are read by the schema's own parsing specs, not by the parser that is exported.

    Raises:
        UserError: if a list does not fit the schema, or if its scores are not finite.
    """
    found: list[np.ndarray] = []
    for start in range(0, len(lists), _BATCH):
        features = _parsed(schema, lists[start : start + _BATCH])
        with tf.device("/CPU:0"):
            logits = scores_by_name(model(features, training=False))[SCORES].numpy()
        found += [row[real] for row, real in zip(logits, features[MASK].numpy(), strict=True)]
    for number, scores in enumerate(found):
        if not np.isfinite(scores).all():
            raise UserError(f"warm-up list {number}: the model's scores are not finite")
    return found


def _parsed(schema: FeatureSchema, lists: Sequence[bytes]) -> dict[str, tf.Tensor]:
    try:
        return tfr.data.parse_from_example_list(
            tf.constant(lists),
            context_feature_spec=schema.feature_spec("context"),
            example_feature_spec=schema.feature_spec("example"),
            mask_feature_name=MASK,
        )
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())
        raise UserError(f"a warm-up list does not fit the schema: {reason}") from error


def _reason(run: subprocess.CompletedProcess[str]) -> str:
    lines = run.stderr.strip().splitlines()
    telling = [line for line in lines if "Error" in line] or lines
    return telling[-1].strip() if telling else f"exit code {run.returncode}"
