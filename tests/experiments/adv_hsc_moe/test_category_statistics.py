import json
from collections import Counter

import numpy as np
import pytest

from experiments.adv_hsc_moe.category_statistics import (
    analyse,
    concentration,
    correct_pairs,
    main,
)
from tests.beam import logs
from tests.report.pages import Page
from tfr_moe.errors import UserError


def test_correct_pairs_counts_strictly_greater_pairs_of_positive_and_negative():
    features = np.array([[1.0], [2.0], [2.0], [0.0]])
    # Positives 1 and 2, negatives 2 and 0: right are (1, 0) and (2, 0) of four pairs.
    assert correct_pairs(features, np.array([1.0, 3.0, 0.0, 0.0])).tolist() == [0.5]


def test_a_list_of_one_kind_has_no_pairs():
    assert correct_pairs(np.ones([3, 2]), np.zeros(3)) is None
    assert correct_pairs(np.ones([3, 2]), np.ones(3)) is None


def test_concentration_takes_the_largest_brands_up_to_the_share():
    assert concentration(Counter(a=80, b=15, c=5)) == {"brands": 1, "of": 3, "proportion": 1 / 3}
    assert concentration(Counter(a=79, b=16, c=5))["brands"] == 2
    assert concentration(Counter(a=1))["proportion"] == 1.0


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("categories")
    rows = logs.log_rows(40)
    for row in rows:
        # In Books the cheap item is bought, in Foods the dear one.
        bought = 1 if row["top"] == "Books" else 3
        row["purchase"] = int(row["position"] == bought)
    logs.write_csv(folder / "log.csv", rows)
    logs.run(folder, folder / "log.csv")
    return folder / "data"


def test_importance_and_brands_of_a_data_set_are_those_counted_by_hand(data, tmp_path):
    actual = analyse(data, tmp_path / "out", brand="item")
    assert actual == json.loads((tmp_path / "out" / "categories.json").read_text())
    top = actual["feature_importance"]["top"]
    # Prices and scores rise with the position.
    assert top["Books"] == {"lists": 16, "price": 0.0, "score": 0.0}
    assert top["Foods"] == {"lists": 16, "price": 1.0, "score": 1.0}
    assert set(actual["feature_importance"]["sub"]) == {
        "Books > c1",
        "Books > c3",
        "Foods > c0",
        "Foods > c2",
    }
    bought = Counter(
        f"i{(s + (0 if s % 2 else 2)) % 7}" for s in range(32) if s % 2
    )  # training sessions of Books show item s first
    assert actual["brand_concentration"]["top"]["Books"] == concentration(bought)


def test_the_page_says_what_differs_and_its_maps_are_pictures_too(data, tmp_path):
    analyse(data, tmp_path / "out", brand="item")
    page = Page((tmp_path / "out" / "categories.html").read_text(encoding="utf-8"))
    assert "price differs most: it orders 0 % to 100 % of the pairs." in page.text
    assert page.headings == ["Top categories", "Sub-categories"]
    pictures = sorted((tmp_path / "out").glob("*.svg"))
    assert len(pictures) == 4
    assert "Foods" in pictures[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"brand": "colour"}, "brand 'colour': not an ID of the items; available: item"),
        ({"split": "dev"}, "split must be one of train, validation, test, got 'dev'"),
    ],
)
def test_invalid_arguments_are_rejected(data, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        analyse(data, tmp_path / "out", **options)
    with pytest.raises(UserError, match="not a data set, it has no manifest"):
        analyse(tmp_path, tmp_path / "out")


def test_the_command_prints_counts_and_reports_user_errors(data, tmp_path, capsys):
    arguments = ["--data", str(data), "--out", str(tmp_path / "out"), "--brand", "item"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.endswith("2 top, 4 sub-categories\n")
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
