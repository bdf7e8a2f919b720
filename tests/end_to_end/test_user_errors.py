"""User errors at the command line: one clear line on stderr, exit code 2."""

import gzip
import json
import socket

import pytest
from rich.console import Console

from tests.tiny import small_config, write_data_folder
from tfr_moe.baselines import train_baseline
from tfr_moe.cli import main

SCHEMA = """
list_id: query
labels: [click]
hierarchy: {child: sub, parent: top}
features:
  - {name: top, scope: context, kind: categorical}
  - {name: sub, scope: context, kind: categorical}
  - {name: price, scope: example, kind: numeric}
"""
ROWS = "query,top,sub,price,click\n" + "".join(
    f"q{q},a,x,{1 + i},{int(i == 0)}\n" for q in range(40) for i in range(3)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("user_errors")
    (base / "schema.yaml").write_text(SCHEMA)
    (base / "rows.csv").write_text(ROWS)
    write_data_folder(base / "data", train=40, validation=20, test=20)
    return base


def user_error(capsys, *arguments):
    """Runs the command, which must exit with 2 and print one line on stderr and nothing else."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert caught.value.code == 2, printed.err
    assert printed.out == ""
    # A build that takes long on a busy machine prints how far it has read.
    besides = ("WARNING", "read: ")
    lines = [line for line in printed.err.splitlines() if not line.startswith(besides)]
    assert len(lines) == 1 and lines[0].startswith("error: "), printed.err
    return lines[0]


def build(capsys, folder, rows, schema=SCHEMA, name="rows.csv", out="out"):
    folder = folder / f"{abs(hash((rows, schema, name)))}"
    folder.mkdir()
    (folder / "schema.yaml").write_text(schema)
    content = rows if isinstance(rows, bytes) else rows.encode()
    (folder / name).write_bytes(content)
    message = user_error(
        capsys, "build", "search-logs", "--input", folder / name,
        "--schema", folder / "schema.yaml", "--out", folder / out,
    )  # fmt: skip
    assert not (folder / out).exists()
    return message


def test_missing_column(capsys, folder):
    message = build(capsys, folder, ROWS.replace("price", "cost"))
    assert "rows.csv" in message and "'price'" in message


def test_unknown_category_feature_in_the_hierarchy(capsys, folder):
    message = build(capsys, folder, ROWS, SCHEMA.replace("child: sub", "child: leaf"))
    assert "hierarchy.child must be a categorical context feature, got 'leaf'" in message
    assert "top, sub" in message


def test_every_row_of_the_wrong_type(capsys, folder):
    message = build(capsys, folder, "query,top,sub,price,click\nq,a,x,cheap,1\nq,a,x,dear,0\n")
    assert "'price'" in message and "expected a number" in message


def test_empty_file(capsys, folder):
    assert "rows.csv" in build(capsys, folder, "")


def test_truncated_gzip(capsys, folder):
    whole = gzip.compress(ROWS.encode())
    message = build(capsys, folder, whole[: len(whole) // 2], name="rows.csv.gz")
    assert "rows.csv.gz" in message


def test_no_such_input(capsys, folder):
    message = user_error(
        capsys, "build", "search-logs", "--input", folder / "none-*.csv",
        "--schema", folder / "schema.yaml", "--out", folder / "out",
    )  # fmt: skip
    assert "none-*.csv" in message


def test_unknown_source(capsys, folder):
    message = user_error(
        capsys, "build", "clicks", "--input", folder / "rows.csv",
        "--schema", folder / "schema.yaml", "--out", folder / "out",
    )  # fmt: skip
    assert "'clicks'" in message and "search-logs" in message


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("num_adversarial=19", "num_adversarial must be <= num_experts - top_k = 18, got 19"),
        ("top_k=21", "top_k must be <= num_experts = 20, got 21"),
        ("lerning_rate=1", "unknown key 'lerning_rate'; did you mean 'learning_rate'?"),
        ("model=bert", "config: model must be one of dnn"),
        ("loss=foo", "loss 'foo' is unknown; allowed: sigmoid_cross_entropy"),
        ("gate_features=[brand]", "gate_features: 'brand' is not a context feature"),
    ],
)
def test_settings_that_cannot_be(capsys, folder, tmp_path, pair, message):
    actual = user_error(
        capsys, "train", "--data", folder / "data", "--out", tmp_path / "run", "--set", pair
    )
    assert message in actual


def test_data_that_is_none(capsys, folder, tmp_path):
    message = user_error(capsys, "train", "--data", tmp_path, "--out", tmp_path / "run")
    assert "schema.json is missing; build the data set first" in message


def test_missing_and_unknown_options(capsys):
    assert "Missing option '--data'" in user_error(capsys, "train", "--out", "x")
    assert "--bogus" in user_error(capsys, "train", "--bogus")
    assert "frobnicate" in user_error(capsys, "frobnicate")


def test_a_run_that_is_none(capsys, folder, tmp_path):
    message = user_error(capsys, "evaluate", "--data", folder / "data", "--run", tmp_path / "none")
    assert "no such run" in message
    message = user_error(capsys, "export", "--run", tmp_path / "none", "--out", tmp_path / "m")
    assert "no such run" in message


def test_a_folder_of_runs_names_them(capsys, tmp_path):
    for name in ("dnn/1", "dnn/2", "moe/1", "ple/1", "star/1", "star/2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("model: dnn\n")
    message = user_error(capsys, "export", "--run", tmp_path, "--out", tmp_path / "models")
    runs = ", ".join(str(tmp_path / "runs" / n) for n in ("dnn/1", "dnn/2", "moe/1", "ple/1"))
    assert f"runs in it: {runs}, {tmp_path / 'runs' / 'star/1'} and 1 more" in message


def test_unknown_metric_policy_and_split(capsys, folder, tmp_path):
    config = small_config({}, model="svm_rank")
    train_baseline(folder / "data", tmp_path / "run", config, Console(quiet=True))
    base = ["evaluate", "--data", folder / "data", "--run", tmp_path / "run"]
    assert "foo" in user_error(capsys, *base, "--metric", "foo")
    assert "policy 'half' is unknown; allowed: skip, zero, one" in user_error(
        capsys, *base, "--policy", "half"
    )
    assert "split 'dev' is unknown" in user_error(capsys, *base, "--split", "dev")


def test_missing_model(capsys, tmp_path):
    message = user_error(capsys, "serve", "--models", tmp_path / "none", "--port", "0")
    assert "none" in message


def request_file(folder, **changes):
    item = {"brand": "brand1", "price": 3.0, "sales": 0.5}
    request = {"context": {"top": "a", "sub": "x"}, "items": [item, item], **changes}
    (folder / "request.json").write_text(json.dumps(request))
    return folder / "request.json"


def rank(capsys, folder, request, port=1):
    return user_error(
        capsys, "rank", "--target", f"localhost:{port}", "--model", "m", "--request", request,
        "--schema", folder / "data" / "schema.json", "--timeout", "2",
    )  # fmt: skip


def test_closed_port(capsys, folder, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    message = rank(capsys, folder, request_file(tmp_path), port)
    assert f"no server at localhost:{port}" in message


def test_requests_that_do_not_fit(capsys, folder, tmp_path):
    assert "none.json: no such file" in rank(capsys, folder, tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    assert "not valid JSON" in rank(capsys, folder, tmp_path / "broken.json")
    item = {"brand": "b", "price": "cheap", "sales": 1}
    assert "'price'" in rank(capsys, folder, request_file(tmp_path, items=[item]))
    item = {"brand": "b", "sales": 1}
    assert "'price'" in rank(capsys, folder, request_file(tmp_path, items=[item]))


def test_options_of_the_generator(capsys, tmp_path):
    out = ["synth", "--out", tmp_path / "logs"]
    assert "category_strength" in user_error(capsys, *out, "--category-strength", "2")
    assert "synth has no such option; available: sessions" in user_error(
        capsys, *out, "--set", "foo=1"
    )
    assert "days: Input should be a valid integer" in user_error(capsys, *out, "--set", "days=many")
