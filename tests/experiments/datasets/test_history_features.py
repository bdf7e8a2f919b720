import random
import re

import pytest

from experiments.datasets.interactions.history_features import (
    Event,
    History,
    HistoryFeature,
    load_features,
)
from tfr_moe.errors import UserError

DAY = 86400.0


def make(*features):
    return History([HistoryFeature(**feature) for feature in features])


def event(time, *values, line=0):
    return Event(time, (0, line, 0), values)


def values(made, events, time, *row):
    return made.values(made.prepare(events), time, row)


def test_events_of_the_same_time_are_not_counted():
    made = make({"name": "n", "kind": "count", "by": "item"})
    events = [event(10.0), event(20.0), event(20.0), event(30.0)]
    assert values(made, events, 20.0) == (1,)
    assert values(made, events, 20.5) == (3,)
    assert values(made, events, 10.0) == (0,)


def test_the_window_has_its_beginning_and_not_its_end():
    made = make({"name": "n", "kind": "count", "by": "item", "window_days": 1})
    events = [event(0.0), event(1.0), event(DAY)]
    assert values(made, events, DAY) == (2,)
    assert values(made, events, DAY + 1.0) == (2,)
    assert values(made, events, DAY + 1.5) == (1,)


def test_a_rate_counts_labels_above_0_and_is_drawn_to_its_prior():
    ctr = {"name": "ctr", "kind": "rate", "by": "item", "of": "click"}
    events = [event(1.0, "1"), event(2.0, 0), event(3.0, 2)]
    assert values(make(ctr), events, 4.0) == (pytest.approx(2 / 3),)
    assert values(make(ctr), events, 1.0) == (None,)
    smoothed = make({**ctr, "prior": 10, "prior_mean": 0.1})
    assert values(smoothed, events, 4.0) == (pytest.approx((2 + 10 * 0.1) / (3 + 10)),)
    assert values(smoothed, [], 4.0) == (pytest.approx(0.1),)


def test_a_mean_takes_the_values_that_are_there():
    made = make({"name": "price", "kind": "mean", "by": "item", "of": "paid"})
    assert values(made, [event(1.0, 2.0), event(2.0, None), event(3.0, "5")], 9.0) == (3.5,)


def test_days_since_the_latest_event():
    made = make({"name": "d", "kind": "days_since", "by": "item"})
    assert values(made, [event(0.0), event(DAY)], 3 * DAY) == (2.0,)
    assert values(made, [event(DAY)], DAY) == (None,)


def test_a_history_is_capped_and_in_the_order_of_time_then_of_row():
    history = {"name": "h", "kind": "history", "by": "user", "of": "item", "length": 3}
    events = [event(3.0, "c"), event(1.0, "a"), event(2.0, "b2", line=2), event(2.0, "b1", line=1)]
    assert values(make(history), events, 3.0) == (["a", "b1", "b2"],)
    assert values(make(history), events, 9.0) == (["b1", "b2", "c"],)
    again = [event(float(t), item) for t, item in enumerate("abcab")]
    assert values(make({**history, "distinct": True}), again, 9.0) == (["c", "a", "b"],)


def test_where_keeps_the_events_with_one_of_the_values():
    made = make({"name": "n", "kind": "count", "by": "item", "where": {"stars": [4, "5"]}})
    assert values(made, [event(1.0, s) for s in (5.0, "4", 3, "5.0", None)], 9.0) == (2,)


def test_further_columns_of_by_part_the_events():
    made = make(
        {"name": "mine", "kind": "count", "by": ["user", "brand"]},
        {"name": "all", "kind": "count", "by": "user"},
    )
    assert made.row_columns == ["brand"]
    events = [event(1.0, "x"), event(2.0, "y"), event(3.0, "x")]
    assert values(made, events, 9.0, "x") == (2, 3)
    assert values(made, events, 9.0, "z") == (0, 3)


def test_features_equal_a_slow_recount():
    chance = random.Random(3)
    spec = [
        {"name": "n", "kind": "count", "by": ["k", "b"], "window_days": 3},
        {"name": "m", "kind": "mean", "by": "k", "of": "x", "prior": 2, "prior_mean": 1.5},
        {"name": "h", "kind": "history", "by": ["k", "b"], "of": "b", "length": 2},
    ]
    made = make(*spec)
    assert made.event_columns == ["b", "x"]
    events = [
        event(chance.randrange(20) * DAY / 2, chance.choice("pq"), chance.random(), line=line)
        for line in range(60)
    ]
    lines = made.prepare(events)
    for time in [i * DAY / 4 for i in range(45)]:
        for brand in "pqr":
            before = sorted(e for e in events if e.time < time)
            same = [e for e in before if e.values[0] == brand]
            count = sum(e.time >= time - 3 * DAY for e in same)
            mean = (sum(e.values[1] for e in before) + 3.0) / (len(before) + 2)
            actual = made.values(lines, time, [brand])
            assert actual == (count, pytest.approx(mean), [e.values[0] for e in same][-2:])


@pytest.mark.parametrize(
    "text, message",
    [
        ("- {name: a, kind: count}", "by: Field required"),
        ("- {name: a, kind: sum, by: item}", "kind: Input should be 'count'"),
        ("- {name: a, kind: rate, by: item}", "kind 'rate' needs `of`"),
        ("- {name: a, kind: count, by: item, of: x}", "kind 'count' does not have `of`"),
        ("- {name: a, kind: count, by: item, prior: 1}", "prior does not apply to kind 'count'"),
        ("- {name: a, kind: mean, by: item, of: item}", "'item', the first column of `by`"),
        ("- {name: a, kind: count, by: item, widow: 3}", "unknown key"),
        (
            "- {name: a, kind: count, by: i}\n- {name: a, kind: count, by: j}",
            "'a' occurs twice",
        ),
        ("{", "not valid YAML"),
    ],
)
def test_a_file_that_is_inconsistent_is_rejected_in_one_line(tmp_path, text, message):
    path = tmp_path / "features.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_features(str(path))
    assert str(path) in str(caught.value) and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_with_a_delay_an_event_counts_only_that_long_after_its_time():
    made = make({"name": "n", "kind": "count", "by": "item", "delay_days": 1, "window_days": 3})
    events = [event(0.0), event(DAY), event(2 * DAY)]
    assert values(made, events, DAY) == (0,)
    assert values(made, events, DAY + 1) == (1,)
    assert values(made, events, 3.5 * DAY) == (2,)


def test_the_features_of_the_page_hold_together(repository, tmp_path):
    page = (repository / "experiments/datasets/README.md").read_text(encoding="utf-8")
    (examples,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "features.yaml").write_text(examples)
    assert len(load_features(str(tmp_path / "features.yaml"))) == 6
    keys = {
        key
        for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
        for key in re.findall("`(.*?)`", row)
    }
    assert set(HistoryFeature.model_fields) - {"of"} <= keys
