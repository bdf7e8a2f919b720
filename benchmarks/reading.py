"""Cost of reading: packed numerics against scalar features, and a cache against the records.

    python benchmarks/reading.py [--columns 30] [--lists 2048] [--json FILE] [--quick]

The same lists of about 30 items, with 6 ids and 30 or 300 numerics, in gzip TFRecords:

packed    the library's layout: all numerics of an item in one float feature of fixed width
scalar    one feature of variable length for each column, read by `tfr.data.build_ranking_dataset`
          as TFR's own examples do it
memory    the packed records parsed once, batches gathered from memory

Each pass reads every batch of 32 lists and discards it. Parsing alone is timed too: one batch of
either layout from memory, without files and gzip. Passes take turns, see
`timing`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import machine, parser_of, ratio, ratio_line, run_rounds, seconds_of, write

from tfr_moe._compat import tf, tfr
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.data.builder import cached
from tfr_moe.elwc.encoder import ScopeEncoder
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.schema import STATISTICS_FILE, FeatureSchema, shard_file

BATCH = 32
IDS = 6
PARSED = 20


def schema_of(columns: int, packed: bool) -> FeatureSchema:
    return FeatureSchema.model_validate(
        {
            "list_id": "query",
            "labels": ["purchase"],
            "packed": packed,
            "features": [
                *(
                    {"name": f"id{i}", "scope": "example", "kind": "categorical", "hash_buckets": 9}
                    for i in range(IDS)
                ),
                *({"name": f"n{i}", "scope": "example", "kind": "numeric"} for i in range(columns)),
            ],
        }
    )


def write_folder(path: Path, columns: int, packed: bool, lists: int, seed: int) -> DataFolder:
    """The same lists in either layout."""
    rng = np.random.default_rng(seed)
    schema = schema_of(columns, packed)
    encode_item = ScopeEncoder(schema, "example", {"purchase": 0.0}).typed
    path.mkdir()
    schema.save(path / "schema.json")
    (path / STATISTICS_FILE).write_text("{}")
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    for split, count in (("train", lists), ("validation", 2)):
        with tf.io.TFRecordWriter(str(path / shard_file(split, 0, 1)), options) as writer:
            for number in range(count):
                size = int(rng.integers(10, 51))
                values = rng.normal(size=[size, columns]).round(3)
                ids = rng.integers(0, 1000, [size, IDS])
                items = [
                    {
                        "purchase": float(i == 0),
                        **{f"id{j}": f"item{ids[i, j]}" for j in range(IDS)},
                        **{f"n{j}": float(values[i, j]) for j in range(columns)},
                    }
                    for i in range(size)
                ]
                bodies = [encode_item(item)[0] for item in items]
                writer.write(list_record(bodies, ids_entry("query", [str(number)])))
    return DataFolder(path)


def usual_spec(schema: FeatureSchema) -> dict[str, Any]:
    """A VarLen feature of each column, as in TFR's own examples."""
    spec: dict[str, Any] = {
        f.name: tf.io.VarLenFeature(tf.float32 if f.kind == "numeric" else tf.string)
        for f in schema.features
    }
    return {**spec, "purchase": tf.io.FixedLenFeature([1], tf.float32, -1.0)}


def usual(folder: DataFolder) -> tf.data.Dataset:
    """The scalar records as TFR's own examples read them."""
    return tfr.data.build_ranking_dataset(
        folder.files("train"),
        data_format=tfr.data.ELWC,
        batch_size=BATCH,
        context_feature_spec={},
        example_feature_spec=usual_spec(folder.schema),
        mask_feature_name="example_list_mask",
        reader=tf.data.TFRecordDataset,
        reader_args=["GZIP"],
        shuffle=True,
        num_epochs=1,
    )


def parsing(folder: DataFolder, spec: dict[str, Any]) -> Callable[[], Any]:
    """Parses the same batch of records repeatedly."""
    builder = ElwcDatasetBuilder(folder, batch_size=BATCH)
    records = next(iter(builder.serialized_lists("train").batch(BATCH)))

    @tf.function
    def parse() -> Any:
        parsed = tfr.data.parse_from_example_list(
            records,
            context_feature_spec={},
            example_feature_spec=spec,
            mask_feature_name="example_list_mask",
        )
        return tf.nest.flatten(parsed, expand_composites=True)

    def several() -> None:
        for _ in range(PARSED):
            parse()

    return several


def pass_over(make: Callable[[], tf.data.Dataset]) -> Callable[[], Any]:
    dataset = make()

    def read() -> None:
        for _ in dataset:
            pass

    return read


def compare(columns: int, arguments: Any, work: Path) -> dict[str, Any]:
    folders = {
        packed: write_folder(
            work / f"{columns}-{packed}", columns, packed, arguments.lists, arguments.seed
        )
        for packed in (True, False)
    }
    settings: dict[str, Any] = {"batch_size": BATCH, "seed": arguments.seed}
    builders = {
        "packed": ElwcDatasetBuilder(folders[True], **settings),
        "memory": ElwcDatasetBuilder(cached(folders[True], "memory"), **settings),
    }
    passes = {name: pass_over(b.build_train_dataset) for name, b in builders.items()}
    passes["scalar"] = pass_over(lambda: usual(folders[False]))
    rounds = run_rounds(passes, arguments.rounds, arguments.seed, warm_up=1)
    schema = folders[True].schema
    packed_spec = {**schema.feature_spec("example"), **schema.role_spec("example")}
    parsed = run_rounds(
        {
            "packed": parsing(folders[True], packed_spec),
            "scalar": parsing(folders[False], usual_spec(folders[False].schema)),
        },
        arguments.rounds,
        arguments.seed,
    )
    sizes = {
        "packed" if packed else "scalar": sum(Path(f).stat().st_size for f in folder.files("train"))
        for packed, folder in folders.items()
    }
    return {
        "lists_per_second": {
            name: round(arguments.lists / times["median"])
            for name, times in seconds_of(rounds).items()
        },
        "parsing alone, scalar / packed": ratio(parsed, "scalar", "packed"),
        "megabytes": {name: round(size / 1e6, 2) for name, size in sizes.items()},
        **{
            f"{slow} / {fast}": ratio(rounds, slow, fast)
            for slow, fast in (("scalar", "packed"), ("packed", "memory"))
        },
    }


def main() -> None:
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--lists", type=int, default=2048)
    parser.add_argument("--columns", type=int, action="append", help="numerics; 30 and 300")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.lists, arguments.rounds = 64, 2
    result: dict[str, Any] = {"machine": machine(), "lists": arguments.lists, "batch": BATCH}
    print(result["machine"])
    for columns in arguments.columns or (30, 300):
        with tempfile.TemporaryDirectory() as work:
            compared = result[f"{columns} numerics"] = compare(columns, arguments, Path(work))
        print(f"{columns} numerics: {compared['lists_per_second']} lists a second")
        for name, value in compared.items():
            if "/" in name:
                print(ratio_line(f"  {name}", value))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
