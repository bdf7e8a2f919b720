"""Commands around attention: its maps, and the personalised vectors of PRM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfr_moe.commands.options import Data, stderr


def attention(
    run: Annotated[Path, typer.Option("--run", help="a finished run of a model with attention")],
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="folder to make")],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="an id or a number of the items; may be repeated"),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, validation or test")] = "test",
    positions: Annotated[
        int, typer.Option("--positions", help="places of the list to look at", min=1)
    ] = 30,
    block: Annotated[
        int | None, typer.Option("--block", help="one block, 1 the first; by default their mean")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)] = 64,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Show how much items attend to each other, by position and by features: data and pictures."""
    from tfr_moe.analysis.attention_maps import write_attention

    found = write_attention(
        run, data, out, by or [], split, positions, block, batch_size, overwrite
    )
    stderr().print(
        f"wrote {out}: attention in {found['lists']} lists by {', '.join(found['maps'])}",
        soft_wrap=True,
        highlight=False,
    )


def export_vectors(
    run: Annotated[Path, typer.Option("--run", help="a finished run of click_model")],
    out: Annotated[Path, typer.Option("--out", help="MODELS/NAME; a new version appears below it")],
) -> None:
    """Export the personalised vectors of a click model."""
    from tfr_moe.vectors import export_vectors as run_export

    stderr().print(f"wrote {run_export(run, out)}", soft_wrap=True)


def join_vectors(
    context: typer.Context,
    model: Annotated[Path, typer.Option("--model", help="MODELS/NAME of export-vectors")],
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="data-set folder to make")],
    name: Annotated[
        str, typer.Option("--name", help="of the new feature of the items")
    ] = "personal_vector",
    batch_size: Annotated[int, typer.Option("--batch-size", help="lists per batch", min=1)] = 128,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace --out")] = False,
) -> None:
    """Put a model's vectors into a data set; options of Apache Beam may follow after --."""
    from tfr_moe.progress import progress_bar
    from tfr_moe.vectors import join_vectors as run_join

    with progress_bar(stderr(), "joining") as progress:
        lists = run_join(
            model,
            data,
            out,
            name,
            batch_size,
            overwrite,
            context.args,
            lambda stage, *amounts: progress(*amounts, stage),
        )
    told = ", ".join(f"{split} {count}" for split, count in lists.items())
    stderr().print(f"wrote {out}: {name} in lists: {told}", soft_wrap=True, highlight=False)
