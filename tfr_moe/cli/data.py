"""Commands that make or verify data: synth, build, rerank-data, check."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tfr_moe.cli.options import (
    Data,
    Overwrite,
    Seed,
    SourceModules,
    stderr,
)
from tfr_moe.errors import EXIT_REJECTED, UserError


def check(
    path: Annotated[Path, typer.Argument(help="data set, run, or a version of an exported model")],
    requests: Annotated[
        Path | None,
        typer.Option("--requests", help="request log of the version, to replay: PredictionLogs"),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="with --requests: the run of the version")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="with --requests: logged lists to compare with")
    ] = None,
) -> None:
    """Verify the files of a data set, run or export.

    Every file is compared with the SHA-256 that was recorded when it was made; in a data set by
    days, the files of all days. With --requests, scores, vocabularies and features of recorded
    requests are compared with the run and its data instead; exits with 3 if they differ.

    Example: tfr-moe check models/shop/7 --requests requests.log --run runs/tuesday
    """
    if requests is not None:
        if run is None:
            raise UserError("--run: is required with --requests")
        _check_requests(path, requests, run, data)
        return
    for option, value in {"--run": run, "--data": data}.items():
        if value is not None:
            raise UserError(f"{option}: needs --requests")
    from tfr_moe.schema import MANIFEST_FILE, days_of

    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    days = {} if (path / MANIFEST_FILE).is_file() else days_of(path)
    for folder in days.values() or [path]:
        _check_folder(folder)


def _check_folder(path: Path) -> None:
    """Prints what a folder has, if its files are as recorded."""
    from tfr_moe.schema import MANIFEST_FILE
    from tfr_moe.utils.digests import MODEL_MANIFEST, ManifestForm, check_files
    from tfr_moe.utils.io import read_json

    if (path / "saved_model.pb").is_file():
        kind, manifest = "model", read_json(path / MODEL_MANIFEST, ManifestForm) or {}
    else:
        manifest = read_json(path / MANIFEST_FILE, ManifestForm)
        if manifest is None:
            raise UserError(
                f"{path}: holds no {MANIFEST_FILE}, so it is no data set, run or exported version "
                "(MODELS/NAME/VERSION)"
            )
        kind = "run" if "data" in manifest else "data"
    digests = manifest.get("files")
    if digests is None:
        raise UserError(f"{path}: has no digests to compare with; make the {kind} again")
    if kind == "data":
        from tfr_moe.data import DataFolder

        DataFolder(path).check()
    else:
        check_files(path, digests, kind, digests)
    size = sum(digest["bytes"] for digest in digests.values())
    print(f"{path}: {len(digests)} files, {size:,} bytes, as recorded")
    print(f"fingerprint {manifest['fingerprint']}")


def _check_requests(version: Path, requests: Path, run: Path, data: Path | None) -> None:
    """Prints what was compared, differences last."""
    from tfr_moe.serving.export.skew import measure_skew

    rows = measure_skew(version, requests, run, data)
    for row in sorted(rows, key=lambda row: row.different > 0):
        counts = f"{row.different:,} of {row.compared:,} differ"
        name = row.what if row.name == row.what else f"{row.what} of {row.name}"
        print(f"{name}: {counts}{f'; {row.example}' if row.example else ''}")
    if any(row.different for row in rows):
        raise typer.Exit(EXIT_REJECTED)


def synth(
    out: Annotated[Path, typer.Option("--out", help="folder to create")],
    sessions: Annotated[int, typer.Option("--sessions", help="number of lists", min=1)] = 4000,
    seed: Seed = 0,
    category_strength: Annotated[
        float,
        typer.Option(
            "--category-strength", help="0: all categories alike, 1: as different as possible"
        ),
    ] = 1.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="another option of the generator, key=value; see docs/data.md; repeatable"
        ),
    ] = None,
) -> None:
    """Generate synthetic search logs and their schema.

    Example: tfr-moe synth --out logs --sessions 4000
    """
    from tfr_moe.synthetic import generate, parse_options
    from tfr_moe.utils.console import progress_bar

    options = parse_options(
        settings or [], seed=seed, sessions=sessions, category_strength=category_strength
    )
    with progress_bar(stderr(), "sessions") as progress:
        generate(out, options, progress)
    stderr().print(
        f"wrote {out}: logs of {options.sessions} sessions and schema.yaml", soft_wrap=True
    )


class BuildCommand(typer.core.TyperCommand):
    """Appends the options of a source to `build SOURCE --help`, all sources to `build --help`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Records source and source modules, which the help text needs before parsing."""
        words, modules = [], ctx.meta.setdefault("modules", [])
        following = iter(args)
        for word in following:
            option, equals, value = word.partition("=")
            if option == "--source-module":
                modules.append(value if equals else next(following, ""))
            else:
                words.append(word)
        ctx.meta["source"] = next((word for word in words[:1] if not word.startswith("-")), None)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the options of the source, wrapped to the width of the terminal."""
        from tfr_moe.beam.sources import load_source_modules

        load_source_modules(ctx.meta["modules"])
        formatter.write("\n")
        for line in source_help(ctx.meta["source"]):
            indent = " " * (len(line) - len(line.lstrip()))
            further = f"{indent}  " if indent else ""
            wrap = textwrap.TextWrapper(
                formatter.width, initial_indent=indent, subsequent_indent=further
            )
            formatter.write(wrap.fill(line.strip()) + "\n")


def source_help(name: str | None) -> list[str]:
    """Returns purpose and options of a source; without a name, one line for each source.

    Raises:
        UserError: for an unknown source.
    """
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
    lines = [*f"{name}: {about}".splitlines(), "", f"Schema: {schema}.", ""]
    lines.append("Options, each as --set key=value:" if fields else "The source has no options.")
    for option, field in fields.items():
        default = "required" if field.is_required() else f"default {_shown(field.default)}"
        lines += [f"  {option} ({default})", f"      {field.description or ''}"]
    return lines


