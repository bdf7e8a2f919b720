"""The sweeps of the paper's studies as Markdown beside the paper's numbers."""

import pytest

from experiments.adv_hsc_moe.sweep_tables import TABLE_VII, TABLE_VIII, sweep_lines
from experiments.adv_hsc_moe.sweeps import gate_inputs
from tests.tiny import SCHEMA
from tests.tuning.sweeps import expert_trials, lambda_trials, trial, write_sweep
from tfr_moe.errors import UserError

GATE_INPUTS = gate_inputs(SCHEMA, {"query": ["clicked"], "user": ["age"]})


def printed(path, trials):
    return "\n".join(sweep_lines(write_sweep(path, trials), GATE_INPUTS))


def test_table_vii_has_the_papers_rows():
    assert GATE_INPUTS == {
        "SC": ["sub"],
        "TC+SC": ["top", "sub"],
        "query+TC+SC": ["clicked", "top", "sub"],
        "user+TC+SC": ["age", "top", "sub"],
        "all": ["all"],
    }
    assert "query+TC+SC" not in gate_inputs(SCHEMA, {"query": [], "user": ["age"]})
    with pytest.raises(UserError, match=r"no context feature name begins with 'query'.*to omit"):
        gate_inputs(SCHEMA, {})
    with pytest.raises(UserError, match="user: 'hat' is not a context feature"):
        gate_inputs(SCHEMA, {"query": [], "user": ["hat"]})


def test_the_paper_s_own_table_viii_agrees_with_itself(tmp_path):
    text = printed(tmp_path / "s", lambda_trials())
    assert "**0.8227 ± 0.0007** (paper 0.8227)" in text
    for row in TABLE_VIII.values():
        for value in row:
            assert f"{value:.4f} ± 0.0007" in text
    assert "- λ₁ = λ₂ = 0.001 is best: yes (gap 0.0000)." in text
    # The paper's means of the rows: 0.816275 for 0.1, 0.820742 for the others.
    assert "0.8163 against 0.8207 in the paper): here by +0.0045." in text
    assert "if they are 0.0015 apart" in text


def test_cells_not_run_are_called_that_and_the_best_elsewhere_is_said(tmp_path):
    trials = [t for t in lambda_trials() if t.trial_id not in ("0000", "0010")]
    text = printed(tmp_path / "a", trials)
    assert text.count("not run") == 2
    assert "0.001 is best" not in text
    trials = [*trials, trial("x", {"hsc_weight": 0.001, "adversarial_weight": 0.001}, [0.81, 0.81])]
    text = printed(tmp_path / "b", trials)
    assert "- λ₁ = λ₂ = 0.001 is best: no (gap 0.0125)." in text


def test_table_vii_of_one_seed_says_nothing_can_be_said(tmp_path):
    trials = [
        trial(name, {"gate_features": GATE_INPUTS[name]}, [paper])
        for name, paper in TABLE_VII.items()
    ]
    text = printed(tmp_path / "s", trials)
    assert "| SC | **0.8212** | 0.8212 |" in text
    assert "- SC is better than all: unknown, one seed (+0.0083)." in text


def test_table_vii_tells_reverse_tie_and_yes_apart(tmp_path):
    values = {"SC": 0.80, "TC+SC": 0.85, "user+TC+SC": 0.8001, "all": 0.70}
    trials = [
        trial(name, {"gate_features": GATE_INPUTS[name]}, [value - 0.001, value + 0.001])
        for name, value in values.items()
    ]
    text = printed(tmp_path / "s", trials)
    assert "- SC is better than TC+SC: no, the reverse (-0.0500)." in text
    assert "user+TC+SC: undecided, within seed variance (-0.0001)." in text
    assert "- SC is better than all: yes (+0.1000)." in text
    assert "| query+TC+SC | not run | 0.8135 |" in text


def test_fig_6_counts_the_pairs_in_which_k_helps(tmp_path):
    text = printed(tmp_path / "s", expert_trials())
    # 0.005 K + 0.0001 number: K from 2 to 4 adds 0.01 and two numbers.
    assert "in 6 of 6 pairs, on average by +0.0102." in text
    assert "- (16, 2, 2) is best: here it is number 9 of 12." in text


def test_another_sweep_is_refused(tmp_path):
    with pytest.raises(UserError, match="varies neither lambdas"):
        sweep_lines(write_sweep(tmp_path / "s", [trial("0", {"dropout": 0.1}, [0.7])]))
