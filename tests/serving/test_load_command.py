"""`tfr-moe load-test` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.conftest import elwc, shop_items
from tests.serving.models import SHOP
from tfr_moe._compat import tf
from tfr_moe.cli import main
from tfr_moe.schema import shard_file
from tfr_moe.serving.dev_server import DevServer


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of three lists."""
    folder = tmp_path / "data"
    folder.mkdir()
    SHOP.save(folder / "schema.json")
    (folder / "statistics.json").write_text("{}")
    path = str(folder / shard_file("test", 0, 1))
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
        for count in (2, 4, 9):
            writer.write(elwc(shop_items(count)))
    return folder


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["load-test", *arguments])
    return ended.value.code


def test_latencies_are_printed_and_written(server: DevServer, data: Path, tmp_path: Path, capsys):
    out = tmp_path / "load.json"
    code = run(
        *("--target", server.target, "--model", "plain", "--data", str(data)),
        *("--rate", "30", "--seconds", "0.5", "--json", str(out)),
    )
    assert code == 0
    assert "p99_9" in capsys.readouterr().out
    report = json.loads(out.read_text())
    assert report["lists"] == {"count": 3, "items_median": 4, "items_max": 9}
    (result,) = report["results"]
    assert (result["rate"], result["errors"]) == (30.0, {})
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["max"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0"], "rate and seconds must be above 0"),
        (["--split", "dev"], "split 'dev' is unknown"),
    ],
)
def test_a_user_error_is_one_line(server: DevServer, data: Path, capsys, arguments, message):
    given = ["--target", server.target, "--model", "plain", "--data", str(data), *arguments]
    assert run(*given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
