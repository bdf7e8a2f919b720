"""The worked example of CONTRIBUTING.md runs: its files are modules, and its model trains."""

from __future__ import annotations

import json
import sys
import types

import pytest

from tests.conformance import test_lists
from tests.test_docs import blocks_of
from tests.tiny import write_data_folder
from tfr_moe import layers, scorers
from tfr_moe._compat import tf
from tfr_moe.config import models
from tfr_moe.errors import UserError


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example(page, tmp_path_factory):
    """The names of each block, which ran where the page puts it."""
    folder = tmp_path_factory.mktemp("contributing")
    write_data_folder(folder / "data")
    layer, scorer, row, *others = blocks_of(page)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for parent, (line, source) in ((layers, layer), (scorers, scorer)):
            module = types.ModuleType(f"{parent.__name__}.factorization")
            patch.setitem(sys.modules, module.__name__, module)
            run(line, source, vars(module))
        run(*row, {**vars(models)})  # adds to MODELS
        spaces = [run(line, source, {}) for line, source in others]
        yield {name: value for space in spaces for name, value in space.items()}
    models.MODELS.pop("fm", None)


def run(line, source, namespace):
    # Blank lines in front, so that a traceback points into the page.
    exec(compile("\n" * (line - 1) + source, "CONTRIBUTING.md", "exec"), namespace)
    return namespace


def test_the_page_names_at_most_six_files(page):
    table = page.split("## Add a model")[1].split("\n\n")[2]
    assert 3 <= len(table.splitlines()) - 2 <= 6


def test_the_model_of_the_example_trains(example):
    from tfr_moe import losses
    from tfr_moe.data import ElwcDatasetBuilder

    model, config = example["model"], example["config"]
    dataset = ElwcDatasetBuilder(example["folder"], config.data.batch_size, seed=1)
    model.compile(tf.keras.optimizers.Adam(0.01), losses.get("sigmoid_cross_entropy"))
    before = model.evaluate(dataset.build_valid_dataset(), verbose=0)
    model.fit(dataset.build_train_dataset(), epochs=1, verbose=0)
    assert model.evaluate(dataset.build_valid_dataset(), verbose=0) < before


def test_the_settings_of_the_example_are_those_of_its_row(example):
    assert example["config"].features.embedding_dim == 8
    with pytest.raises(UserError, match="top_k is not used by model 'fm'"):
        example["make_config"]({"model": "fm", "top_k": 3})


def test_the_test_of_the_example_passes(example):
    example["test_a_pair_of_values_scores_by_the_product_of_its_factors"]()


@pytest.mark.parametrize("row", [0, 1], ids=["layer", "scorer"])
def test_the_rows_of_the_example_pass_the_conformance_tests(example, row):
    case = example["ROWS"][row]
    tests = (
        test_lists.test_padded_positions_may_hold_anything,
        test_lists.test_more_padding_changes_nothing,
        test_lists.test_what_stands_at_padded_positions_reaches_no_gradient,
        test_lists.test_permuted_items_permute_the_outputs,
    )
    for test in tests:
        test(case)
    subject = case.make()
    json.dumps(subject.get_config())
    assert type(subject).from_config(subject.get_config()).get_config() == subject.get_config()
