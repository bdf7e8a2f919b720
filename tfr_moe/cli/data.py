"""Commands that make data: synth, schema, build, join-days, rerank-data."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfr_moe.cli.options import (
    BeamCommand,
    Config,
    Data,
    NewData,
    Overwrite,
    Seed,
    Settings,
    beam_args,
    flag,
    note,
    stderr,
    usual,
    yaml_text,
)
from tfr_moe.errors import UserError

if TYPE_CHECKING:
    from tfr_moe.tables import Inference

_LIST_IDS = ("search_id", "query_id", "list_id", "session_id", "request_id", "impression_id", "qid")
_LABELS = ("label", "relevance", "grade", "purchase", "purchased", "click", "clicked")


def synth(
    out: Annotated[Path, flag("folder to create")],
    sessions: Annotated[int, flag("number of lists", min=1)] = 4000,
    seed: Seed = 0,
    category_strength: Annotated[
        float, flag("difference between categories: 0 none, 1 the largest")
    ] = 1.0,
    settings: Annotated[
        list[str] | None,
        flag("a generator option, key=value; see docs/data.md; repeatable", "--set"),
    ] = None,
) -> None:
    """Generate synthetic search logs and their schema.

    Example: tfr-moe synth --out logs --sessions 4000
    """
    from tfr_moe.synthetic import SearchLogOptions, generate
    from tfr_moe.utils.console import progress_bar
    from tfr_moe.utils.settings import parse_options

    values = {"seed": seed, "sessions": sessions, "category_strength": category_strength}
    options = parse_options(SearchLogOptions, settings or [], "synth", **values)
    with progress_bar(stderr(), "sessions") as progress:
        generate(out, options, progress)
    note(f"wrote {out}: logs of {options.sessions} sessions and schema.yaml")


def schema(
    input_file: Annotated[Path, flag("log: CSV, TSV, JSON lines or Parquet", "--input")],
    out: Annotated[Path, flag("YAML file to write")],
    list_id: Annotated[
        str | None, flag(f"column of the list; default: the first of {', '.join(_LIST_IDS)}")
    ] = None,
    label: Annotated[
        list[str] | None,
        flag(f"column of a label; repeatable; default: the first of {', '.join(_LABELS)}"),
    ] = None,
    time: Annotated[str | None, flag("column with the time")] = None,
    position: Annotated[str | None, flag("column with the display position")] = None,
    weight: Annotated[str | None, flag("column with the weight")] = None,
    child: Annotated[
        str | None, flag("column with the sub-category; item.NAME if it belongs to items")
    ] = None,
    parent: Annotated[str | None, flag("column with the top category")] = None,
    ignore: Annotated[list[str] | None, flag("a column to exclude; repeatable")] = None,
    keep: Annotated[
        list[str] | None,
        flag("a column to include although it looks like a leak or an ID; repeatable"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Infer the schema of a log, as a commented YAML file to edit.

    Example: tfr-moe schema --input log.csv --out schema.yaml --list-id search_id
    """
    from tfr_moe.schema import FeatureSchema
    from tfr_moe.tables import infer_schema, read_table
    from tfr_moe.utils.io import check_free_file

    check_free_file(out, overwrite, [input_file])
    if (child is None) != (parent is None):
        raise UserError("--child and --parent must be used together")
    with stderr().status(f"reading {input_file}"):
        table = read_table(input_file)
        names = table.column_names
        inference = infer_schema(
            table,
            list_id=list_id or usual("--list-id", _LIST_IDS, names),
            label=label or [usual("--label", _LABELS, names)],
            time=time,
            position=position,
            weight=weight,
            hierarchy=None if child is None else {"child": child, "parent": parent or ""},
            ignore=ignore or (),
            keep=keep or (),
        )
    made = FeatureSchema.of(inference.schema)
    out.write_text(schema_yaml(inference, input_file.name), encoding="utf-8")
    for decision in inference.warnings:
        reason = re.sub("as `(time|position)`", r"as --\1", decision.reason)
        note(f"warning: column {decision.column!r}: {reason}")
    ignored = sum(decision.outcome == "ignored" for decision in inference.decisions)
    tree = inference.schema.get("hierarchy")
    category = f"{tree['child']} in {tree['parent']}" if tree else "none"
    lists = len(table.column(made.list_id).drop_null().unique())
    note(
        f"list: {made.list_id} ({lists} lists of {table.num_rows / lists:.1f} rows); "
        f"label: {', '.join(made.labels)}; time: {made.time or 'none'}; category: {category}"
    )
    note(
        f"wrote {out}: {len(inference.schema['features'])} features, columns ignored: {ignored}, "
        f"from {table.num_rows} rows"
    )


