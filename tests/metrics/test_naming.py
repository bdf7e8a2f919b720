import pytest

from tfr_moe.errors import UserError
from tfr_moe.metrics import naming
from tfr_moe.metrics.naming import MetricName


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("session_auc", MetricName("session_auc")),
        ("session_auc_shown_10", MetricName("session_auc", shown=10)),
        ("ndcg_shown_3", MetricName("ndcg", shown=3)),
        ("ndcg_5", MetricName("ndcg", ranked=5)),
        ("mrr", MetricName("mrr")),
        ("map_10", MetricName("map", ranked=10)),
        ("precision_5", MetricName("precision", ranked=5)),
    ],
)
def test_a_name_is_a_family_and_a_cutoff(name, expected):
    assert naming.parse(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "precision",
        "ranked_ndcg_5",
        "session_auc_5",
        "ndcg_shown",
        "auc",
        "ndcg_0",
        "ndcg_01",
        "mrr_",
        "ndcg_k",
        "mrr[_k]",
        "",
    ],
)
def test_the_error_for_another_name_lists_the_forms(name):
    with pytest.raises(UserError) as caught:
        naming.parse(name)
    assert str(caught.value) == (
        f"metric {name!r} is unknown; allowed: session_auc, session_auc_shown_k, ndcg, "
        "ndcg_k, ndcg_shown_k, mrr[_k], map[_k], precision_k, prm_precision_k, prm_map_k, "
        "ips_dcg[_k], where k is an integer >= 1"
    )


def test_every_default_name_parses_and_has_no_slash():
    for name in naming.DEFAULT_NAMES:
        assert naming.parse(name).family in name
        assert "/" not in name


def test_metrics_of_shown_positions_need_positions():
    naming.check_columns(["ndcg_10", "ndcg_shown_10"], "rank", None)
    with pytest.raises(UserError, match=r"'ndcg_shown_10' is undefined .* has no `position`"):
        naming.check_columns(["ndcg_10", "ndcg_shown_10"], None, "propensity")


def test_metrics_of_weighted_clicks_need_weights():
    naming.check_columns(["ndcg_10", "ips_dcg_10"], None, "propensity")
    with pytest.raises(UserError, match=r"'ips_dcg_10' is undefined .* has no `weight`"):
        naming.check_columns(["ndcg_10", "ips_dcg_10"], "rank", None)


def test_the_forms_of_the_summaries_are_the_allowed_ones():
    for form in naming.SUMMARIES:
        names = {form.replace("[_k]", cutoff).replace("_k", "_7") for cutoff in ("", "_7")}
        for name in names:
            parsed = naming.parse(name)
            assert (parsed.shown or parsed.ranked) == (7 if name.endswith("_7") else None)
    assert len(naming.FORMS) == 14


def test_an_unknown_metric_has_no_columns():
    with pytest.raises(UserError, match="metric 'auc' is unknown"):
        naming.check_columns(["ndcg", "auc"], "rank", "propensity")
