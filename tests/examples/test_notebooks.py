"""The notebooks run, each in an empty folder, and have their outputs."""

import json
import re
import runpy
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(path):
    """What the cells print, apart from numbers and the advice, which depends on run times."""
    printed = ["".join(o["text"]) for cell in cells(path) for o in cell["outputs"]]
    return [re.sub(r"[-+]?\d[\d.]*|Ship .*|\s+", " ", text).split() for text in printed]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored_and_the_page_names_the_notebook(path, repository):
    numbers = [cell["execution_count"] for cell in cells(path)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert any(cell["outputs"] for cell in cells(path))
    assert f"{path.name}" in (repository / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_cells_run_in_order_and_print_the_stored_outputs(
    path, repository, tmp_path, monkeypatch
):
    run = runpy.run_path(str(repository / "scripts" / "run_notebook.py"))["main"]
    again = Path(shutil.copy(path, tmp_path))
    monkeypatch.chdir(tmp_path)
    run(again, write=True)
    assert outputs(again) == outputs(path)
