"""Commands that make and look at data: synth, build, categories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tfr_moe.commands.options import Data, Seed, stderr


def synth(
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    sessions: Annotated[int, typer.Option("--sessions", help="number of lists")] = 4000,
    seed: Seed = 0,
    category_strength: Annotated[
        float, typer.Option("--category-strength", help="0: all categories alike, 1: most unlike")
    ] = 1.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="any other option of the generator, key=value; see docs/data.md"
        ),
    ] = None,
) -> None:
    """Write synthetic search logs and their schema."""
    from tfr_moe.progress import progress_bar
    from tfr_moe.synthetic import generate, parse_options

    options = parse_options(
        settings or [], sessions=sessions, seed=seed, category_strength=category_strength
    )
    with progress_bar(stderr(), "sessions") as progress:
        generate(out, options, progress)
    stderr().print(
        f"wrote {out}: logs of {options.sessions} sessions and schema.yaml", soft_wrap=True
    )


def synth_letor(
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    queries: Annotated[int, typer.Option("--queries", help="number of lists")] = 1000,
    mean_length: Annotated[
        float, typer.Option("--mean-length", help="of the lists; by default MSLR-WEB30K's")
    ] = 119.6,
    features: Annotated[int, typer.Option("--features", help="of an item")] = 20,
    context_strength: Annotated[
        float,
        typer.Option("--context-strength", help="0: items stand alone, 1: the list counts as much"),
    ] = 1.0,
    seed: Seed = 0,
) -> None:
    """Write graded lists in letor form whose grades depend on the rest of the list."""
    from tfr_moe.progress import progress_bar
    from tfr_moe.synthetic.letor import LetorOptions, generate_letor

    options = LetorOptions(queries, mean_length, features, context_strength, seed)
    with progress_bar(stderr(), "lists") as progress:
        counts = generate_letor(out, options, progress)
    text = ", ".join(f"{split} {count}" for split, count in counts.items())
    stderr().print(f"wrote {out}: lists: {text}", soft_wrap=True, highlight=False)


class BuildCommand(typer.core.TyperCommand):
    """`build SOURCE --help` tells the options of that source, `build --help` the sources there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Notes the source, which click's own help would not know of."""
        ctx.meta["source"] = next((arg for arg in args[:1] if not arg.startswith("-")), "all")
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the options of the source."""
        from tfr_moe.beam.sources.help import text

        formatter.write(f"\n{text(ctx.meta['source'])}\n")


def build(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="kind of input, such as search-logs")],
    input_pattern: Annotated[str, typer.Option("--input", help="file or pattern: 'logs/*.csv.gz'")],
    out: Annotated[Path, typer.Option("--out", help="data-set folder to make")],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="FeatureSchema as YAML or JSON; some sources have their own"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="an option of the source, key=value; see build SOURCE --help"),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="time or hash; by default time if there is one")
    ] = None,
    validation_fraction: Annotated[
        float, typer.Option("--validation-fraction", help="share of lists")
    ] = 0.1,
    test_fraction: Annotated[float, typer.Option("--test-fraction", help="share of lists")] = 0.1,
    max_list_size: Annotated[
        int, typer.Option("--max-list-size", help="longer lists are cut, and counted")
    ] = 200,
    min_list_size: Annotated[
        int, typer.Option("--min-list-size", help="shorter lists are left out, and counted")
    ] = 1,
    num_shards: Annotated[
        int | None, typer.Option("--num-shards", help="training files; by default 8 or more")
    ] = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Turn logs into a data set; options of Apache Beam may follow after --."""
    from tfr_moe.beam.pipeline import BuildOptions
    from tfr_moe.beam.pipeline import build as run_build
    from tfr_moe.progress import progress_bar

    options = BuildOptions(
        source=source,
        input=input_pattern,
        schema=schema,
        out=out,
        split=split,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        max_list_size=max_list_size,
        min_list_size=min_list_size,
        num_shards=num_shards,
        seed=seed,
        overwrite=overwrite,
        settings=tuple(settings or ()),
        beam_args=tuple(context.args),
    )
    with progress_bar(stderr(), "building") as progress:
        manifest = run_build(options, lambda stage, *amounts: progress(*amounts, stage))
    stderr().print(_build_summary(out, manifest), soft_wrap=True, highlight=False)


def _build_summary(out: Path, manifest: dict[str, Any]) -> str:
    rows = manifest["rows"]
    splits = ", ".join(f"{name} {part['lists']}" for name, part in manifest["splits"].items())
    text = f"wrote {out}: {rows['written']} of {rows['read']} rows in lists: {splits}"
    if rows["rejected"] or rows["cut"]:
        text += f"; {rows['rejected']} rows rejected (see rejects-*.jsonl), {rows['cut']} cut"
    return text


def rerank_data(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="data-set folder to make")],
    model: Annotated[
        str | None,
        typer.Option("--model", help="the initial ranker: lambdamart, svm_rank, dnn, ..."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="its settings as YAML")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="one of its settings, key=value")
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="parts of the training lists", min=2)] = 5,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Put lists into an initial ranker's order, never scored by a ranker that saw them."""
    from tfr_moe.config import load_config

    ranker = load_config(config, settings or [], **({} if model is None else {"model": model}))
    from tfr_moe.reranking import rerank_data as run_rerank

    lists = run_rerank(data, out, ranker, folds, stderr(), overwrite)
    text = ", ".join(f"{split} {count}" for split, count in lists.items())
    stderr().print(f"wrote {out}: initial lists by {ranker.model}: {text}", soft_wrap=True)


def categories(
    context: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    brand: Annotated[
        str | None,
        typer.Option("--brand", help="the items' brand feature, to see its concentration"),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "train",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Show which features tell the chosen items apart in each category, and how few brands sell."""
    from tfr_moe.beam.categories import analyse

    found = analyse(data, out, brand, split, overwrite, tuple(context.args))
    levels = found["feature_importance"]
    stderr().print(
        f"wrote {out}: {len(levels['top'])} top and {len(levels['sub'])} sub-categories",
        soft_wrap=True,
        highlight=False,
    )
