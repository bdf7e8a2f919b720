"""Options, checks and notices that several commands share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import yaml
from rich.console import Console

from tfr_moe.errors import UserError
from tfr_moe.utils.console import make_log
from tfr_moe.utils.io import plain, write_json


def flag(help_text: str, *names: str, **options: Any) -> Any:
    """An option of a command; without `names` it is called as its parameter."""
    return typer.Option(*names, help=help_text, **options)


_BEAM = "beam_args"

Data = Annotated[Path, flag("data-set folder made by `tfr-moe build`", "--data")]
Run = Annotated[Path, flag("a finished run", "--run")]
Seed = Annotated[int, flag("random seed", "--seed", min=0)]
BatchSize = Annotated[int, flag("lists per batch", "--batch-size", min=1)]
Overwrite = Annotated[bool, flag("replace --out if it exists", "--overwrite")]
Split = Annotated[str, flag("train, validation or test", "--split")]
NewData = Annotated[Path, flag("data-set folder to create", "--out")]
Config = Annotated[Path | None, flag("settings as YAML", "--config")]
Settings = Annotated[
    list[str] | None,
    flag("a setting, key=value; see `tfr-moe settings`; repeatable", "--set"),
]
JsonFile = Annotated[Path | None, flag("also write the numbers as JSON", "--json")]


class BeamCommand(typer.core.TyperCommand):
    """A command with an input pattern, whose words after -- are for Apache Beam."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keeps the words for Beam; others than options are files of a pattern without quotes."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_BEAM] = tuple(args[end + 1 :])
        rest = super().parse_args(ctx, args[:end])
        source = ctx.params.get("source")
        words = [source, *ctx.args] if source and Path(source).is_file() else ctx.args
        if words:
            raise UserError(
                f"unexpected argument {words[0]!r}: put a pattern in quotes, "
                "--input 'logs/*.csv', and options of Beam after --"
            )
        return rest


def beam_args(context: typer.Context) -> tuple[str, ...]:
    """The words after -- of a `BeamCommand`."""
    return tuple(context.meta[_BEAM])


def stderr() -> Console:
    """The console for progress and notices; stdout is for results."""
    return Console(stderr=True)


def note(line: str) -> None:
    """Prints a notice to stderr as it is: not wrapped, coloured or marked up."""
    make_log(stderr())(line)


def write_numbers(path: Path | None, content: Any) -> None:
    """Writes the file of a `JsonFile` option, if it is given."""
    if path is not None:
        write_json(path, plain(content))


def yaml_text(value: Any) -> str:
    """A value in YAML's flow style, as `--set` takes it."""
    text = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.strip()[1:-1]


def reject_with(option: str, others: Mapping[str, Any]) -> None:
    """Rejects options in use (not None, False or []) that exclude the given one."""
    for other, value in others.items():
        if not (value is None or value is False or value == []):
            raise UserError(f"{other} cannot be combined with {option}")


def usual(option: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """The first of usual names that is a column; without one the option is required."""
    for name in names:
        if name in columns:
            return name
    raise UserError(
        f"{option} is required: none of the usual names ({', '.join(names)}) is among "
        f"{', '.join(columns) or 'no columns'}"
    )
