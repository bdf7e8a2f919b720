"""Writes a synthetic log: gzip files and their schema."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

from tfr_moe.elwc.values import LIST_SEPARATOR
from tfr_moe.utils.console import ProgressCallback
from tfr_moe.utils.io import atomic_directory, write_text

from .options import SearchLogOptions
from .sessions import HISTORY_LENGTH, Chunk, SessionGenerator
from .world import Words, World, build_world

# Gzip at level 3 is about three times as fast as the default and a tenth larger.
_GZIP_LEVEL = 3

# IDs are looked up in vocabularies of those seen at least twice in the training split.
_SCHEMA = f"""\
list_id: session_id
time: timestamp
position: position
labels: [purchase, click, cart]
hierarchy: {{child: sub_category, parent: top_category}}
features:
- {{name: top_category, scope: context, kind: categorical}}
- {{name: sub_category, scope: context, kind: categorical}}
- {{name: query_id, scope: context, kind: categorical, min_count: 2}}
- {{name: user_id, scope: context, kind: categorical, min_count: 2}}
- {{name: user_age, scope: context, kind: numeric}}
- {{name: user_purchase_power, scope: context, kind: numeric}}
- {{name: user_activeness, scope: context, kind: numeric, transform: log1p}}
- name: click_history
  scope: context
  kind: categorical_list
  max_length: {HISTORY_LENGTH}
  min_count: 2
- {{name: item_id, scope: example, kind: categorical, min_count: 2}}
- {{name: brand, scope: example, kind: categorical, min_count: 2}}
- {{name: item_top_category, scope: example, kind: categorical}}
- {{name: item_sub_category, scope: example, kind: categorical}}
- {{name: product_ctr, scope: example, kind: numeric}}
- {{name: product_cvr, scope: example, kind: numeric}}
- {{name: price, scope: example, kind: numeric, transform: log1p}}
- {{name: sales_volume, scope: example, kind: numeric, transform: log1p}}
- {{name: good_comments_ratio, scope: example, kind: numeric}}
- {{name: relevance_score, scope: example, kind: numeric}}
- {{name: user_sub_category_ctr, scope: example, kind: numeric}}
"""


def generate(
    out: str | Path, options: SearchLogOptions, progress: ProgressCallback | None = None
) -> None:
    """Writes `logs-*.csv.gz` and `schema.yaml` to `out`, a new or empty folder.

    The log is streamed: memory does not depend on the number of sessions. The same options give the
    same bytes. `progress` is called with the number of sessions done and of all.
    """
    world = build_world(options)
    generator, words, done = SessionGenerator(options, world), Words(options, world), 0
    with atomic_directory(out) as folder:
        for part in range(options.num_files):
            name = f"logs-{part:05d}-of-{options.num_files:05d}.csv.gz"
            with (
                open(folder / name, "wb") as raw,
                # No name and no time in the header, so that the same rows give the same bytes.
                gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as zipped,
                io.TextIOWrapper(zipped, encoding="utf-8", newline="") as file,
            ):
                writer = csv.writer(file, lineterminator="\n")
                for number, chunk in enumerate(generator.chunks(part)):
                    lists = _lists(chunk, world, words)
                    if number == 0:
                        writer.writerow(lists)
                    writer.writerows(zip(*lists.values(), strict=True))
                    done += len(chunk.history)
                    if progress is not None:
                        progress(done, options.sessions)
        write_text(folder / "schema.yaml", _SCHEMA)


def _lists(chunk: Chunk, world: World, words: Words) -> dict[str, list[Any]]:
    """Columns as lists of Python values; categories, brands, queries and products by name."""
    lists = {name: values.tolist() for name, values in chunk.columns.items()}
    for name, names in (("top_category", world.top_names), ("sub_category", world.sub_names)):
        for column in (name, f"item_{name}"):
            lists[column] = [names[index] for index in lists[column]]
    named = {"brand": words.brand, "query_id": words.query, "item_id": words.product}
    for column, name_of in named.items():
        lists[column] = [name_of(number) for number in lists[column]]
    history = [LIST_SEPARATOR.join(map(words.product, ids)) for ids in chunk.history]
    lists["click_history"] = [history[index] for index in lists["click_history"]]
    return lists
