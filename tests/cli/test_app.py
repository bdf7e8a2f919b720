"""The commands as a whole: their help, and how they end."""

from __future__ import annotations

import io
import json
import shlex
from typing import Any, NoReturn

import pytest
import typer
from rich.console import Console

from tests.beam import logs
from tests.tiny import shop_log, write_data_folder
from tfr_moe import __version__
from tfr_moe.cli import daily, demo, main
from tfr_moe.cli import data as cli_data
from tfr_moe.cli.app import app
from tfr_moe.cli.options import usual
from tfr_moe.errors import UserError
from tfr_moe.metrics.naming import DEFAULT_NAMES
from tfr_moe.schema import write_manifest

GROUP: Any = typer.main.get_command(app)
COMMANDS = list(GROUP.commands)


def ended(capsys, *arguments) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return (caught.value.code, *capsys.readouterr())


def interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_ctrl_c_ends_it_with_a_line_and_the_code_that_shells_give(monkeypatch, capsys):
    monkeypatch.setattr(demo, "run_demo", interrupt)
    assert ended(capsys, "demo") == (130, "", "interrupted\n")


def test_success_exits_with_0_and_prints_nothing_else(capsys):
    assert ended(capsys, "--version") == (0, f"tfr-moe {__version__}\n", "")


def test_a_demo_below_a_file_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "demo"
    message = f"error: {out}: cannot be made (Not a directory)\n"
    assert ended(capsys, "demo", "--out", out) == (2, "", message)


def test_the_commands_are_these():
    assert list(GROUP.commands) == [
        *("synth", "build", "join-days", "check", "drift", "schema"),
        *("train", "evaluate", "compare", "tune", "report", "explain"),
        *("export", "serve", "rank", "predict", "load-test", "publish"),
        *("rerank-data", "demo"),
        *("models", "losses", "metrics", "settings"),
    ]


def test_without_arguments_it_prints_its_help_in_which_no_line_is_cut(capsys):
    code, out, err = ended(capsys)
    assert (code, err) == (0, "")
    assert ended(capsys, "--help") == ended(capsys, "-h") == (0, out, "")
    assert all(f"\n  {name} " in out for name in COMMANDS)
    listed = out.split("Commands:")[1]
    assert not [line for line in listed.splitlines() if line.endswith("...")]


def example_in(text: str) -> str:
    """The example of a help text, with its continued lines joined."""
    example = text.split("Example: ")[1].split("\n\n")[0]
    return " ".join(example.replace("\\\n", " ").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_works_fits_80_columns_and_has_an_example_that_the_parser_takes(name, capsys):
    code, out, err = ended(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert ended(capsys, name, "-h") == (0, out, "")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    words = shlex.split(example_in(out))
    assert words[:2] == ["tfr-moe", name]
    with GROUP.make_context("tfr-moe", words[1:]) as context:
        chosen, command, rest = GROUP.resolve_command(context, [name, *words[2:]])
        assert chosen == name
        # Raises for an unknown option, a missing one or a value of another type.
        parsed = command.make_context(name, rest, parent=context)
        assert parsed.args == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name):
    public = [parameter for parameter in GROUP.commands[name].params if not parameter.hidden]
    assert [parameter.name for parameter in public if not parameter.help] == []


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("evaluate", f"default: {', '.join(DEFAULT_NAMES)}"),
        ("load-test", "default: 20"),
        ("schema", "default: the first of label, relevance, grade, purchase,"),
        ("schema", "default: the first of search_id, query_id,"),
    ],
)
def test_defaults_that_a_command_finds_by_itself_are_in_its_help(name, default, capsys):
    assert default in " ".join(ended(capsys, name, "--help")[1].split())