def schema_yaml(inference: Inference, source: str) -> str:
    """Returns the text of a schema file to edit; `source` is named in its first line."""
    schema, decisions = inference
    reasons = {d.column: d.reason for d in decisions if not d.outcome.startswith("hierarchy")}
    lines = [
        f"# Inferred from {source}. Edit it: scopes, kinds and roles decide what the model learns "
        "from.",
        *(f"# warning: {d.column}: {d.reason}" for d in inference.warnings),
        *(f"{key}: {yaml_text(value)}" for key, value in schema.items() if key != "features"),
        *(f"# {d.outcome}: {d.reason}" for d in decisions if d.outcome == "hierarchy candidate"),
        "features:",
    ]
    for feature in schema["features"]:
        lines += [f"  # {reasons[feature['name']]}", f"  - {yaml_text(feature)}"]
    ignored = [f"#   {d.column}: {d.reason}" for d in decisions if d.outcome == "ignored"]
    if ignored:
        lines += ["# Ignored columns:", *ignored]
    return "\n".join(lines) + "\n"


class BuildCommand(BeamCommand):
    """Appends the options of a source to `build SOURCE --help`, all sources to `build --help`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Records the source and its modules, which --help needs wherever it is among them."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        source = given["source"]
        ctx.meta["source"] = source if isinstance(source, str) else None
        ctx.meta["modules"] = given.get("source_modules", [])
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the options of the source, wrapped to the width of the terminal."""
        from tfr_moe.beam.sources import load_source_modules

        load_source_modules(ctx.meta["modules"])
        formatter.write("\n")
        for line in source_help(ctx.meta["source"]):
            indent = len(line) - len(line.lstrip())
            further = " " * (indent + 2) if indent else ""
            wrapped = textwrap.fill(line, formatter.width, subsequent_indent=further)
            formatter.write(f"{wrapped}\n")


def source_help(name: str | None) -> list[str]:
    """Returns purpose and options of a source; without a name, one line for each source."""
    from tfr_moe.beam.sources import get_source, sources

    if name is None:
        purposes = [
            f"  {source.name:<14}{(source.read.__doc__ or '').strip().splitlines()[0]}"
            for source in sources().values()
        ]
        return ["Sources (build SOURCE --help shows the options of one):", *purposes]
    source = get_source(name)
    about = inspect.cleandoc(source.read.__doc__ or "").split("\nRaises:")[0].strip()
    schema = "built in, --schema replaces it" if source.schema else "--schema is required"
    fields = source.options.model_fields
    paragraphs = [" ".join(lines.split()) for lines in f"{name}: {about}".split("\n\n")]
    lines = [*"\n\n".join(paragraphs).splitlines(), "", f"Schema: {schema}.", ""]
    lines.append("Options, each as --set key=value:" if fields else "The source has no options.")
    for option, field in fields.items():
        default = "required" if field.is_required() else f"default {_default_text(field.default)}"
        lines += [f"  {option} ({default})", f"      {field.description or ''}"]
    return lines