def _shown(default: Any) -> str:
    if default is None or default == () or default == "":
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def build(
    context: typer.Context,
    input_pattern: Annotated[str, typer.Option("--input", help="file or pattern: 'logs/*.csv.gz'")],
    out: Annotated[Path, typer.Option("--out", help="data-set folder to create")],
    source: Annotated[str, typer.Argument(help="name of a source")] = "search-logs",
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="FeatureSchema as YAML or JSON; optional for some sources"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="an option of the source, key=value; see build SOURCE --help"),
    ] = None,
    source_modules: SourceModules = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="time or hash; default: time if the schema has a time column"),
    ] = None,
    split_column: Annotated[
        str | None,
        typer.Option(
            "--split-column", help="column with train, validation or test, instead of --split"
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like", help="data set whose schema and vocabularies are taken, for test lists only"
        ),
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option("--validation-fraction", help="fraction of lists")
    ] = 0.1,
    test_fraction: Annotated[
        float, typer.Option("--test-fraction", help="fraction of lists")
    ] = 0.1,
    max_list_size: Annotated[
        int, typer.Option("--max-list-size", help="longer lists are cut and counted")
    ] = 200,
    min_list_size: Annotated[
        int, typer.Option("--min-list-size", help="shorter lists are dropped and counted")
    ] = 1,
    max_lost: Annotated[
        float,
        typer.Option(
            "--max-lost",
            help="stop where more than this share of rows is rejected, of lists has rows with "
            "different context, or of positives is cut",
        ),
    ] = 0.05,
    num_shards: Annotated[
        int | None,
        typer.Option("--num-shards", help="number of training files; default: 8 or more"),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    append: Annotated[
        str | None,
        typer.Option(
            "--append", help="day YYYY-MM-DD to add to --out, or to replace in it; see join-days"
        ),
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
        input=input_pattern,
        schema=schema,
        out=out,
        split=split,
        split_column=split_column,
        like=like,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        max_list_size=max_list_size,
        min_list_size=min_list_size,
        max_lost=max_lost,
        num_shards=num_shards,
        seed=seed,
        overwrite=overwrite,
        append=append,
        settings=tuple(settings or ()),
        source_modules=tuple(source_modules or ()),
        beam_args=tuple(context.args),
    )
    with progress_bar(stderr(), "building") as progress:
        manifest = run_build(options, progress)
    for line in _build_summary(options.folder, manifest):
        stderr().print(line, soft_wrap=True, highlight=False, markup=False)


def _build_summary(out: Path, manifest: dict[str, Any]) -> list[str]:
    rows = manifest["rows"]
    splits = ", ".join(f"{name} {part['lists']}" for name, part in manifest["splits"].items())
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in lists: {splits}"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see rejects-*.jsonl), {rows['cut']} cut"
    lines = [text, *loss_lines("rejected", manifest["rejects"])]
    lines += loss_lines("cut", manifest["cut"])
    if manifest["cut_positives"]:
        lines.append(f"  of those cut, {manifest['cut_positives']} have a label above 0")
    lines += [f"  {number} {name}" for name, number in manifest["noted"].items()]
    return lines + [f"warning: {text}" for text in manifest["warnings"]]


def join_days(
    data: Annotated[Path, typer.Option("--data", help="data set by days, of build --append")],
    out: Annotated[Path, typer.Option("--out", help="data-set folder to create")],
    window: Annotated[str, typer.Option("--window", help="number of days, such as 30d")] = "30d",
    until: Annotated[
        str | None, typer.Option("--until", help="last day, YYYY-MM-DD; default: the newest")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Join the days of a window to a data set.

    Records are linked, not copied; vocabularies and statistics are those of the days.

    Example: tfr-moe join-days --data data --window 30d --out windows/2024-06-02
    """
    from tfr_moe.data import join_days as join

    manifest = join(data, out, window, until, overwrite)
    days = list(manifest["days"])
    splits = ", ".join(f"{name} {part['lists']}" for name, part in manifest["splits"].items())
    text = f"wrote {out}: {len(days)} days from {days[0]} to {days[-1]}: {splits}"
    stderr().print(text, soft_wrap=True, highlight=False, markup=False)
    for line in manifest["warnings"]:
        stderr().print(f"warning: {line}", soft_wrap=True, highlight=False, markup=False)


def loss_lines(what: str, reasons: dict[str, int]) -> list[str]:
    """Returns a line for each reason, the most frequent first."""
    ordered = sorted(reasons, key=lambda reason: -reasons[reason])
    return [f"  {what} {reasons[reason]}: {reason}" for reason in ordered]


def rerank_data(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="data-set folder to create")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="the initial ranker; see `tfr-moe models`"),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="its settings as YAML")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="one of its settings, key=value; see `tfr-moe settings`; repeatable"
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option("--folds", help="number of parts of the training lists", min=2)
    ] = 5,
    overwrite: Overwrite = False,
) -> None:
    """Order lists by an initial ranker, as input of a re-ranker.

    Training lists are scored by rankers trained on the other folds.

    Example: tfr-moe rerank-data --data data --model lambdamart --out initial
    """
    from tfr_moe.config import load_config

    ranker = load_config(config, settings or [], **({} if model is None else {"model": model}))
    from tfr_moe.reranking import rerank_data as run_rerank

    lists = run_rerank(data, out, ranker, folds, stderr(), overwrite)
    text = ", ".join(f"{split} {count}" for split, count in lists.items())
    stderr().print(f"wrote {out}: initial lists by {ranker.model}: {text}", soft_wrap=True)