def test_the_shell_completes_commands_and_options(monkeypatch, capsys):
    monkeypatch.setenv("_TFR_MOE_COMPLETE", "complete_bash")
    for words, completed in {"ev": "evaluate", "evaluate --base": "--baseline"}.items():
        monkeypatch.setenv("COMP_WORDS", f"tfr-moe {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        assert ended(capsys) == (0, f"{completed}\n", "")


def test_the_help_of_a_source_breaks_lines_at_the_width_of_the_terminal_only(capsys):
    source = ("--source-module", "experiments.datasets.letor", "letor")
    lines = ended(capsys, "build", *source, "--help")[1].split("\nletor: ")[1].splitlines()
    paragraph = lines[lines.index("") + 1 :]
    paragraph = paragraph[: paragraph.index("")]
    following = [line.split()[0] for line in paragraph[1:]]
    assert len(paragraph) > 2
    for line, word in zip(paragraph[:-1], following, strict=True):
        assert len(f"{line} {word}") > 78


def test_a_log_is_not_replaced_by_its_schema(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("mine")
    code, _, error = ended(capsys, "schema", "--input", log, "--out", log, "--overwrite")
    assert (code, error) == (2, f"error: {log}: is an input; give another name\n")
    assert log.read_text() == "mine"


def test_commands_that_read_a_lot_say_so_while_they_do(tmp_path, monkeypatch, capsys):
    log, data = tmp_path / "log.csv", write_data_folder(tmp_path / "data", 8, 4, 4)
    shop_log(20, seed=1).to_csv(log, index=False)
    out = io.StringIO()
    for module in (cli_data, daily):
        monkeypatch.setattr(module, "stderr", lambda: Console(file=out, force_terminal=True))
    ended(capsys, "schema", "--input", log, "--out", tmp_path / "s.yaml", "--label", "purchased")
    ended(capsys, "drift", "--reference", data, "--current", data)
    write_manifest(data, {})
    ended(capsys, "check", data)
    text = "".join(out.getvalue().split())
    for words in (f"reading{log}", f"comparing{data}with{data}", f"reading{data}"):
        assert words in text


@pytest.mark.parametrize("old", ["tune-report", "attention", "synth-letor", "export-vectors"])
def test_names_of_former_commands_are_unknown(old, capsys):
    code, out, err = ended(capsys, old)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: No such command '{old}'") and err.count("\n") == 1


def test_the_first_usual_name_among_the_columns_is_taken():
    assert usual("--label", ["label", "click"], ["q", "click", "label"]) == "label"
    message = r"^--label is required: none of the usual names \(label, click\) is among q, price$"
    with pytest.raises(UserError, match=message):
        usual("--label", ["label", "click"], ["q", "price"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report --sweep s --data d", "--data cannot be combined with --sweep"),
        ("report --sweep s --run r", "--run cannot be combined with --sweep"),
        ("report --sweep s --out r.html", "--out cannot be combined with --sweep"),
        ("report --run r --out r.html", "--data and --run, or --sweep, are required"),
        ("report --data d --run r", "--out is required"),
        ("build search-logs --input a.csv b.csv --out d", "unexpected argument 'b.csv': put a pat"),
        (f"build --input a.csv {__file__} --out d", f"unexpected argument {__file__!r}: put a pat"),
        ("predict --input a.csv b.csv --out o.csv", "unexpected argument 'b.csv': put a pattern"),
        ("demo --out d --sessions 0", "demo: sessions: Input should be greater than or equal to 1"),
        ("synth --out o --set mean_length=1", "'mean_length=1': synth has no such option; "),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    code, out, err = ended(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", [[], ["search-logs"]])
def test_an_input_given_twice_is_read_with_both_and_words_after_dashes_are_for_beam(
    source, tmp_path, monkeypatch, capsys
):
    rows = logs.log_rows(sessions=20, items=4)
    files = [logs.write_csv(tmp_path / f"{n}.csv", rows[n::2]) for n in range(2)]
    schema = logs.write_schema(tmp_path)
    words = ["build", *source, "--schema", schema, "--out", tmp_path / "data"]
    for file in files:
        words += ["--input", file]
    code, _, err = ended(capsys, *words, "--", "--direct_num_workers=1")
    assert code == 0, err
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["rows"]["read"] == len(rows) == 80
    assert "unknown argument" not in err.lower() and "--direct" not in err
