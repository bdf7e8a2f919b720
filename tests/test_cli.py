"""How the command ends."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from tfr_moe import __version__, demo
from tfr_moe.cli import main


def interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_ctrl_c_ends_it_with_a_line_and_the_code_that_shells_give(monkeypatch, capsys):
    monkeypatch.setattr(demo, "run_demo", interrupt)
    with pytest.raises(SystemExit) as caught:
        main(["demo"])
    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_what_ends_well_ends_with_0_and_without_another_word(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr() == (f"tfr-moe {__version__}\n", "")


def test_a_demo_below_a_file_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--out", str(tmp_path / "file" / "demo")])
    assert caught.value.code == 2
    said = f"error: {tmp_path / 'file' / 'demo'}: cannot be made (Not a directory)\n"
    assert capsys.readouterr() == ("", said)
