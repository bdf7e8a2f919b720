"""Parallel coordinates and learning curves: where values stand, and what a mean is over."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.tuning.sweeps import expert_trials, gate_trials, lambda_trials, trial, write_sweep
from tfr_moe.tuning import lines
from tfr_moe.tuning.summary import summarize_sweep

SVG = "{http://www.w3.org/2000/svg}"


def summary_of(tmp_path, trials):
    return summarize_sweep(write_sweep(tmp_path / "s", trials))


def hints(drawing):
    return [title.text for title in ElementTree.fromstring(drawing).iter(f"{SVG}title")]


def test_numbers_over_powers_of_ten_stand_by_their_logarithm():
    place, ticks = lines.positions([1e-4, 1e-1, 1e-3])
    assert [place(v) for v in (1e-4, 1e-3, 1e-2, 1e-1)] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [text for _, text in ticks] == ["0.0001", "0.001", "0.1"]


def test_numbers_close_together_stand_by_their_size():
    place, _ = lines.positions([2, 4, 10])
    assert place(4) == pytest.approx(0.25)


def test_words_and_missing_values_stand_evenly_in_the_order_given():
    place, ticks = lines.positions(["b", None, "a"])
    assert [(round(at, 2), text) for at, text in ticks] == [(0.0, "–"), (0.5, "b"), (1.0, "a")]
    assert place("a") == 1.0


def test_many_numbers_get_five_round_marks():
    _, ticks = lines.positions([0.001 * 1.3**i for i in range(20)])
    assert len(ticks) == 5
    assert ticks[0][1] == "0.001"
    assert all(len(text) <= 6 for _, text in ticks[1:-1])


def test_a_single_value_stands_in_the_middle():
    assert lines.positions([3])[0](3) == 0.5


def test_each_trial_is_a_line_and_the_best_is_drawn_last(tmp_path):
    drawing = lines.parallel_coordinates(summary_of(tmp_path, expert_trials()))
    found = hints(drawing)
    assert len(found) == 12
    assert found[-1].startswith("trial 0011, number 1:")


def test_one_varying_name_needs_no_parallel_coordinates(tmp_path):
    assert lines.parallel_coordinates(summary_of(tmp_path, gate_trials())) is None


def test_a_mean_of_curves_is_over_the_seeds_still_training():
    one = trial("0", {}, [0.7, 0.9])
    short = replace(one.seeds[0], history=one.seeds[0].history[:2])
    one = replace(one, seeds=[short, one.seeds[1]])
    # Values rise by 0.02 an epoch to 0.7 and 0.9 in the third.
    epochs, values = lines.mean_history(one, "val_session_auc")
    assert epochs == [1, 2, 3]
    assert values == pytest.approx([0.76, 0.78, 0.90])


def test_curves_show_the_best_five_by_name_and_all_by_hint(tmp_path):
    summary = summary_of(tmp_path, lambda_trials())
    drawing = lines.learning_curves(summary)
    assert len(hints(drawing)) == 16
    shown = "".join(ElementTree.fromstring(drawing).itertext())
    assert "1.  λ₁ = 0.001, λ₂ = 0.001" in shown
    assert "5.  " in shown and "6.  " not in shown
    assert lines.loss_curves(summary) is not None


def test_a_diverged_trial_does_not_flatten_the_others(tmp_path):
    trials = [trial(f"{i:02d}", {"a": i}, [0.8 + i / 1000]) for i in range(30)]
    wild = trial("99", {"a": 99}, [-50.0])
    with_wild = lines.learning_curves(summary_of(tmp_path / "wild", [*trials, wild]))
    assert "−50" not in "".join(ElementTree.fromstring(with_wild).itertext())
    assert "−40" not in "".join(ElementTree.fromstring(with_wild).itertext())


def test_one_epoch_makes_no_curve(tmp_path):
    one = trial("0", {"a": 1}, [0.7])
    short = replace(one, seeds=[replace(one.seeds[0], history=one.seeds[0].history[:1])])
    assert lines.learning_curves(summary_of(tmp_path, [short])) is None
