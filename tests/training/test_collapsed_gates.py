"""Collapsed gates: what is found, and which settings the warning names."""

import io

import numpy as np
import pytest
from rich.console import Console

from tfr_moe.config import make_config
from tfr_moe.scorers.gate_maps import GateMap
from tfr_moe.training.callbacks import gate_warnings
from tfr_moe.training.collapsed_gates import collapsed_gates, same_experts, warn_of_gates

TOPS = np.array(["shoes", "shoes", "books"], object)
SUBS = np.array(["boots", "heels", "novels"], object)


def report_of(experts, num_experts=4):
    """The report of three lists of two items with these experts, of equal weight."""
    ids = np.array(experts)
    gate = GateMap(num_experts)
    weights = np.full(ids.shape, 1 / ids.shape[1])
    gate.add(ids, weights, np.ones([3, 2], bool), TOPS, SUBS)
    return gate.report()


def test_a_gate_with_the_same_experts_for_all_top_categories_has_collapsed():
    assert same_experts(report_of([[2, 0], [0, 2], [2, 0]])) == [0, 2]
    assert same_experts(report_of([[2, 0], [0, 2], [2, 1]])) == []


def test_a_gate_over_all_experts_or_without_categories_cannot_collapse():
    assert same_experts(report_of([[1, 0], [0, 1], [1, 0]], num_experts=2)) == []
    gate = GateMap(2)
    gate.add(np.array([[0]]), np.ones([1, 1]), np.ones([1, 2], bool))
    assert same_experts(gate.report()) == []


def test_the_messages_name_experts_and_settings():
    reports = {"": report_of([[2, 0], [0, 2], [2, 0]])}
    collapsed, dead = collapsed_gates(reports, make_config({"preset": "paper"}))
    cure = "set importance_weight=0.01 and gate_learning_rate_multiplier=5, or use fewer experts"
    assert collapsed == (
        f"the gate has collapsed: all top categories have the same experts 0, 2; {cure}"
    )
    assert dead == (
        "2 of 4 experts get less than 1 % of an equal share of the weight of the gate: 1, 3; "
        f"{cure}"
    )
    [first, _] = collapsed_gates(reports, make_config({}))
    assert first.endswith("set importance_weight=0.1, or use fewer experts")


def test_more_experts_than_the_top_categories_have_use_for_are_named():
    reports = {"": report_of([[0, 1], [0, 1], [2, 3]], num_experts=6)}
    [dead] = collapsed_gates(reports, make_config({"num_experts": 6, "top_k": 2}))
    assert dead == (
        "2 of 6 experts get less than 1 % of an equal share of the weight of the gate: 4, 5; "
        "2 top categories with 2 experts each: set num_experts=4 or less"
    )


def test_a_gate_in_order_and_one_that_reads_other_features_have_no_message():
    assert collapsed_gates({"": report_of([[0, 1], [2, 3], [1, 2]])}, make_config({})) == []
    other = make_config({"gate_features": ["user"]})
    same = {"": report_of([[0, 1], [0, 1], [0, 1]], num_experts=3)}
    [dead] = collapsed_gates(same, other)
    assert dead.startswith("1 of 3 experts")


@pytest.mark.parametrize("model", ["mmoe", "category_mmoe"])
def test_the_gate_of_a_task_is_named_and_only_settings_of_the_model(model):
    [*_, dead] = collapsed_gates(
        {"click": report_of([[2, 0], [0, 2], [2, 0]])}, make_config({"model": model})
    )
    assert "the gate of click: 1, 3" in dead and "importance_weight" not in dead


def test_training_and_the_report_name_the_same_remedy():
    for model in ("adv_hsc_moe", "mmoe", "category_mmoe"):
        config = make_config({"model": model, "num_experts": 4})
        task = "" if model == "adv_hsc_moe" else "click"
        [*_, dead] = collapsed_gates({task: report_of([[2, 0], [0, 2], [2, 0]])}, config)
        suffix = f"_{task}" if task else ""
        logs = {f"gate_entropy{suffix}": 0.1, f"dead_experts{suffix}": 2.0}
        assert gate_warnings(logs, config)[f"dead{suffix}"] == dead.replace(": 1, 3", "")


def test_an_expert_of_a_domain_without_lists_is_no_problem():
    # Experts 0, 1 and 2 are those of three domains, of which 0 has no lists; 3 and 4 are shared.
    config = make_config({"model": "ple", "num_domain_experts": 1, "num_shared_experts": 2})
    used = report_of([[1, 3, 4], [1, 3, 4], [2, 3, 4]], num_experts=5)
    assert used.dead == [0]
    assert collapsed_gates({"": used}, config) == []
    [dead] = collapsed_gates({"": report_of([[1, 3], [1, 3], [2, 3]], num_experts=5)}, config)
    assert dead.startswith("1 of 5 experts gets less than 1 % of an equal share of the weight")
    assert "of the gate: 4;" in dead


def test_a_gate_over_all_experts_collapses_to_one():
    gate = GateMap(4)
    weights = np.tile([0.97, 0.01, 0.01, 0.01], (3, 1))
    gate.add(np.tile(np.arange(4), (3, 1)), weights, np.ones([3, 2], bool), TOPS, SUBS)
    config = make_config({"model": "mmoe", "num_experts": 4})
    [message] = collapsed_gates({"click": gate.report()}, config)
    assert message.startswith("the gate of click has collapsed: one expert gets 97% of its weight;")


def test_each_message_is_a_line():
    out = io.StringIO()
    reports = {"": report_of([[2, 0], [0, 2], [2, 0]])}
    warn_of_gates(reports, make_config({}), Console(file=out, width=40))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 and all(
        line.startswith("warning: on validation lists,") for line in lines
    )