def _default_text(default: Any) -> str:
    if default is None or default == () or default == "":
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def build(
    context: typer.Context,
    input_patterns: Annotated[
        list[str], flag("file or pattern: 'logs/*.csv.gz'; repeatable", "--input")
    ],
    out: NewData,
    source: Annotated[str, typer.Argument(help="name of a source")] = "search-logs",
    schema: Annotated[
        Path | None, flag("FeatureSchema as YAML or JSON; optional for some sources")
    ] = None,
    settings: Annotated[
        list[str] | None,
        flag("an option of the source, key=value; see build SOURCE --help", "--set"),
    ] = None,
    source_modules: Annotated[
        list[str] | None,
        flag("module to import that registers a source; repeatable", "--source-module"),
    ] = None,
    split: Annotated[
        str | None, flag("time or hash; default: time if the schema has a time column")
    ] = None,
    split_column: Annotated[
        str | None, flag("column with train, validation or test, instead of --split")
    ] = None,
    like: Annotated[
        Path | None, flag("data set whose schema and vocabularies to use, for test lists only")
    ] = None,
    validation_fraction: Annotated[float, flag("fraction of lists for validation")] = 0.1,
    test_fraction: Annotated[float, flag("fraction of lists for test")] = 0.1,
    max_list_size: Annotated[int, flag("cut and count longer lists")] = 200,
    max_lost: Annotated[
        float,
        flag("maximum share of rejected rows, inconsistent lists and cut positives"),
    ] = 0.05,
    num_shards: Annotated[int | None, flag("number of training files; default: 8 or more")] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    append: Annotated[
        str | None, flag("day YYYY-MM-DD to add to, or replace in, --out; see join-days")
    ] = None,
) -> None:
    """Build a data set from logs.

    Options of Apache Beam may follow after --.

    \b
    Example: tfr-moe build search-logs --input 'logs/*.csv.gz' \\
                 --schema schema.yaml --out data
    """
    from tfr_moe.beam import BuildOptions
    from tfr_moe.beam import build as run_build
    from tfr_moe.utils.console import progress_bar

    options = BuildOptions(
        source=source,
        input=",".join(input_patterns),
        schema=schema,
        out=out,
        split=split,
        split_column=split_column,
        like=like,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        max_list_size=max_list_size,
        max_lost=max_lost,
        num_shards=num_shards,
        seed=seed,
        overwrite=overwrite,
        append=append,
        settings=tuple(settings or ()),
        source_modules=tuple(source_modules or ()),
        beam_args=beam_args(context),
    )
    with progress_bar(stderr(), "building") as progress:
        manifest = run_build(options, progress)
    for line in _build_summary(options.folder, manifest):
        note(line)


def _build_summary(out: Path, manifest: dict[str, Any]) -> list[str]:
    rows = manifest["rows"]
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in lists: {_splits(manifest)}"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see rejects-*.jsonl), {rows['cut']} cut"
    lines = [text, *loss_lines("rejected", manifest["rejects"])]
    lines += loss_lines("cut", manifest["cut"])
    if manifest["cut_positives"]:
        lines.append(f"  of those cut, {manifest['cut_positives']} have a label above 0")
    lines += [f"  {number} {name}" for name, number in manifest["noted"].items()]
    return lines + [f"warning: {text}" for text in manifest["warnings"]]


def _splits(manifest: dict[str, Any]) -> str:
    return ", ".join(f"{name} {part['lists']}" for name, part in manifest["splits"].items())


def join_days(
    data: Annotated[Path, flag("data set by days, made by build --append")],
    out: NewData,
    window: Annotated[str, flag("number of days, such as 30d")] = "30d",
    until: Annotated[str | None, flag("last day, YYYY-MM-DD; default: the newest")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Join the days of a window to a data set.

    Records are linked, not copied; vocabularies and statistics are those of the days.

    Example: tfr-moe join-days --data data --window 30d --out windows/2024-06-02
    """
    from tfr_moe.data import join_days as join

    manifest = join(data, out, window, until, overwrite)
    days = list(manifest["days"])
    note(f"wrote {out}: {len(days)} days from {days[0]} to {days[-1]}: {_splits(manifest)}")
    for line in manifest["warnings"]:
        note(f"warning: {line}")


def loss_lines(what: str, reasons: dict[str, int]) -> list[str]:
    """Returns a line for each reason, the most frequent first."""
    return [f"  {what} {rows}: {reason}" for reason, rows in Counter(reasons).most_common()]


def rerank_data(
    data: Data,
    out: NewData,
    model: Annotated[
        str | None,
        flag("the initial ranker, see `tfr-moe models`; default: adv_hsc_moe, or that of --config"),
    ] = None,
    config: Config = None,
    settings: Settings = None,
    folds: Annotated[int, flag("number of folds of the training lists", min=2)] = 5,
    overwrite: Overwrite = False,
) -> None:
    """Order lists by an initial ranker, for training a re-ranker.

    Training lists are scored by rankers trained on the other folds.

    Example: tfr-moe rerank-data --data data --model lambdamart --out initial
    """
    from tfr_moe.config import load_config

    ranker = load_config(config, settings or [], **({} if model is None else {"model": model}))
    from tfr_moe.reranking import rerank_data as run_rerank

    lists = run_rerank(data, out, ranker, folds, stderr(), overwrite)
    text = ", ".join(f"{split} {count}" for split, count in lists.items())
    note(f"wrote {out}: initial lists by {ranker.model}: {text}")
