import pytest

from tfr_moe import metric_names
from tfr_moe.metric_names import MetricName


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("session_auc", MetricName("session_auc")),
        ("session_auc_10", MetricName("session_auc", shown=10)),
        ("ndcg_3", MetricName("ndcg", shown=3)),
        ("ranked_ndcg_5", MetricName("ranked_ndcg", ranked=5)),
        ("mrr", MetricName("mrr")),
        ("map_10", MetricName("map", ranked=10)),
        ("precision_5", MetricName("precision", ranked=5)),
    ],
)
def test_a_name_is_a_family_and_a_cutoff(name, expected):
    assert metric_names.parse(name) == expected


@pytest.mark.parametrize(
    "name", ["precision", "ranked_ndcg", "auc", "ndcg_0", "ndcg_01", "mrr_", ""]
)
def test_what_is_no_name_is_not_parsed(name):
    assert metric_names.parse(name) is None


def test_every_default_name_parses_and_has_no_slash():
    for name in metric_names.DEFAULT_NAMES:
        assert metric_names.parse(name) is not None
        assert "/" not in name


def test_the_error_lists_the_forms_and_the_extra_names():
    message = str(metric_names.unknown("accuracy", ("arp",)))
    assert message == (
        "metric 'accuracy': unknown; there are session_auc[_k], ndcg[_k], ranked_ndcg_k, mrr[_k], "
        "map[_k], precision_k, prm_precision_k, prm_map_k, arp, where k is a whole number from 1 up"
    )
