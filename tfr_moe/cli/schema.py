"""The command that infers a schema from a log: schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tfr_moe.cli.options import Overwrite, stderr
from tfr_moe.errors import UserError

_LIST_IDS = ("search_id", "query_id", "list_id", "session_id", "request_id", "impression_id", "qid")
_LABELS = ("label", "relevance", "grade", "purchase", "purchased", "click", "clicked")


def schema(
    input_file: Annotated[
        Path, typer.Option("--input", help="log: CSV, TSV, JSON lines or Parquet")
    ],
    out: Annotated[Path, typer.Option("--out", help="YAML file to write")],
    list_id: Annotated[
        str | None,
        typer.Option("--list-id", help="column of the list; default: search_id, query_id, ..."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="column of a label; repeatable; default: label, click, ..."),
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="column of the time")] = None,
    position: Annotated[
        str | None, typer.Option("--position", help="column of the display position")
    ] = None,
    weight: Annotated[str | None, typer.Option("--weight", help="column of the weight")] = None,
    child: Annotated[
        str | None,
        typer.Option("--child", help="column of the sub-category; item.NAME if items have it"),
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", help="column of the top category")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", help="a column that is no feature; repeatable")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="a feature even if it looks like a leak or ID; repeatable"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Infer the schema of a log, as a commented YAML file to edit.

    Example: tfr-moe schema --input log.csv --out schema.yaml --list-id search_id
    """
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.tables import infer_schema, read_table, schema_yaml

    if out.exists() and not overwrite:
        raise UserError(f"--out {out}: exists already; give another name or --overwrite")
    if (child is None) != (parent is None):
        raise UserError("--child and --parent go together")
    table = read_table(input_file)
    names = table.column_names
    inference = infer_schema(
        table,
        list_id=list_id or _usual("--list-id", _LIST_IDS, names),
        label=label or [_usual("--label", _LABELS, names)],
        time=time,
        position=position,
        weight=weight,
        hierarchy=None if child is None else {"child": child, "parent": parent or ""},
        ignore=ignore or (),
        keep=keep or (),
    )
    made = FeatureSchema.model_validate(inference.schema)
    try:
        out.write_text(schema_yaml(inference, input_file.name), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror})") from error
    console = stderr()
    for decision in inference.warnings:
        reason = re.sub("as `(time|position)`", r"as --\1", decision.reason)
        line = f"warning: column {decision.column!r}: {reason}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    ignored = sum(decision.outcome == "ignored" for decision in inference.decisions)
    tree = inference.schema.get("hierarchy")
    category = f"{tree['child']} in {tree['parent']}" if tree else "none"
    lists = len(table.column(made.list_id).unique())
    for line in (
        f"list: {made.list_id} ({lists} lists of {table.num_rows / lists:.1f} rows); "
        f"label: {', '.join(made.labels)}; time: {made.time or 'none'}; category: {category}",
        f"wrote {out}: {len(inference.schema['features'])} features, columns ignored: {ignored}, "
        f"from {table.num_rows} rows",
    ):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _usual(flag: str, usual: Sequence[str], names: Sequence[str]) -> str:
    """The first column with a usual name.

    Raises:
        UserError: if there is none.
    """
    for name in usual:
        if name in names:
            return name
    raise UserError(f"{flag} is required: no column is called {', '.join(usual)}")
