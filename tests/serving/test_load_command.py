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
from tfr_moe.serving.server import RankingServer


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


def test_two_models_are_compared(server: RankingServer, data: Path, tmp_path: Path, capsys):
    out, image = tmp_path / "load.json", tmp_path / "load.png"
    code = run(
        *("--target", server.target, "--model", "plain", "--against-model", "mixture"),
        *("--data", str(data), "--rate", "30", "--seconds", "0.5", "--rounds", "1"),
        *("--json", str(out), "--plot", str(image)),
    )
    assert code == 0
    shown = capsys.readouterr().out
    assert "p99_9" in shown
    assert f"mixture at {server.target} / plain at {server.target}" in shown.replace("\n", " ")
    found = json.loads(out.read_text())
    assert found["lists"] == {"count": 3, "items_median": 4, "items_max": 9}
    assert found["results"][0]["errors"] == {}
    assert found["ratios"][0]["latency"]["p50"]["median"] > 0
    assert image.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against-model", "plain"], "name the target itself"),
        (["--signature", "regress"], "must be rank or serving_default"),
        (["--rate", "0"], "rate and seconds must be above 0"),
        (["--split", "dev"], "split 'dev' is unknown"),
        (["--tls-key", "key.pem"], "certificate and key belong together"),
    ],
)
def test_a_mistake_is_one_line(server: RankingServer, data: Path, capsys, arguments, message):
    given = ["--target", server.target, "--model", "plain", "--data", str(data), *arguments]
    assert run(*given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
