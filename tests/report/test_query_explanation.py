"""A query taken apart: the parts add up to the score that the model gives."""

import json

import numpy as np
import pytest

from tests.report.conftest import REQUEST
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.errors import UserError
from tfr_moe.evaluation.evaluate import open_run
from tfr_moe.report.query_explanation import explain_request
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.export.parsing import RequestParser


def test_the_parts_are_weight_times_logit_and_add_up_to_the_score(root):
    found = explain_request(root / "moe", root / "request.json")
    loaded = open_run(root / "moe")
    record = RequestEncoder(loaded.schema).encode(REQUEST["context"], REQUEST["items"])
    scores = loaded.model(RequestParser(loaded.schema).lists(tf.constant([record])))[0].numpy()
    assert [item.index for item in found.items] == np.argsort(-scores).tolist()
    chosen = found.gates[""]
    assert sum(choice.weight for choice in chosen) == pytest.approx(1, abs=1e-6)
    for item in found.items:
        assert item.score == pytest.approx(scores[item.index], rel=1e-6)
        assert sum(part.part for part in item.contributions) == pytest.approx(item.score, abs=1e-5)
        assert item.rest == pytest.approx(0, abs=1e-5)
        for part, choice in zip(item.contributions, chosen, strict=True):
            assert (part.expert, part.weight) == (choice.expert, choice.weight)
            assert part.part == pytest.approx(part.weight * part.logit)
        # Four experts, two of them chosen: each is told of once.
        assert sorted([*item.idle, *(part.expert for part in item.contributions)]) == [0, 1, 2, 3]


@pytest.mark.parametrize("run", ["moe", "residual"])
def test_the_choice_follows_from_the_logits_of_the_gate(root, run):
    found = explain_request(root / run, root / "request.json")
    logits = np.array(found.gate_logits)
    best = np.argsort(-logits)[:2]
    assert [choice.expert for choice in found.gates[""]] == best.tolist()
    weights = np.exp(logits[best]) / np.exp(logits[best]).sum()
    assert [choice.weight for choice in found.gates[""]] == pytest.approx(weights, rel=1e-5)


def test_a_model_without_experts_says_so(root):
    found = explain_request(root / "dnn", root / "request.json")
    assert "has no experts" in found.note
    assert (found.gates, found.items[0].contributions) == ({}, [])
    scores = [item.score for item in found.items]
    assert scores == sorted(scores, reverse=True)


def test_the_command_prints_a_table_or_json(root, capsys):
    arguments = ["explain", "--run", str(root / "moe"), "--request", str(root / "request.json")]
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--json"])
    assert caught.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == "adv_hsc_moe"
    with pytest.raises(SystemExit):
        main(arguments)
    shown = capsys.readouterr().out
    best = told["items"][0]
    first = best["contributions"][0]
    assert f"{best['score']:.4f}" in shown
    assert f"#{first['expert']}: {first['weight']:.2f} x {first['logit']:.3f}" in shown
    assert "scores of the inactive experts" in shown


def test_a_request_without_items_is_refused(root, tmp_path):
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps({**REQUEST, "items": []}))
    with pytest.raises(UserError, match="has no items to explain"):
        explain_request(root / "moe", empty)
