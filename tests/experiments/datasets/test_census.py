import pytest

import experiments.datasets.census  # noqa: F401 (registers the source)
from experiments.mmoe.census_income import COLUMNS
from tests.beam import logs
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.beam.sources import get_source, parse_options
from tfr_moe.errors import UserError

PERSON = dict.fromkeys(COLUMNS, "x") | {
    "age": "38",
    "wage_per_hour": "0",
    "capital_gains": "0",
    "capital_losses": "0",
    "dividends_from_stocks": "0",
    "num_persons_worked_for_employer": "4",
    "weeks_worked_in_year": "12",
    "instance_weight": "1032.38",
    "education": "High school graduate",
    "marital_status": "Never married",
    "income": "- 50000",
}


def line(**changes):
    return ", ".join({**PERSON, **changes}.values()) + ".\n"


def written(path, *texts):
    path.write_text("".join(texts))
    return path


def test_labels_follow_the_rules_of_the_tasks_and_are_no_features(tmp_path):
    path = written(
        tmp_path / "census.data",
        line(),
        line(income="50000+", marital_status="Divorced"),
        line(education="Bachelors degree(BA AB BS)"),
    )
    rows, _, _ = rows_of(tmp_path, "census", path, None)
    assert [row.values["person"] for row in rows] == [f"census.data-{n}" for n in (1, 2, 3)]
    assert [(r.values["income_label"], r.values["marital_status_label"]) for r in rows] == [
        (0, 1),
        (1, 0),
        (0, 1),
    ]
    rows, _, _ = rows_of(tmp_path, "census", path, None, "group=2")
    assert [row.values["education_label"] for row in rows] == [0, 0, 1]
    for group, hidden in ((1, "income"), (2, "education")):
        source = get_source("census")
        schema = source.schema(
            str(path), parse_options(source.options, [f"group={group}"], "census")
        )
        names = {feature.name for feature in schema.features}
        assert len(names) == 39
        assert not names & {hidden, "marital_status", "instance_weight"}
        assert schema.labels == (f"{hidden}_label", "marital_status_label")


def test_a_line_of_another_width_is_rejected_with_its_place(tmp_path):
    path = written(tmp_path / "census.data", line(), "1, 2, 3.\n", line())
    options = BuildOptions(
        "census", str(path), None, tmp_path / "data", split="hash", seed=2, max_lost=0.4
    )
    manifest = build(options)
    assert manifest["rows"] == {"read": 3, "written": 2, "rejected": 1, "cut": 0}
    assert manifest["rejects"] == {"has 3 values, Census-Income has 42": 1}


@pytest.mark.parametrize(
    "settings, schema, message",
    [
        (["group=3"], None, "source census: group: Input should be less than or equal to 2"),
        ([], "income", "schema: column 'income' does not belong to group 1; available: age"),
    ],
)
def test_what_cant_work_is_refused(tmp_path, settings, schema, message):
    path = written(tmp_path / "census.data", line())
    if schema:
        feature = {"name": schema, "scope": "example", "kind": "categorical"}
        schema = {"list_id": "person", "labels": ["income_label"], "features": [feature]}
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, "census", path, schema, *settings)
    assert message in str(caught.value)


def test_another_file_is_refused_by_its_first_line(tmp_path):
    with pytest.raises(UserError, match=r"other.data, line 1: has 1 values"):
        rows_of(tmp_path, "census", written(tmp_path / "other.data", "age\n"), None)


@pytest.mark.slow
def test_the_real_file_has_the_documented_counts(tmp_path, real_data):
    path = real_data / "census_income" / "census-income.test.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    manifest = build(BuildOptions("census", str(path), None, tmp_path / "data"))
    assert manifest["rows"] == {"read": 99762, "written": 99762, "rejected": 0, "cut": 0}
    assert sum(split["lists"] for split in manifest["splits"].values()) == 99762
    # People with more than 50,000, as the set's own documentation counts them.
    assert sum(split["positives"] for split in manifest["splits"].values()) == 6186
    assert len(list(logs.records(tmp_path / "data", "test"))) > 9000
