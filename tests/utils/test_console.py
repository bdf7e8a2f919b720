"""Progress: lines in files, by a clock that the test moves."""

import io

from rich.console import Console

from tests.evaluation.lists import one_list
from tfr_moe.evaluation.evaluate import counted
from tfr_moe.utils import console as module


def test_a_file_gets_a_line_ten_seconds_into_a_stage_and_then_every_thirty(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with module.progress_bar(Console(file=out, width=20), "building the data set") as move:
        for seconds in range(75):
            now[0] = float(seconds)
            move(1000 * seconds, 80_000)
        for seconds in range(75, 86):
            now[0] = float(seconds)
            move(seconds - 75, None, "writing")
    assert out.getvalue().splitlines() == [
        "building the data set: 10,000 of 80,000 (12%), 10 s",
        "building the data set: 40,000 of 80,000 (50%), 40 s",
        "building the data set: 70,000 of 80,000 (88%), 70 s",
        "writing: 10, 85 s",
    ]


def test_lists_of_several_evaluations_are_counted_once_for_all_tasks():
    moves = []
    count = counted(lambda *values: moves.append(values), 4)
    batch = one_list([1.0, 2.0], [0.0, 1.0])
    for name in ("first", "second"):
        on_batch = count(name)
        for _ in range(2):
            on_batch({"click": batch, "purchase": batch})
    assert moves == [(1, 4, "first"), (2, 4, "first"), (3, 4, "second"), (4, 4, "second")]


def test_a_warning_is_printed_once_on_each_console():
    out, other = io.StringIO(), io.StringIO()
    first, second = Console(file=out), Console(file=other)
    for message in ("a", "a", "b", "a"):
        module.warn(first, message)
    module.warn(second, "a")
    assert out.getvalue() == "warning: a\nwarning: b\n"
    assert other.getvalue() == "warning: a\n"


def test_columns_that_do_not_fit_are_named_below_the_table():
    columns = [
        module.TableColumn("item", ["a b"], False),
        module.TableColumn("price", ["1"]),
        module.TableColumn("x", ["2"]),
    ]
    table = module.fitted_table(columns, always=1, width=10)
    assert [column.header.plain for column in table.columns] == ["item", "x"]
    assert table.caption == "hidden columns: price (use --json)"


def test_a_log_line_has_its_prefix_and_no_markup(capsys):
    module.make_log(module.Console(), "worker-1")("trial 0003: [started]")
    assert capsys.readouterr().out == "worker-1: trial 0003: [started]\n"
