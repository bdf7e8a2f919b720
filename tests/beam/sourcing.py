"""Runs a source alone and gives its rows, without the rest of a build."""

import pickle
from pathlib import Path

import apache_beam as beam

from tfr_moe.beam.runner import running
from tfr_moe.beam.sources import SourceRows, get_source, parse_options
from tfr_moe.schema import FeatureSchema


def _dump(value, folder, name):
    path = Path(folder, name)
    with open(path, "ab") as file:
        pickle.dump(value, file)


def _load(path):
    result = []
    if path.exists():
        with open(path, "rb") as file:
            while True:
                try:
                    result.append(pickle.load(file))
                except EOFError:
                    break
        path.unlink()
    return result


def elements(tmp_path, read):
    """What a transform of a pipeline makes."""
    with running(()) as pipeline:
        _ = pipeline | read | beam.Map(_dump, folder=str(tmp_path), name="elements")
    return _load(tmp_path / "elements")


def rows_of(tmp_path, source, pattern, schema, *settings):
    """(rows in the order of file, line and place; counts; rejects) of a source."""
    chosen = get_source(source)
    options = parse_options(chosen.options, settings, f"source {source}")
    if schema is None:
        schema = chosen.schema(str(pattern), options)
    elif isinstance(schema, dict):
        schema = FeatureSchema.model_validate(schema)
    given = chosen(str(pattern), schema, options)
    with running(()) as pipeline:
        sourced = pipeline | given.rows
        whole = isinstance(sourced, SourceRows)
        parts = {"batches": sourced.batches if whole else sourced}
        if whole:
            parts |= {"counts": sourced.counts, "rejects": sourced.rejects}
        for name, part in parts.items():
            _ = part | f"Dump {name}" >> beam.Map(_dump, folder=str(tmp_path), name=name)
    rows = [row for batch in _load(tmp_path / "batches") for row in batch]
    rows.sort(key=lambda row: (row.file, row.line, row.order))
    counts = {}
    for key, count in _load(tmp_path / "counts"):
        counts[key] = counts.get(key, 0) + count
    return rows, counts, sorted(_load(tmp_path / "rejects"), key=lambda reject: reject[:2])
