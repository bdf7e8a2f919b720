"""Vectors of items, by an exported model, as a feature of a data set: lists in, the same lists out.

record files -> RunInference -> records with vectors -> files of the same names \\
                                           statistics of the training vectors --> statistics.json
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from numpy.typing import NDArray

from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, read_json, write_json
from tfr_moe.schema import (
    MANIFEST_FILE,
    PACKED,
    SCHEMA_FILE,
    SPLITS,
    STATISTICS_FILE,
    Feature,
    FeatureSchema,
)

from . import progress as listening
from .inference import SavedModelHandler
from .lists import read_records
from .progress import Progress
from .records import check_checksums, write_records
from .running import is_embedded, running
from .shuffle import UseGroups
from .transforms.statistics import Moments, described, merge, moments_of, no_moments

VECTORS = "vectors"
_TRAINING = "training"

Floats: TypeAlias = NDArray[np.float32]
Read = tuple[tuple[int, int, bytes], bytes]
"""((file, record, serialized list), serialized list): the first to put the vectors into."""


@dataclass(frozen=True)
class JoinOptions:
    """The options of `join`.

    Attributes:
        model: folder of a SavedModel whose default signature takes serialized lists [B] and gives
            `vectors` [B, L, width].
        width: of the vectors.
        data: data-set folder.
        out: data-set folder to make.
        name: of the new feature.
        batch_size: lists that the model is given at a time.
        overwrite: replace `out` if it exists.
        beam_args: arguments for Beam.
    """

    model: str
    width: int
    data: Path
    out: Path
    name: str
    batch_size: int = 128
    overwrite: bool = False
    beam_args: tuple[str, ...] = ()


class Vectors(SavedModelHandler[bytes, Floats]):
    """Serialized `ExampleListWithContext` -> vectors [L, width] of its places, padding behind them."""

    element = "a list"

    def answers(self, outputs: Mapping[str, Any]) -> list[Floats]:
        """See `SavedModelHandler`."""
        return list(outputs[VECTORS].numpy().astype(np.float32))


def with_vectors(schema: FeatureSchema, name: str, width: int) -> FeatureSchema:
    """The schema with one more numeric feature of the items.

    Raises:
        UserError: for a name that is taken or none.
    """
    described_already = {feature.name for feature in schema.features} | {*schema.role_columns()}
    if name in described_already:
        raise UserError(f"--name {name}: the data has a column of that name already")
    try:
        feature = Feature.model_validate(
            {"name": name, "scope": "example", "kind": "numeric", "width": width}
        )
    except ValueError:
        raise UserError(f"--name {name!r}: must be letters, digits and _") from None
    return schema.model_copy(update={"features": (*schema.features, feature)})


class VectorWriter:
    """Puts vectors into a serialized list.

    Args:
        schema: of the list as it is.
        name: of the new feature.
    """

    def __init__(self, schema: FeatureSchema, name: str):
        from tensorflow_serving.apis import input_pb2

        self._parse = input_pb2.ExampleListWithContext.FromString
        # The new feature is the schema's last, so its values stand behind the packed ones.
        self._place = PACKED["example"] if schema.packed else name

    def __call__(self, record: bytes, vectors: Floats) -> tuple[bytes, Floats]:
        """The new record, and the vectors of the items that it has."""
        message = self._parse(record)
        found = vectors[: len(message.examples)]
        for example, vector in zip(message.examples, found.tolist(), strict=True):
            example.features.feature[self._place].float_list.value.extend(vector)
        return message.SerializeToString(deterministic=True), found


class _ReadLists(beam.DoFn):
    """(index, path, size) of a TFRecord file -> `Read`."""

    def process(self, file: tuple[int, str, int]) -> Iterator[Read]:
        index, path, size = file
        for number, record in read_records(path, size, listening.advance):
            yield (index, number, record), record


class _Join(beam.DoFn):
    """(key of `Read`, vectors) -> (file, (record's number, new record)); vectors of the training split."""

    def __init__(self, schema: FeatureSchema, name: str, files: list[Path]):
        self._schema, self._name = schema, name
        self._files = [path.name for path in files]

    def setup(self) -> None:
        """Imports the messages on the worker."""
        self._write = VectorWriter(self._schema, self._name)

    def process(self, answered: tuple[Any, Floats]) -> Iterator[Any]:
        (index, number, record), vectors = answered
        joined, found = self._write(record, vectors)
        if not np.isfinite(found).all():
            name = self._files[index]
            raise UserError(f"{name}, record {number}: the model's vector is not finite")
        if self._files[index].startswith("train-") and len(found):
            yield beam.pvalue.TaggedOutput(_TRAINING, found)
        yield index, (number, joined)


class _Moments(beam.CombineFn):
    """Vectors [n, width] -> `Moments`."""

    def __init__(self, width: int):
        self._width = width

    def create_accumulator(self) -> Moments:
        return no_moments(self._width)

    def add_input(self, moments: Moments, vectors: Floats) -> Moments:
        return merge(moments, moments_of(vectors.astype(np.float64)))

    def merge_accumulators(self, accumulators: Iterable[Moments]) -> Moments:
        merged = self.create_accumulator()
        for moments in accumulators:
            merged = merge(merged, moments)
        return merged

    def extract_output(self, moments: Moments) -> Moments:
        return moments


def join(options: JoinOptions, progress: Progress | None = None) -> dict[str, int]:
    """Writes the data set anew with the model's vectors as a feature, file by file and list by list.

    Labels, splits, order and all other features stay as they are; the mean and deviation of the vectors
    are those of the training split.

    Args:
        options: model, data, name and output.
        progress: as for `build`.

    Returns:
        The number of lists by split.

    Raises:
        UserError: for whatever can't work, in one line; `out` is then not there.
    """
    check_checksums()
    schema = FeatureSchema.load(options.data / SCHEMA_FILE)
    joined = with_vectors(schema, options.name, options.width)
    files = [path for split in SPLITS for path in sorted(options.data.glob(f"{split}-*-of-*.gz"))]
    if not files:
        raise UserError(f"data {options.data}: there are no {SPLITS[0]}-*.tfrecord.gz files")
    with complete_folder(options.out, options.overwrite) as folder:
        work = folder / ".work"
        work.mkdir()
        sizes = [path.stat().st_size for path in files]
        with (
            listening.listening(progress, sum(sizes), len(files)),
            running(options.beam_args) as pipeline,
        ):
            _assemble(pipeline, options, schema, files, folder)
        counts = _described(options, joined, files, folder)
        shutil.rmtree(work)
    return counts


def _assemble(
    pipeline: beam.Pipeline,
    options: JoinOptions,
    schema: FeatureSchema,
    files: list[Path],
    folder: Path,
) -> None:
    work = folder / ".work"
    runs = str(work / "runs") if is_embedded(pipeline) else None
    handler = KeyedModelHandler(Vectors(options.model, options.batch_size))
    names = [path.name for path in files]
    given = [(at, str(path), path.stat().st_size) for at, path in enumerate(files)]

    def write(index: int, found: Any) -> int:
        write_records(folder / names[index], (record for _, record in found))
        listening.advance(1, "write")
        return index

    made = (
        pipeline
        | beam.Create(given, reshuffle=False)
        | beam.Reshuffle()
        | "Read" >> beam.ParDo(_ReadLists())
        | "Vectors" >> RunInference(handler)
        | "Join"
        >> beam.ParDo(_Join(schema, options.name, files)).with_outputs(_TRAINING, main="lists")
    )
    _ = made.lists | "Write" >> UseGroups(write, itemgetter(0), runs)
    columns = [f"{options.name}[{i}]" for i in range(options.width)]
    _ = (
        made[_TRAINING]
        | "Moments" >> beam.CombineGlobally(_Moments(options.width))
        | "Describe" >> beam.Map(partial(described, columns))
        | "WriteStatistics" >> beam.Map(partial(write_json, work / STATISTICS_FILE))
    )


def _described(
    options: JoinOptions, schema: FeatureSchema, files: list[Path], folder: Path
) -> dict[str, int]:
    """Writes what stands beside the records; the number of lists by split."""
    for path in files:
        if not (folder / path.name).exists():
            write_records(folder / path.name, [])
    columns = schema.feature(options.name).columns
    found = read_json(folder / ".work" / STATISTICS_FILE)
    if not found:
        raise UserError(f"data {options.data}: the training split has no items")
    statistics = read_json(options.data / STATISTICS_FILE)
    own = dict(zip(columns, found.values(), strict=True))
    statistics["example"] = {**statistics.get("example", {}), **own}
    write_json(folder / STATISTICS_FILE, statistics)
    schema.save(folder / SCHEMA_FILE)
    if (options.data / "vocabulary").is_dir():
        shutil.copytree(options.data / "vocabulary", folder / "vocabulary")
    manifest = read_json(options.data / MANIFEST_FILE) or {}
    about = {"data": str(options.data.resolve()), "model": options.model, "width": options.width}
    joined = {**manifest.get("joined", {}), options.name: about}
    write_json(folder / MANIFEST_FILE, {**manifest, "joined": joined})
    splits = manifest.get("splits", {})
    return {name: part["lists"] for name, part in splits.items() if "lists" in part}
