"""Small search logs for the tests: rows as dicts, written in any format."""

import csv
import gzip
import json
import struct

import yaml

from tfr_moe.beam import BuildOptions, build

SCHEMA = {
    "list_id": "session",
    "time": "time",
    "position": "position",
    "labels": ["purchase"],
    "hierarchy": {"child": "sub", "parent": "top"},
    "features": [
        {"name": "top", "scope": "context", "kind": "categorical"},
        {"name": "sub", "scope": "context", "kind": "categorical"},
        {"name": "age", "scope": "context", "kind": "numeric"},
        {"name": "history", "scope": "context", "kind": "categorical_list", "max_length": 3},
        {"name": "item", "scope": "example", "kind": "categorical"},
        {
            "name": "price",
            "scope": "example",
            "kind": "numeric",
            "transform": "log1p",
            "required": True,
        },
        {"name": "score", "scope": "example", "kind": "numeric"},
    ],
}


def log_rows(sessions=20, items=3):
    """Session s at time 1000 + s shows items in positions 1, 2, 3; the first one is bought."""
    return [
        {
            "session": f"s{s}",
            "time": 1000 + s,
            "position": i + 1,
            "purchase": int(i == 0),
            "top": "Books" if s % 2 else "Foods",
            "sub": f"c{s % 4}",
            "age": 20.5 + s,
            "history": "|".join(f"i{k}" for k in range(s % 5)),
            "item": f"i{(s + i) % 7}",
            "price": 1.5 * (i + 1),
            "score": float(s * items + i),
        }
        for s in range(sessions)
        for i in range(items)
    ]


def write_schema(folder, **changes):
    path = folder / "schema.yaml"
    path.write_text(yaml.safe_dump({**SCHEMA, **changes}))
    return path


def open_text(path):
    return (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="")


def write_csv(path, rows):
    with open_text(path) as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path, rows):
    with open_text(path) as file:
        for row in rows:
            row = {**row, "history": row["history"].split("|") if row["history"] else []}
            file.write(json.dumps(row) + "\n")
    return path


def write_parquet(path, rows):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["history"] = [text.split("|") if text else [] for text in columns["history"]]
    parquet.write_table(pa.table(columns), path, row_group_size=7)
    return path


def run(tmp_path, pattern, out="data", progress=None, schema=None, **options):
    """Builds `tmp_path / out` from the files; gives the manifest and the folder."""
    path = write_schema(tmp_path, **(schema or {}))
    folder = tmp_path / out
    made = build(
        BuildOptions("search-logs", str(pattern), path, folder, **{"max_lost": 1.0, **options}),
        progress,
    )
    return made, folder


def records(folder, split=None):
    """Serialized lists of a data set, in the order of the files."""
    for path in sorted(folder.glob(f"{split or ''}*.tfrecord.gz")):
        yield from file_records(path)


def file_records(path):
    data = gzip.decompress(path.read_bytes())
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + length]
        at += 16 + length


def list_ids(folder, split):
    """Ids of a split's lists."""
    from tensorflow_serving.apis import input_pb2

    parse = input_pb2.ExampleListWithContext.FromString
    return [
        parse(record).context.features.feature["session"].bytes_list.value[0].decode()
        for record in records(folder, split)
    ]


def tree(folder):
    """Path -> bytes of all files but the manifest, which has the time of the build."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
