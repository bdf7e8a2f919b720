"""What a sweep comes to: order, ties within the seeds' noise, what is open or failed."""

import math

import pytest

from tests.tuning.sweeps import failed, lambda_trials, trial, write_sweep
from tfr_moe.errors import UserError
from tfr_moe.tuning.results import SeedNoise, pooled_noise, summarize_sweep, values_of, varying


def test_noise_pools_the_squares_within_trials():
    trials = [trial("0", {"a": 1}, [0.70, 0.72]), trial("1", {"a": 2}, [0.80, 0.84])]
    # Deviations 0.01, 0.01, 0.02, 0.02 from the two means; two degrees of freedom.
    noise = pooled_noise(trials, "session_auc")
    assert noise.degrees == 2
    assert noise.std == pytest.approx(math.sqrt((2 * 0.01**2 + 2 * 0.02**2) / 2))


def test_least_difference_is_the_t_quantile_times_the_error_of_a_difference():
    # t(0.975, 2) = 4.302653; sqrt(1/2 + 1/2) = 1.
    assert SeedNoise(0.01, 2).least_difference(2, 2) == pytest.approx(0.04302653, rel=1e-6)
    assert SeedNoise(0.01, 2).least_difference(1, 1) == pytest.approx(math.sqrt(2) * 0.04302653)


def test_one_seed_per_trial_gives_no_estimate_of_noise(tmp_path):
    write_sweep(tmp_path / "s", [trial("0", {"a": 1}, [0.7]), trial("1", {"a": 2}, [0.8])])
    summary = summarize_sweep(tmp_path / "s")
    assert summary.noise is None
    assert [entry.tied for entry in summary.entries] == [None, None]
    assert math.isnan(summary.best.std)


def test_trials_are_ranked_by_mean_and_the_earlier_of_equals_leads(tmp_path):
    trials = [
        trial("0", {"a": 1}, [0.70, 0.72]),
        trial("1", {"a": 2}, [0.80, 0.82]),
        trial("2", {"a": 3}, [0.81, 0.81]),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    assert [entry.trial.trial_id for entry in summary.entries] == ["1", "2", "0"]
    assert [entry.rank for entry in summary.entries] == [1, 2, 3]
    assert summary.entries[2].gap == pytest.approx(0.10)


def test_a_loss_is_best_where_it_is_least(tmp_path):
    trials = [
        trial("0", {"a": 1}, [0.5], metric="loss", direction="min"),
        trial("1", {"a": 2}, [0.4], metric="loss", direction="min"),
    ]
    path = write_sweep(tmp_path / "s", trials, metric="loss", direction="min")
    summary = summarize_sweep(path)
    assert summary.best.trial.trial_id == "1"
    assert summary.entries[1].gap == pytest.approx(0.1)


def test_what_is_closer_than_the_seeds_noise_counts_as_tied(tmp_path):
    # Table VIII with seeds 0.0005 on both sides: pooled deviation 0.0007071, 16 degrees of freedom,
    # least difference 2.1199 x 0.0007071 = 0.0014990. The best, 0.8227, is followed by 0.8225,
    # 0.8223, 0.8221, 0.8221, 0.8217, 0.8217, 0.8214 and 0.8212, which is 0.0015 away.
    summary = summarize_sweep(write_sweep(tmp_path / "s", lambda_trials()))
    assert summary.noise.degrees == 16
    assert summary.noise.least_difference(2, 2) == pytest.approx(0.0014990, abs=1e-7)
    assert sum(entry.tied for entry in summary.entries) == 8
    assert not summary.entries[8].tied


def test_failed_and_open_trials_are_listed_separately(tmp_path):
    path = write_sweep(
        tmp_path / "s", [trial("0", {"a": 1}, [0.7]), failed("1", {"a": 2}, "out of memory")]
    )
    (path / "work" / "2" / "seed-1").mkdir(parents=True)
    (path / "work" / "0").mkdir()  # Hyperband keeps the training of trials that have ended
    (path / "trials" / "3").mkdir()  # its record was corrupt and is set aside
    summary = summarize_sweep(path)
    assert [t.error for t in summary.failed] == ["out of memory"]
    assert summary.open == ("2", "3")
    assert len(summary.entries) == 1


def test_a_completed_trial_without_a_number_counts_as_failed(tmp_path):
    path = write_sweep(tmp_path / "s", [trial("0", {"a": 1}, [math.nan])])
    summary = summarize_sweep(path)
    assert not summary.entries
    assert [t.trial_id for t in summary.failed] == ["0"]


def test_what_varies_is_what_differs_or_is_missing_somewhere():
    trials = [
        trial("0", {"a": 1, "b": [8, 4], "c": 2}, [0.7]),
        trial("1", {"a": 1, "b": [8, 8], "c": 2, "d": 5}, [0.7]),
    ]
    assert varying(trials) == ("b", "d")


def test_numbers_are_sorted_and_other_values_keep_their_order(tmp_path):
    trials = [
        trial("0", {"a": 10, "b": "SC"}, [0.7]),
        trial("1", {"a": 9, "b": "TC+SC"}, [0.9]),
        trial("2", {"a": 100, "b": "all"}, [0.8]),
    ]
    summary = summarize_sweep(write_sweep(tmp_path / "s", trials))
    assert values_of(summary, "a") == [9, 10, 100]
    assert values_of(summary, "b") == ["SC", "TC+SC", "all"]


@pytest.mark.parametrize("text", ["", "data: x", "objective: {name: ndcg, direction: up}", "- a"])
def test_a_sweep_without_an_objective_is_rejected_in_one_line(tmp_path, text):
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(UserError, match=r"sweep\.yaml is not valid") as caught:
        summarize_sweep(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_sweep_is_rejected(tmp_path):
    with pytest.raises(UserError, match="no such sweep"):
        summarize_sweep(tmp_path / "nowhere")
