"""The Python of README.md runs, its commands exist, and so do the files that pages link to."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from typer.main import get_command

from tests.test_docs import blocks_of
from tests.tiny import shop_log, write_data_folder
from tfr_moe._compat import tf
from tfr_moe.config import MODELS

PAGES = ("README.md", "CONTRIBUTING.md", "BUILD_NOTES.md", "docs/*.md", "experiments/**/*.md")


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(page, tmp_path_factory):
    """All names that the page defines, after its blocks ran in turn."""
    folder = tmp_path_factory.mktemp("readme")
    write_data_folder(folder / "data")
    shop_log(600, seed=1).to_csv(folder / "log.csv", index=False)
    namespace = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line, source in blocks_of(page):
            exec(compile("\n" * (line - 1) + source, "README.md", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", ["README.md", "clients", "daily", "position_bias", "serving"])
def test_a_page_defines_the_names_that_its_python_uses(name, repository):
    page = repository / (name if "." in name else f"docs/{name}.md")
    source = "".join(block for _, block in blocks_of(page.read_text(encoding="utf-8")))
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "-"]
    result = subprocess.run(ruff, input=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert source


def test_the_layer_learns_in_a_keras_model(names):
    rng = np.random.default_rng(1)
    sub = rng.integers(0, 20, 64)
    valid = np.arange(10) < rng.integers(1, 11, [64, 1])
    batch = {
        "items": rng.normal(size=[64, 10, 8]).astype(np.float32),
        "sub": sub,
        "top": sub // 4,
        "valid": valid,
    }
    labels = np.where(valid, (batch["items"][..., 0] > 1).astype(np.float32), -1.0)
    history = names["model"].fit(batch, labels, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert (names["model"].predict(batch, verbose=0)[~valid] == 0).all()


def test_the_ranker_learns_from_the_log(names):
    metrics = names["shop"].evaluate(names["log"], ["session_auc", "ndcg_10"])
    assert metrics["session_auc"] > 0.6  # 0.5 is chance; the cheapest item is bought
    assert len(names["shop"].predict(names["log"])) == len(names["log"])


def test_the_scorer_trains_on_a_data_set(names):
    assert names["ranker"].history.history["val_session_auc"][0] > 0
    assert isinstance(names["ranker"], tf.keras.Model)


def test_the_table_names_every_model(page):
    table = page.split("## Models")[1].split("\n\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(MODELS)


def test_every_command_of_the_page_exists(page):
    from tfr_moe.cli.app import app

    used = set(re.findall(r"tfr-moe ([a-z][a-z-]*)", page))
    assert used and used <= set(get_command(app).commands)


def commands_of(text):
    """The words of each `tfr-moe` command in blocks of code, unless `...` cuts it."""
    for block in re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            result = re.search(r"^[^#]*?\btfr-moe ([a-z].*)$", line)
            if result and not re.search(r" \.\.\.|\$|--help", line):
                words = shlex.split(result[1], comments=True)
                yield list(itertools.takewhile(lambda word: word not in ("|", ">", "&&"), words))


@pytest.mark.parametrize("pattern", ["README.md", "docs/*.md"])
def test_the_parser_takes_every_command_of_a_page(repository, pattern):
    from tfr_moe.cli.app import app

    group, number = get_command(app), 0
    for path in sorted(repository.glob(pattern)):
        for words in commands_of(path.read_text(encoding="utf-8")):
            number += 1
            # Raises for an unknown option, a missing one or a value of another type.
            with group.make_context("tfr-moe", list(words)) as context:
                name, command, rest = group.resolve_command(context, list(words))
                command.make_context(name, rest, parent=context)
    assert number > 10


@pytest.mark.parametrize("pattern", PAGES)
def test_links_lead_to_files(repository, pattern):
    dead = []
    for path in sorted(repository.glob(pattern)):
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (path.parent / target).exists():
                dead.append(f"{path.relative_to(repository)}: {target}")
    assert not dead, "\n".join(dead)
