"""Runs an export in a fresh Python process that has TensorFlow and nothing of ours.

What loads there loads in TensorFlow Serving.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfr_moe.errors import UserError

_SCRIPT = """
import sys
import numpy as np
import tensorflow as tf

folder, calls, answers = sys.argv[1:]
loaded = tf.saved_model.load(folder)
asked = np.load(calls, allow_pickle=True)
out = {}
for number, signature in enumerate(asked["signatures"]):
    prefix = f"{number}:"
    inputs = {k[len(prefix):]: asked[k] for k in asked.files if k.startswith(prefix)}
    inputs = {k: tf.constant(v.tolist() if v.dtype == object else v, shape=v.shape,
                             dtype=tf.string if v.dtype == object else None) for k, v in inputs.items()}
    for name, value in loaded.signatures[str(signature)](**inputs).items():
        out[prefix + name] = value.numpy()
foreign = sorted(name for name in sys.modules if name.split(".")[0] in ("tfr_moe", "tensorflow_ranking"))
if foreign:
    sys.exit("imported " + ", ".join(foreign))
np.savez(answers, **out)
"""


class Call(NamedTuple):
    """A signature and its inputs by name; strings are arrays of bytes objects."""

    signature: str
    inputs: Mapping[str, np.ndarray]


def answers_in_fresh_process(folder: Path, calls: Sequence[Call]) -> list[dict[str, np.ndarray]]:
    """What a SavedModel answers, loaded by a process that has only TensorFlow.

    The process runs on the CPU, so that it needs no memory of a GPU that this one holds.

    Args:
        folder: a SavedModel.
        calls: what to ask it.

    Returns:
        For each call its outputs by name.

    Raises:
        UserError: if the model can't be loaded or run there, or needs our code for it.
    """
    asked = {f"{i}:{k}": v for i, call in enumerate(calls) for k, v in call.inputs.items()}
    with tempfile.TemporaryDirectory() as scratch:
        questions, answers = Path(scratch) / "calls.npz", Path(scratch) / "answers.npz"
        # The pickle is of our own making and is read by our own script alone.
        np.savez(questions, signatures=np.array([c.signature for c in calls]), **asked)
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, *map(str, (folder.resolve(), questions, answers))],
            # From an empty folder, or Python would find packages in the current one.
            cwd=scratch,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        if run.returncode:
            raise UserError(f"the export does not run in a fresh process: {_reason(run)}")
        found: list[dict[str, np.ndarray]] = [{} for _ in calls]
        with np.load(answers, allow_pickle=True) as saved:
            for key in saved.files:
                number, _, name = key.partition(":")
                found[int(number)][name] = saved[key]
    return found


def _reason(run: subprocess.CompletedProcess[str]) -> str:
    lines = run.stderr.strip().splitlines()
    telling = [line for line in lines if "Error" in line] or lines
    return telling[-1].strip() if telling else f"exit code {run.returncode}"
