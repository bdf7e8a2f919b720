"""Census-Income as arrays: what is split how, and what becomes of each kind of column."""

import gzip

import numpy as np
import pytest

from experiments.mmoe.census_data import encode, find_file, labels, part_of, read_table
from tests.experiments.mmoe.rows import line, write_rows
from tfr_moe.errors import UserError


def placed(part, **values):
    """A line that falls into a part, found by changing its instance weight."""
    for weight in range(10_000):
        text = line(**values, instance_weight=str(weight))
        if part_of(text) == part:
            return text
    raise AssertionError


def table_of(tmp_path, lines):
    path = tmp_path / "rows"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_table(path)


RICH = {"income": " 50000+", "marital_status": "Never married"}
POOR = {"income": "- 50000", "marital_status": "Widowed"}


def test_inputs_by_hand(tmp_path):
    # Training ages 20 and 40: mean 30, deviation 10. Gains 0 and e^2 - 1: logs 0 and 2, mean 1,
    # deviation 1.
    lines = [
        placed(0, age="20", sex="Female", capital_gains="0", **RICH),
        placed(0, age="40", sex="Male", capital_gains=str(np.exp(2) - 1), **POOR),
        *(placed(part, age="50", sex="Other", capital_gains="0", **RICH) for part in (1, 2)),
        *(placed(part, age="30", sex="Male", capital_gains="0", **POOR) for part in (1, 2)),
    ]
    parts = encode(table_of(tmp_path, lines), group=1)
    # 7 numbers, and 32 categories of which only sex has two values among the training rows.
    assert parts["train"].x.shape == (2, 7 + 31 + 2)
    varying = np.flatnonzero(np.ptp(parts["train"].x, axis=0))
    age, female, male, gains = varying
    np.testing.assert_allclose(parts["train"].x[:, age], [-1, 1], atol=1e-6)
    np.testing.assert_allclose(parts["train"].x[:, gains], [-1, 1], atol=1e-6)
    np.testing.assert_array_equal(parts["train"].x[:, female], [1, 0])
    np.testing.assert_array_equal(parts["train"].x[:, male], [0, 1])
    # "Other" never occurs in training: neither of the two.
    np.testing.assert_allclose(parts["test"].x[0, [age, female, male, gains]], [2, 0, 0, -1])
    np.testing.assert_array_equal(parts["test"].y, [[1, 1], [0, 0]])


def test_labels_of_both_groups_by_hand(tmp_path):
    table = table_of(
        tmp_path,
        [
            line(income=" 50000+", marital_status="Divorced", education="Children"),
            line(
                marital_status="Never married", education="Prof school degree (MD DDS DVM LLB JD)"
            ),
        ],
    )
    np.testing.assert_array_equal(labels(table, 1), [[1, 0], [0, 1]])
    np.testing.assert_array_equal(labels(table, 2), [[0, 0], [1, 1]])


def test_labels_and_weight_are_no_inputs(tmp_path):
    path = write_rows(tmp_path / "rows", 300)
    changed = tmp_path / "changed"
    text = path.read_text().replace("50000+", "- 50000")
    changed.write_text(text)
    table, other = read_table(path), read_table(changed)
    other.part[:] = table.part
    other.codes["income"][:] = table.codes["income"]
    other.values["income"][:] = table.values["income"]
    np.testing.assert_array_equal(encode(table, 1)["test"].x, encode(other, 1)["test"].x)
    assert encode(table, 2)["test"].x.shape[1] == encode(table, 1)["test"].x.shape[1]


def test_parts_have_their_shares_and_equal_rows_stay_together():
    parts = np.array([part_of(f"row {number}") for number in range(20_000)])
    np.testing.assert_allclose(np.bincount(parts) / 20_000, [0.6, 0.2, 0.2], atol=0.015)
    assert part_of("row 7") == part_of("row 7\n")


def test_plain_and_gzip_are_the_same(tmp_path):
    path = write_rows(tmp_path / "census-income.test", 50)
    packed = tmp_path / "packed" / "census-income.test.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert find_file(tmp_path) == path
    assert find_file(packed.parent) == packed
    plain, unpacked = read_table(path), read_table(packed)
    np.testing.assert_array_equal(plain.numbers["age"], unpacked.numbers["age"])
    np.testing.assert_array_equal(plain.part, unpacked.part)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1, 2, 3.", "row 2: has 3 values, Census-Income has 42"),
        (line(age="old"), "row 2: age must be a number, got 'old'"),
    ],
)
def test_a_bad_row_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        table_of(tmp_path, [line(), text])


def test_files_that_are_not_there_or_not_readable_are_named(tmp_path):
    with pytest.raises(UserError, match=r"contains none of census-income\.test\.gz"):
        find_file(tmp_path)
    broken = tmp_path / "census-income.test.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"census-income\.test\.gz: cannot be read"):
        read_table(find_file(tmp_path))


def test_too_few_rows_are_refused(tmp_path):
    with pytest.raises(
        UserError, match="too few rows: a task of the train part has a single label value"
    ):
        encode(table_of(tmp_path, [line(), line()]), 1)
