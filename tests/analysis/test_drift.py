"""Drift: the index by hand, silence on samples of the same log, and each kind of broken day."""

import json
import math

import numpy as np
import pytest

from tests.tiny import SCHEMA, lists, write_data_folder
from tfr_moe.analysis.drift import LENGTH, measure_drift, psi
from tfr_moe.analysis.drift_limits import DriftLimits
from tfr_moe.cli import main
from tfr_moe.errors import UserError

SIZES = {"train": 500, "validation": 60, "test": 60}


def day(path, change=None, seeds=100, **sizes):
    """A data set of other lists than that of the reference, whose items and context `change`s."""

    def changed(count, seed):
        for list_id, context, items in lists(count, seed + seeds):
            if change is not None:
                change(context, items)
            yield list_id, context, items

    return write_data_folder(path, **{**SIZES, **sizes}, lists=changed)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return day(tmp_path_factory.mktemp("drift") / "reference", seeds=0)


def above(rows):
    return {(row.column, name) for row in rows if not row.category for name in row.exceeded}


def test_the_index_by_hand():
    # Half an observation is added to each bin: shares 0.5, 0.5 and 0.25, 0.75.
    by_hand = -0.25 * math.log(0.25 / 0.5) + 0.25 * math.log(0.75 / 0.5)
    assert psi(np.array([49.5, 49.5]), np.array([24.5, 74.5])) == pytest.approx(by_hand)
    assert psi(np.array([3, 5, 0]), np.array([3, 5, 0])) == 0


def test_its_noise_is_that_of_the_allowance():
    """The mean over samples is (bins - 1) (1/n + 1/m), and few are above the allowance."""
    rng = np.random.default_rng(0)
    shares = np.full(10, 0.1)
    values = [psi(*rng.multinomial([400, 600], shares)) for _ in range(2000)]
    assert np.mean(values) == pytest.approx(9 * (1 / 400 + 1 / 600), rel=0.05)


def test_means_are_in_the_unit_of_the_data(reference, tmp_path):
    def same_price(context, items):
        for item in items:
            item["price"] = 4.0

    today = day(tmp_path / "day", same_price)
    rows = {(row.column, row.category): row for row in measure_drift(reference, today)}
    price = rows["price", ""]
    # The shift is that of log(1 + price), the means are not.
    assert price.mean == pytest.approx(4.0)
    assert measure_drift(today, reference)[0].reference_mean == rows[LENGTH, ""].mean
    assert rows["brand", ""].mean is None


def test_another_sample_of_the_same_log_has_no_drift(reference, tmp_path):
    rows = measure_drift(reference, day(tmp_path / "day"), DriftLimits(min_lists=50))
    assert not [row for row in rows if row.exceeded]
    assert {row.category for row in rows} == {"", "a", "b"}
    # Few lists have large indices by chance, for which the limits allow.
    few = day(tmp_path / "few", train=20, validation=5, test=5)
    rows = measure_drift(reference, few, DriftLimits(min_lists=5, psi=0.02, mean_shift=0.05))
    assert max(row.psi for row in rows) > 0.2
    assert not [row for row in rows if row.exceeded]


def test_the_same_data_have_no_difference_at_all(reference):
    rows = measure_drift(reference, reference)
    assert {row.psi for row in rows} == {0.0}
    assert {row.mean_shift for row in rows} == {None, 0.0}
    by_name = {row.column: row for row in rows if not row.category}
    assert list(by_name)[:2] == [LENGTH, "purchase"]
    assert by_name["brand"].out_of_vocabulary == 0.0
    assert by_name["clicked"].out_of_vocabulary is None  # hashed
    assert by_name["price"].reference_lists == 620


def test_prices_in_cents_are_found_overall_and_by_category(reference, tmp_path):
    def in_cents(context, items):
        for item in items:
            item["price"] *= 100

    rows = measure_drift(reference, day(tmp_path / "day", in_cents), DriftLimits(min_lists=50))
    assert above(rows) == {("price", "psi"), ("price", "mean_shift")}
    assert {row.category for row in rows if row.exceeded} == {"", "a", "b"}


def broken(context, items):
    context["clicked"] = []
    for number, item in enumerate(items):
        item["brand"] = "new" if number % 2 else item["brand"]
        item["sales"] = math.nan
        item["purchase"] = 1.0


def test_missing_values_unknown_ids_and_labels_are_found(reference, tmp_path):
    rows = measure_drift(reference, day(tmp_path / "day", broken))
    actual = above(rows)
    assert {("clicked", "missing"), ("sales", "missing"), ("brand", "out_of_vocabulary")} <= actual
    assert ("purchase", "psi") in actual
    assert {column for column, _ in actual} == {"clicked", "sales", "brand", "purchase"}
    brand = next(row for row in rows if row.column == "brand")
    assert 0.4 < brand.out_of_vocabulary < 0.5
    assert next(row for row in rows if row.column == "sales").missing == 1.0


def test_limits_by_column_and_what_they_reject(reference, tmp_path):
    day(tmp_path / "day", broken)
    path = tmp_path / "limits.yaml"
    nothing = "{psi: null, mean_shift: null, missing: null, out_of_vocabulary: null}"
    path.write_text(f"columns:\n  sales: {nothing}\n  clicked: {nothing}\n  brand: {{psi: null}}\n")
    limits = DriftLimits.load(path)
    actual = above(measure_drift(reference, tmp_path / "day", limits))
    assert {column for column, _ in actual} == {"brand", "purchase"}
    assert ("brand", "psi") not in actual
    for text, message in [
        ("psy: 1", "psy: unknown key"),
        ("psi: -1", "psi: Input should be greater"),
        ("psi: [", "not valid YAML"),
    ]:
        path.write_text(text)
        with pytest.raises(UserError, match=f"limits.yaml: {message}"):
            DriftLimits.load(path)
    with pytest.raises(UserError, match="column 'prize' is unknown; allowed: list length, purch"):
        measure_drift(reference, reference, DriftLimits(columns={"prize": {"psi": 1}}))


def test_another_schema_is_rejected_by_name(reference, tmp_path):
    def without(name):
        features = [f for f in SCHEMA.as_dict()["features"] if f["name"] != name]
        return type(SCHEMA).model_validate({**SCHEMA.as_dict(), "features": features})

    other = write_data_folder(tmp_path / "other", 4, 2, 2, without("sales"))
    with pytest.raises(UserError, match="has no feature 'sales' of data"):
        measure_drift(reference, other)
    # A feature that only the current data have is no drift.
    assert not above(measure_drift(other, reference))


def test_the_command_ends_with_3_and_fits_80_columns(reference, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["drift", "--reference", str(reference), "--current"]
    for data, code in ((reference, 0), (day(tmp_path / "day", broken), 3)):
        out = tmp_path / "drift.json"
        with pytest.raises(SystemExit) as ended:
            main([*arguments, str(data), "--json", str(out), "--out", str(tmp_path / "drift.html")])
        assert ended.value.code == code
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= 80
        assert any(row["exceeded"] for row in json.loads(out.read_text())) == (code == 3)
        page = (tmp_path / "drift.html").read_text(encoding="utf-8")
        assert ("columns have drifted" in page) == (code == 3) != ("No drift" in page)
