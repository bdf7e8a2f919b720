"""Columns, labels and lines of Census-Income, on rows written by hand and on the real file."""

import gzip

import pytest

from experiments.mmoe import census_income as census

LINE = (
    "38, Private, 6, 36, Bachelors degree(BA AB BS), 0, Not in universe, Never married, "
    "Manufacturing-durable goods, Machine operators assmblrs & inspctrs, White, All other, Female, "
    "Not in universe, Not in universe, Full-time schedules, 0, 1902, 12, Single, Not in universe, "
    "Not in universe, Householder, Householder, 1032.38, ?, ?, ?, "
    "Not in universe under 1 year old, ?, 4, Not in universe, Mexico, Italy, United-States, "
    "Native- Born in the United States, 0, Not in universe, 2, 52, 95,  50000+.\n"
)


def test_every_column_is_numeric_categorical_or_the_weight():
    parts = (*census.NUMERIC_COLUMNS, *census.CATEGORICAL_COLUMNS, census.WEIGHT_COLUMN)
    assert sorted(parts) == sorted(census.COLUMNS)
    assert len(set(census.COLUMNS)) == 42


def test_a_line_gives_each_value_to_its_column():
    row = census.parse_line(LINE)
    expected = {
        "age": "38",
        "marital_status": "Never married",
        "capital_losses": "1902",
        "dividends_from_stocks": "12",
        "instance_weight": "1032.38",
        "country_of_birth_father": "Mexico",
        "country_of_birth_mother": "Italy",
        "country_of_birth_self": "United-States",
        "year": "95",
        "income": "50000+",
    }
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("column", "value", "task", "expected"),
    [
        ("income", "50000+", "income", 1),
        ("income", "- 50000", "income", 0),
        ("marital_status", "Never married", "marital_status", 1),
        ("marital_status", "Divorced", "marital_status", 0),
        ("marital_status", "Married-spouse absent", "marital_status", 0),
        ("education", "High school graduate", "education", 0),
        ("education", "Some college but no degree", "education", 1),
        ("education", "Doctorate degree(PhD EdD)", "education", 1),
        ("education", "Children", "education", 0),
    ],
)
def test_labels_by_rule(column, value, task, expected):
    row = {**census.parse_line(LINE), column: value}
    assert census.label(row, task) == expected


def test_a_group_hides_its_own_labels_and_the_weight_only():
    everything = set(census.COLUMNS)
    assert everything - set(census.input_columns(1)) == {
        "income",
        "marital_status",
        "instance_weight",
    }
    assert everything - set(census.input_columns(2)) == {
        "education",
        "marital_status",
        "instance_weight",
    }


def test_a_short_line_is_refused_with_both_counts():
    with pytest.raises(ValueError, match="has 2 values, Census-Income has 42"):
        census.parse_line("38, Private.\n")


def test_the_real_file_has_the_positives_counted_by_hand(real_data):
    path = real_data / "census_income" / "census-income.test.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [census.parse_line(line) for line in lines]
    # zcat FILE | grep -c '50000+' and grep -c ', Never married,'; education by awk on column 5.
    counts = {task: sum(census.label(row, task) for row in rows) for task in census.TASKS}
    assert counts == {"income": 6186, "marital_status": 43143, "education": 33410}
    assert {row["year"] for row in rows} == {"94", "95"}
