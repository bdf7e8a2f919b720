"""Answers of an export that are wrong in one place: the place is named."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.serving.conftest import WARMUP
from tests.serving.models import SHOP, mixture
from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.serving.export.signatures import DEFAULT, RANK, SCORES
from tfr_moe.serving.export.verify import Arrays, FreshProcess, reference_batches, verify

Answer = dict[str, Arrays]


def item_twice(answer: Answer) -> None:
    answer[RANK]["order"][0, 0] = answer[RANK]["order"][0, 1]


def worst_first(answer: Answer) -> None:
    for values in (answer[RANK]["order"], answer[RANK][SCORES]):
        row = int(np.argmax(answer[RANK]["valid"]))
        values[row] = values[row, ::-1].copy()


def padding_first(answer: Answer) -> None:
    for values in (answer[RANK]["order"], answer[RANK][SCORES]):
        row = int(np.argmin(answer[RANK]["valid"]))
        values[row] = values[row, ::-1].copy()


def one_too_many(answer: Answer) -> None:
    answer[RANK]["valid"][2] += 1


def zero_at_padding(answer: Answer) -> None:
    scores = answer[DEFAULT][SCORES]
    scores[scores == tf.float32.min] = 0.0


def nearly_lowest(answer: Answer) -> None:
    scores = answer[DEFAULT][SCORES]
    scores[scores == tf.float32.min] = np.nextafter(tf.float32.min, np.float32(0))


def no_number(answer: Answer) -> None:
    answer[DEFAULT][SCORES][0, 0] = np.nan


def narrower(answer: Answer) -> None:
    answer[DEFAULT][SCORES] = answer[DEFAULT][SCORES][:, 1:]


def no_experts(answer: Answer) -> None:
    del answer[RANK]["expert_ids"]


def other_expert(answer: Answer) -> None:
    ids = answer[RANK]["expert_ids"]
    ids[:] = ids[:, ::-1].copy()


@pytest.fixture(scope="module")
def answers(models: Path) -> Callable[[], Answer]:
    """What the export answers to the warm-up lists, made again for each call."""
    loaded = tf.saved_model.load(str(models / "mixture" / "1"))

    def answer() -> Answer:
        inputs = tf.constant(WARMUP)
        return {
            signature: {name: np.array(value) for name, value in run(inputs=inputs).items()}
            for signature, run in loaded.signatures.items()
        }

    return answer


def largest_difference(answer: Answer) -> float:
    model, explanation = mixture()
    batches = reference_batches(model, SHOP, WARMUP, explanation)
    return verify([answer], SHOP, batches, 1e-5)


def test_what_the_model_answers_is_right(answers):
    assert largest_difference(answers()) <= 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (item_twice, "warm-up list 0: rank order: "),
        (worst_first, "warm-up list 2: rank sorted scores: "),
        (padding_first, "warm-up list 1: rank sorted scores: "),
        (one_too_many, r"warm-up list 2: rank valid: .* differ by 1 \(allowed: 0\)"),
        (zero_at_padding, "warm-up list 0: serving_default scores: "),
        (nearly_lowest, "warm-up list 0: serving_default scores at padding: "),
        (no_number, r"warm-up list 0: serving_default scores: .* differ by nan"),
        (narrower, r"serving_default scores: the export returns shape \(3, 6\), .*\(3, 7\)"),
        (no_experts, "signature 'rank' returns expert_weights, scores; expected: .*expert_ids"),
        (other_expert, "warm-up list 0: rank expert_weights: "),
    ],
)
def test_a_wrong_answer_is_named(answers, change, message):
    answer = answers()
    change(answer)
    with pytest.raises(UserError, match=message):
        largest_difference(answer)


def child_processes() -> set[str]:
    """IDs of the processes that this one started, until they are waited for."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for started in lists for pid in started.read_text().split()}


def test_a_failure_before_the_export_is_written_leaves_no_process_and_no_file(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = child_processes()
    with pytest.raises(UserError, match="of the model"), FreshProcess():
        assert len(child_processes() - before) == len(list(tmp_path.iterdir())) == 1
        raise UserError("of the model")
    assert child_processes() == before
    assert list(tmp_path.iterdir()) == []
