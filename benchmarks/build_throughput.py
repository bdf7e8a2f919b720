"""Speed of `tfr-moe build`, against a plain Python loop that writes the same records.

    python benchmarks/build_throughput.py [--json FILE] [--quick]

The loop reads the rows with `csv.reader`, groups them in a dict, makes the protos of `tf.Example`
and writes gzip TFRecord with TensorFlow's own writer, at the compression level of the pipeline. It
checks nothing, counts nothing, makes no splits, vocabularies or statistics, and holds all rows in
memory. Both write the same lists, which is checked by comparing the parsed records.

Both run in this process on one core, one after the other, in random order; the ratio is
one of CPU seconds within a round. Above 1 the pipeline is faster.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorflow_serving.apis import input_pb2
from timing import machine, parser_of, ratio, run_rounds, write

from tfr_moe._compat import tf
from tfr_moe.beam import BuildOptions, build
from tfr_moe.schema import FeatureSchema
from tfr_moe.synthetic import SearchLogOptions, generate

GZIP_LEVEL = 4
LAYOUTS = {"packed": True, "scalar": False}


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__, rounds=7)
    parser.add_argument("--sessions", type=int, default=12_000, help="lists of the synthetic log")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sessions, arguments.rounds = 500, 2
    return arguments


class PlainLoop:
    """A plain loop without this project."""

    def __init__(self, files: list[Path], schema: FeatureSchema, out: Path):
        self._files, self._schema, self._out = files, schema, out

    def run(self) -> None:
        lists: dict[str, list[list[str]]] = {}
        for path in self._files:
            with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
                reader = csv.reader(file)
                self._at = {name: at for at, name in enumerate(next(reader))}
                key = self._at[self._schema.list_id]
                for row in reader:
                    lists.setdefault(row[key], []).append(row)
        options = tf.io.TFRecordOptions("GZIP", compression_level=GZIP_LEVEL)
        with tf.io.TFRecordWriter(str(self._out), options) as writer:
            for list_id, rows in lists.items():
                writer.write(self._record(list_id, rows))

    def _record(self, list_id: str, rows: list[list[str]]) -> bytes:
        schema = self._schema
        assert schema.position is not None
        column = self._at[schema.position]
        proto = input_pb2.ExampleListWithContext()
        self._fill(proto.context.features.feature, "context", rows[0])
        proto.context.features.feature[schema.list_id].bytes_list.value.append(list_id.encode())
        for row in sorted(rows, key=lambda row: int(row[column])):
            features = proto.examples.add().features.feature
            self._fill(features, "example", row)
            for name in (*schema.labels, schema.position):
                features[name].float_list.value.append(float(row[self._at[name]]))
        return proto.SerializeToString()

    def _fill(self, features: Any, scope: Any, row: list[str]) -> None:
        at = self._at
        numerics = [feature.name for feature in self._schema.select(scope, "numeric")]
        if self._schema.packed:
            values = [float(row[at[name]]) for name in numerics]
            features[f"{scope}_numeric"].float_list.value.extend(values)
        else:
            for name in numerics:
                features[name].float_list.value.append(float(row[at[name]]))
        for feature in self._schema.select(scope, "categorical"):
            features[feature.name].bytes_list.value.append(row[at[feature.name]].encode())
        for feature in self._schema.select(scope, "categorical_list"):
            length = feature.max_length
            texts = [text for text in row[at[feature.name]].split("|") if text][-length:]
            padded = texts + [""] * (length - len(texts))
            features[feature.name].bytes_list.value.extend([text.encode() for text in padded])


def messages(files: list[Path]) -> Iterator[Any]:
    dataset = tf.data.TFRecordDataset(list(map(str, files)), compression_type="GZIP")
    for record in dataset.as_numpy_iterator():
        yield input_pb2.ExampleListWithContext.FromString(record)


def canonical(files: list[Path]) -> set[bytes]:
    """The records, each with its map entries in one order: protobuf does not define the order."""
    return {message.SerializeToString(deterministic=True) for message in messages(files)}


def cpu_seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(layout: str, logs: Path, work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    schema = FeatureSchema.load(logs / "schema.yaml").model_copy(update={"packed": LAYOUTS[layout]})
    schema_file = work / f"{layout}.json"
    schema.save(schema_file)
    files = sorted(logs.glob("logs-*"))
    loop = PlainLoop(files, schema, work / f"{layout}.tfrecord.gz")
    options = BuildOptions(
        "search-logs", f"{logs}/logs-*", str(schema_file), work / layout, overwrite=True
    )
    manifest = build(options)
    loop.run()
    same = canonical([work / f"{layout}.tfrecord.gz"]) == canonical(
        sorted((work / layout).glob("*.tfrecord.gz"))
    )
    if not same:
        raise SystemExit(f"{layout}: the loop and the pipeline wrote different lists")
    contestants: dict[str, Callable[[], Any]] = {
        "loop": lambda: cpu_seconds(loop.run),
        "pipeline": lambda: cpu_seconds(lambda: build(options)),
    }
    rounds = run_rounds(contestants, arguments.rounds, arguments.seed, warm_up=0)
    rows = manifest["rows"]["read"]
    return {
        "rows": rows,
        "columns": len(schema.features) + len(schema.role_columns()),
        "rows_per_cpu_second": {
            name: round(rows / statistics.median([r[name] for r in rounds])) for name in contestants
        },
        "ratio": ratio(rounds, "loop", "pipeline"),
    }


def main() -> None:
    arguments = parse_arguments()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    work = Path(tempfile.mkdtemp(prefix="build-throughput-"))
    try:
        logs = work / "logs"
        generate(logs, SearchLogOptions(sessions=arguments.sessions, num_files=4))
        compared = {layout: compare(layout, logs, work, arguments) for layout in LAYOUTS}
    finally:
        shutil.rmtree(work)
    result = {"machine": machine(), "rounds": arguments.rounds, "layouts": compared}
    print(result["machine"])
    for layout, numbers in compared.items():
        speed, faster = numbers["rows_per_cpu_second"], numbers["ratio"]
        print(
            f"{layout}: {numbers['rows']:,} rows of {numbers['columns']} columns; "
            f"loop {speed['loop']:,}, pipeline {speed['pipeline']:,} rows a CPU second; "
            f"ratio {faster['median']} (quartiles {faster['low']} to {faster['high']})"
        )
    write(result, arguments.json)


if __name__ == "__main__":
    main()
