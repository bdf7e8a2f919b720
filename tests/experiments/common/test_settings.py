"""Sizes and settings of a study, and that a folder holds one study only."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from experiments.common.settings import StudySettings, choose, open_folder
from experiments.common.tables import select_rows
from tfr_moe.errors import UserError
from tfr_moe.utils import read_json


class Sized(StudySettings):
    runs: int = 3
    steps: int = 10
    rates: tuple[float, ...] = (0.1,)

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "paper": {"runs": 200}}
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})


def test_a_pair_wins_over_what_is_given_and_that_over_the_size():
    assert choose(Sized, "paper").runs == 200
    assert choose(Sized, "paper", runs=7).runs == 7
    assert choose(Sized, "paper", ["runs=5", "rates=[0.1, 0.2]"], runs=7).runs == 5
    assert choose(Sized, "paper", runs=None).runs == 200


@pytest.mark.parametrize(
    ("size", "pairs", "message"),
    [
        ("huge", [], "--size 'huge': must be one of default, paper"),
        ("default", ["stops=3"], "unknown key; must be one of runs, steps, rates"),
        ("default", ["steps=many"], "settings: steps: Input should be a valid integer"),
        ("default", ["steps"], "must be key=value"),
    ],
)
def test_mistakes_are_named(size, pairs, message):
    with pytest.raises(UserError, match=message):
        choose(Sized, size, pairs)


def test_a_folder_keeps_its_settings_but_for_what_may_grow(tmp_path):
    out = tmp_path / "study"
    open_folder(out, "one", Sized())
    open_folder(out, "one", Sized(runs=9))
    assert read_json(out / "study.json")["settings"]["runs"] == 9
    (out / "runs.jsonl").touch()
    with pytest.raises(UserError, match=r"started with steps=10, now it is 20; give another --out"):
        open_folder(out, "one", Sized(steps=20))
    with pytest.raises(UserError, match="belongs to the study 'one'"):
        open_folder(out, "two", Sized())


def test_settings_of_a_study_that_wrote_nothing_can_be_corrected(tmp_path):
    open_folder(tmp_path, "one", Sized(steps=20))
    open_folder(tmp_path, "one", Sized(steps=10))
    assert read_json(tmp_path / "study.json")["settings"]["steps"] == 10
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match="started with steps=10, now it is 20"):
        open_folder(tmp_path, "one", Sized(steps=20))


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("1")
    with pytest.raises(UserError, match="holds other files than a study"):
        open_folder(tmp_path, "one", Sized())


def test_a_word_that_is_a_whole_name_means_that_row_alone():
    rows = [SimpleNamespace(name=name) for name in ("DNN", "wide DNN", "wide DNN, K=2")]

    def chosen(*words: str) -> list[str]:
        return [row.name for row in select_rows(rows, words)]

    assert chosen("dnn") == ["DNN"]
    assert chosen("wide DNN") == ["wide DNN"]
    assert chosen("wide") == ["wide DNN", "wide DNN, K=2"]
    assert chosen("K=2", "DNN") == ["DNN", "wide DNN, K=2"]
    assert select_rows(rows, None) == rows
    with pytest.raises(UserError, match="contains 'STAR'; rows: DNN, wide DNN, wide DNN, K=2"):
        chosen("DNN", "STAR")
