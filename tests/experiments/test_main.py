"""The command that lists and runs the studies, and the pages that tell of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.common.study import STUDIES


def test_without_a_study_it_lists_all(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)
    assert all(len(line) <= 80 for line in lines)


def test_user_errors_end_it_with_2_and_one_line(tmp_path, capsys):
    assert main(["table-9", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: study 'table-9': must be one of adv-hsc-moe-table3, ")
    assert error.count("\n") == 1
    with pytest.raises(SystemExit) as caught:
        main(["census"])
    assert caught.value.code == 2
    assert "--out is required" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["census", "--out", str(tmp_path / "out"), "--processes", "-1"])
    assert "--processes must be >= 1, got -1" in capsys.readouterr().err


@pytest.fixture(scope="module")
def pages(repository: Path) -> dict[Path, str]:
    """The text of each README of the experiments."""
    return {
        path: path.read_text(encoding="utf-8")
        for path in (repository / "experiments").rglob("README.md")
    }


def test_every_study_has_a_command_or_a_row_in_a_readme(pages: dict[Path, str]):
    text = "\n".join(pages.values())
    commands = set(re.findall(r"python -m experiments ([a-z][\w-]+)", text))
    assert commands <= set(STUDIES)
    assert all(f"`{name}`" in text or name in commands for name in STUDIES)


def test_the_links_of_the_readmes_lead_somewhere(pages: dict[Path, str]):
    for path, text in pages.items():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if not target.startswith("https://"):
                assert (path.parent / target).exists(), f"{path}: {target}"
