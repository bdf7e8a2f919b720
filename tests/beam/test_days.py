"""Days that are added one by one make the data set that one build of all of them makes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.beam import logs
from tfr_moe.beam import BuildOptions, build
from tfr_moe.cli import main
from tfr_moe.data import DataFolder, join_days
from tfr_moe.errors import UserError
from tfr_moe.schema import SPLITS, description_files
from tfr_moe.utils.digests import check_files
from tfr_moe.utils.io import working_directory

DAYS = ["2024-06-01", "2024-06-02", "2024-06-03"]
ROWS = logs.log_rows(90)
SCORE = {"missing": "median", "ratio": "price", "transform": "quantile"}
CHANGES = {
    # Sums, limits, medians, quantiles over days: i1 has fewer than 40 in each day, more in all.
    "features": [
        {**feature, **{"item": {"min_count": 30}, "score": SCORE}.get(name, {})}
        for feature in logs.SCHEMA["features"]
        for name in [feature["name"]]
    ]
}


def rows_of(day, price=1.0):
    """A third of the lists; each day has an item and a sub-category that the others have not."""
    rows = [dict(row) for row in ROWS[DAYS.index(day) * 90 :][:90]]
    for row in rows:
        row["price"] *= price
        if row["position"] == 3:
            row["item"] = f"only-{day}"
        if row["sub"] == "c3":
            row["sub"] = f"new-{day}"
    return rows


def append(folder, day, rows=None, out="days", **options):
    path = logs.write_csv(folder / f"{day}.csv", rows or rows_of(day))
    return logs.run(folder, path, out, schema=CHANGES, append=day, split="hash", **options)[0]


def one_build(folder, rows, out="one"):
    path = logs.write_csv(folder / f"{out}.csv", rows)
    return logs.run(folder, path, out, schema=CHANGES, split="hash")


def assert_same(folder, expected):
    """Vocabularies and statistics are equal byte for byte, and so are the lists of each split."""
    for name in description_files(expected):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
    for split in SPLITS:
        lists = sorted(logs.records(folder, split))
        assert lists == sorted(logs.records(expected, split)) and lists


@pytest.fixture(scope="module")
def three_days(tmp_path_factory):
    folder = tmp_path_factory.mktemp("days")
    for day in (DAYS[2], DAYS[0], DAYS[1]):
        append(folder, day)
    return folder


def test_three_days_are_one_build_of_their_rows(three_days, tmp_path):
    manifest = join_days(three_days / "days", tmp_path / "joined", "3d")
    built, expected = one_build(tmp_path, [row for day in DAYS for row in rows_of(day)])
    assert_same(tmp_path / "joined", expected)
    assert (expected / "vocabulary" / "item.txt").read_text().count("only-") == 0
    assert (expected / "vocabulary" / "sub.txt").read_text().count("new-") == 3
    for split in SPLITS:
        for number in ("lists", "items", "positives"):
            assert manifest["splits"][split][number] == built["splits"][split][number]
    assert manifest["rows"] == built["rows"]
    fingerprints = {d: DataFolder(three_days / "days/days" / d).fingerprint for d in DAYS}
    assert manifest["days"] == fingerprints
    data = DataFolder(tmp_path / "joined")
    check_files(data.path, data.manifest["files"], "data", data.manifest["files"])
    assert data.num_lists("train") == sum(
        DataFolder(three_days / "days/days" / day).num_lists("train") for day in DAYS
    )


def test_records_are_links_and_a_window_has_its_days_alone(three_days, tmp_path):
    join_days(three_days / "days", tmp_path / "one", "2d", until=DAYS[1])
    _, expected = one_build(tmp_path, [row for day in DAYS[:2] for row in rows_of(day)], "expected")
    assert_same(tmp_path / "one", expected)
    assert all(path.stat().st_nlink > 1 for path in (tmp_path / "one").glob("*.gz"))


def test_a_day_that_is_built_again_replaces_itself(tmp_path):
    changed = rows_of(DAYS[1], price=3.0)[:60]
    for day in DAYS:
        append(tmp_path, day)
    join_days(tmp_path / "days", tmp_path / "before", "9d")
    before = logs.tree(tmp_path / "before")
    append(tmp_path, DAYS[1], changed)
    join_days(tmp_path / "days", tmp_path / "after", "9d")
    _, expected = one_build(tmp_path, rows_of(DAYS[0]) + changed + rows_of(DAYS[2]))
    assert_same(tmp_path / "after", expected)
    assert logs.tree(tmp_path / "before") == before
    assert DataFolder(tmp_path / "after").fingerprint != DataFolder(tmp_path / "before").fingerprint


def test_a_day_that_is_killed_leaves_the_days_before(tmp_path):
    append(tmp_path, DAYS[0])
    before = logs.tree(tmp_path / "days")
    log = logs.write_csv(tmp_path / "killed.csv", rows_of(DAYS[1]))
    command = [sys.executable, "-m", "tfr_moe.cli", "build", "--input", log, "--append", DAYS[1]]
    command += ["--schema", tmp_path / "schema.yaml", "--out", tmp_path / "days"]
    partial = tmp_path / "days" / "days" / f".{DAYS[1]}.partial"
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not partial.exists():
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert partial.exists()
    assert list(join_days(tmp_path / "days", tmp_path / "first", "9d")["days"]) == DAYS[:1]
    append(tmp_path, DAYS[1])
    assert not partial.exists()
    tree = logs.tree(tmp_path / "days")
    assert {name: content for name, content in tree.items() if DAYS[0] in name} == before
    join_days(tmp_path / "days", tmp_path / "two", "9d")
    _, expected = one_build(tmp_path, rows_of(DAYS[0]) + rows_of(DAYS[1]))
    assert_same(tmp_path / "two", expected)


def test_a_day_between_its_two_renames_is_missed(tmp_path, three_days):
    for day in DAYS[:2]:
        append(tmp_path, day)
    days = tmp_path / "days" / "days"
    (days / DAYS[0]).rename(days / f".{DAYS[0]}.old")
    with pytest.raises(UserError, match=f"replacement of {DAYS[0]} was interrupted"):
        join_days(tmp_path / "days", tmp_path / "joined", "9d")
    append(tmp_path, DAYS[0])
    assert len(join_days(tmp_path / "days", tmp_path / "joined", "9d")["days"]) == 2


def test_another_schema_is_rejected_before_anything_is_read(three_days, tmp_path):
    features = [{k: v for k, v in f.items() if k != "transform"} for f in CHANGES["features"]]
    (tmp_path / "schema.yaml").write_text(json.dumps({**logs.SCHEMA, "features": features}))
    options = BuildOptions(
        "search-logs",
        str(three_days / f"{DAYS[0]}.csv"),
        tmp_path / "schema.yaml",
        three_days / "days",
        append="2024-06-04",
    )
    with pytest.raises(UserError, match="schema of 2024-06-04: feature 'price' differs from that"):
        build(options)
    assert not (three_days / "days" / "days" / "2024-06-04").exists()


def test_a_second_build_of_a_day_at_the_same_time_is_rejected(three_days):
    folder = three_days / "days" / "days" / DAYS[0]
    with (
        working_directory(folder.with_name("2024-06-09")),
        pytest.raises(UserError, match="2024-06-09: is being written by another process"),
    ):
        append(three_days, "2024-06-09", rows_of(DAYS[0]))
    assert not folder.with_name("2024-06-09").exists()


def test_a_folder_without_days_is_named(tmp_path):
    with pytest.raises(UserError, match=f"data {tmp_path}: has no days; build one first"):
        join_days(tmp_path, tmp_path / "joined", "9d")


@pytest.mark.parametrize(
    ("window", "until", "message"),
    [
        ("30", None, "window: must be a number of days such as 30d, got '30'"),
        ("0d", None, "window: must be a number of days such as 30d, got '0d'"),
        ("3d", "2024-05-31", "until: there is no day 2024-05-31; the newest is 2024-06-03"),
        ("3d", "june", "until: must be a day YYYY-MM-DD, got 'june'"),
    ],
)
def test_a_window_without_days_is_rejected(three_days, tmp_path, window, until, message):
    with pytest.raises(UserError, match=message):
        join_days(three_days / "days", tmp_path / "joined", window, until)


def test_a_day_is_not_replaced_by_a_window_of_it(three_days):
    day = three_days / "days" / "days" / DAYS[1]
    with pytest.raises(UserError, match=rf"out .*{DAYS[1]}: contains the input"):
        join_days(three_days / "days", day, "3d", overwrite=True)


def test_a_data_set_by_days_is_named_where_one_data_set_is_needed(three_days, tmp_path):
    with pytest.raises(UserError, match="is by days; join days to a data set first"):
        DataFolder(three_days / "days")
    _, one = one_build(tmp_path, rows_of(DAYS[0]))
    with pytest.raises(UserError, match="is a data set, not a data set by days"):
        append(tmp_path, DAYS[0], out="one")
    assert one.is_dir()


def test_check_reads_every_day(three_days, tmp_path, capsys):
    copy = tmp_path / "data"
    shutil.copytree(three_days / "days", copy)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(copy)])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[::2]] == [str(copy / "days" / d) for d in DAYS]
    shard = next((copy / "days" / DAYS[1]).glob("train-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(SystemExit) as ended:
        main(["check", str(copy)])
    message = capsys.readouterr().err
    assert ended.value.code == 2 and DAYS[1] in message and shard.name in message
    moments = copy / "days" / DAYS[0] / "counts" / "moments.json"
    moments.write_bytes(moments.read_bytes()[:-1] + b" ")
    with pytest.raises(SystemExit):
        main(["check", str(copy)])
    assert "counts/moments.json has been changed" in capsys.readouterr().err
