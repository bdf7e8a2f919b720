"""The client's operations step by step, with answers written by hand."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from tests.serving.conftest import CONTEXT, shop_items
from tests.serving.models import SHOP
from tfr_moe.errors import UserError
from tfr_moe.serving.answers import RequestError
from tfr_moe.serving.asking import Asking
from tfr_moe.serving.messages import PredictResponse
from tfr_moe.serving.render import to_json
from tfr_moe.serving.request import RequestEncoder
from tfr_moe.serving.tensors import fill_tensor, to_array

ITEMS = shop_items(8)
WHOLE = len(RequestEncoder(SHOP).encode(CONTEXT, ITEMS))


def asking(limit: int = 1 << 20, split: bool = False, **pinned: Any) -> Asking:
    return Asking("shop", SHOP, pinned.get("version"), pinned.get("label"), limit, split)


def ranked(scores: list[float], version: int = 3) -> Any:
    """What the signature `rank` answers to items with these scores."""
    response = PredictResponse()
    response.model_spec.version.value = version
    values = np.array([scores], np.float32)
    order = np.argsort(-values, kind="stable").astype(np.int32)
    fill_tensor(response.outputs["order"], order)
    fill_tensor(response.outputs["scores"], np.take_along_axis(values, order, axis=1))
    fill_tensor(response.outputs["valid"], np.array([len(scores)], np.int32))
    return response


def result(steps: Any, answers: list[Any]) -> Any:
    with pytest.raises(StopIteration) as done:
        steps.send(answers)
    return done.value.value


def sizes(calls: list[Any]) -> list[int]:
    return [len(to_array(call.message.inputs["inputs"])[0]) for call in calls]


def test_padding_of_a_wider_batch_is_stripped():
    steps = asking().rank(CONTEXT, ITEMS[:2])
    next(steps)
    answer = ranked([1.0, 2.0, -3e38])
    answer.outputs["valid"].int_val[0] = 2
    assert [(item.index, item.score) for item in result(steps, [answer]).items] == [(1, 2), (0, 1)]


def test_the_experts_of_each_task_come_heaviest_first():
    """Of one task the gate chose for the list, of the other for each item."""
    steps = asking().rank(CONTEXT, ITEMS[:2])
    next(steps)
    answer = ranked([2.0, 1.0])
    for task, ids, weights in (
        ("click", [[3, 1]], [[0.25, 0.75]]),
        ("buy", [[[0, 2], [4, 5]]], [[[0.9, 0.1], [0.4, 0.6]]]),
    ):
        fill_tensor(answer.outputs[f"expert_ids_{task}"], np.array(ids, np.int32))
        fill_tensor(answer.outputs[f"expert_weights_{task}"], np.array(weights, np.float32))
    found = result(steps, [answer])
    assert found.experts == ()
    assert {t: [e.id for e in of] for t, of in found.task_experts.items()} == {"click": [1, 3]}
    assert [[e.id for e in item.task_experts["buy"]] for item in found.items] == [[0, 2], [5, 4]]
    data = to_json(found, ITEMS[:2])
    assert data["task_experts"]["click"][0] == {"id": 1, "weight": 0.75}
    assert [e["id"] for e in data["items"][1]["task_experts"]["buy"]] == [5, 4]


@pytest.mark.parametrize(
    ("pinned", "version", "label"),
    [({}, 0, ""), ({"version": 7}, 7, ""), ({"label": "canary"}, 0, "canary")],
)
def test_a_request_is_addressed_to_the_version_or_label(pinned, version, label):
    (call,) = next(asking(**pinned).rank(CONTEXT, ITEMS))
    spec = call.message.model_spec
    assert (spec.name, spec.version.value, spec.version_label) == ("shop", version, label)
    assert spec.HasField("version") == bool(version)


def test_version_and_label_exclude_each_other():
    with pytest.raises(UserError, match="a version or a label, not both"):
        asking(version=1, label="stable")


def test_a_list_beyond_the_limit_is_refused_with_size_and_limit():
    with pytest.raises(
        UserError, match=r"a list of 8 items takes [\d,]+ bytes.*limit of 500 bytes"
    ):
        next(asking(limit=500).rank(CONTEXT, ITEMS))


def test_an_item_beyond_the_limit_can_not_be_split():
    with pytest.raises(UserError, match="item of 1 items takes"):
        next(asking(limit=100, split=True).rank(CONTEXT, ITEMS))


def test_a_split_list_is_ranked_as_a_whole_by_one_version():
    scores = [0.5, 4.0, 0.25, 3.0, 1.0, 4.0, -1.0, 2.0]
    steps = asking(limit=WHOLE, split=True).rank(CONTEXT, ITEMS)  # the envelope does not fit
    first = next(steps)
    assert len(first) == 1
    rest = steps.send([ranked(scores[:4])])
    assert [call.message.model_spec.version.value for call in rest] == [3, 3]
    assert sizes(rest)[0] < sizes(first)[0]  # the first item alone
    found = result(steps, [ranked(scores[:1]), ranked(scores[4:])])
    assert [item.index for item in found.items] == [1, 5, 3, 7, 4, 0, 2, 6]
    assert found.version == 3


def test_predict_of_a_split_list_keeps_the_order():
    def scored(values: list[float]) -> Any:
        response = PredictResponse()
        fill_tensor(response.outputs["scores"], np.array([values], np.float32))
        return response

    steps = asking(limit=WHOLE, split=True).predict(CONTEXT, ITEMS)
    next(steps)
    steps.send([scored([1, 2, 3, 4, -9])])
    assert result(steps, [scored([1]), scored([5, 6, 7, 8])]) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_model_that_compares_items_is_not_split():
    steps = asking(limit=WHOLE, split=True).rank(CONTEXT, ITEMS)
    next(steps)
    steps.send([ranked([0.5, 1.0, 2.0, 3.0])])
    with pytest.raises(UserError, match="compares the items of a list"):
        steps.send([ranked([0.0]), ranked([1.0, 1.0, 1.0, 1.0])])


def test_a_split_list_begins_anew_when_its_version_goes():
    steps = asking(limit=WHOLE, split=True).rank(CONTEXT, ITEMS)
    next(steps)
    steps.send([ranked([1, 2, 3, 4], version=3)])
    again = steps.throw(RequestError("gone", grpc.StatusCode.NOT_FOUND))
    assert len(again) == 1
    assert not again[0].message.model_spec.HasField("version")
    rest = steps.send([ranked([1, 2, 3, 4], version=4)])
    assert rest[0].message.model_spec.version.value == 4
    assert result(steps, [ranked([1], 4), ranked([0, 0, 0, 0], 4)]).version == 4


def test_an_answer_without_what_is_needed_is_an_error_with_names():
    steps = asking().rank(CONTEXT, ITEMS)
    next(steps)
    answer = ranked([1.0])
    del answer.outputs["valid"]
    with pytest.raises(RequestError, match="no output 'valid'; it has: order, scores"):
        steps.send([answer])
