"""Initial lists for re-rankers, scored by any ranker without leakage: cross-fitted in folds.

As in [Pobrotyn et al. 2020](https://arxiv.org/abs/2005.10084), section 5.5: k rankers are trained
on k - 1 folds of the training lists each, and each scores the fold that it has not seen. A ranker
trained on all training lists scores validation and test. Lists are then ordered by the scores.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tfr_moe._compat import tf
from tfr_moe.baselines import open_run, train_any
from tfr_moe.config import RunConfig
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.elwc.values import list_id_of
from tfr_moe.errors import UserError
from tfr_moe.schema import (
    MANIFEST_FILE,
    MASK,
    PACKED,
    SCHEMA_FILE,
    STATISTICS_FILE,
    FeatureSchema,
    shard_file,
    write_manifest,
)
from tfr_moe.scorers.multitask import SCORES
from tfr_moe.utils.console import progress_bar
from tfr_moe.utils.io import atomic_directory, check_inputs_outside, write_json

__all__ = ["fold_of", "reordered", "rerank_data", "scored_records", "with_initial_list"]


def __dir__() -> list[str]:
    return __all__


Scores = NDArray[np.floating[Any]]
SCORE, POSITION = "initial_score", "initial_position"
_BATCH_SIZE = 128


def rerank_data(
    data: str | Path,
    out: str | Path,
    config: RunConfig,
    folds: int = 5,
    console: Console | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes a data set of initial lists in `out`, which appears only when complete.

    `config` is that of the ranker, of any model. Returns the number of lists of each split.
    """
    console = console or Console(stderr=True)
    folder, out = DataFolder(data), Path(out)
    if folds < 2:
        raise UserError(f"folds must be 2 or more. Received: {folds}")
    schema = with_initial_list(folder.schema)
    check_inputs_outside(out, [folder.path])
    with atomic_directory(out, MANIFEST_FILE if overwrite else None) as partial:
        work = partial / "work"
        sources: dict[str, list[tuple[Path, str, Path]]] = {"train": []}
        for fold, without in enumerate(_make_folds(folder, work, folds, console)):
            run = work / "runs" / str(fold)
            _train(without, run, config, console, f"fold {fold + 1}/{folds}")
            sources["train"].append((without, "test", run))
        run = work / "runs" / "all"
        _train(folder.path, run, config, console, "all training lists")
        for split in ("validation", "test"):
            if folder.num_lists(split) != 0:
                sources[split] = [(folder.path, split, run)]
        scores = _write_splits(partial, sources, schema, console)
        shutil.rmtree(work)
        _write_description(folder, partial, schema, scores, config, folds)
    return {split: len(of_split) for split, of_split in scores.items()}


def _train(data: Path, run: Path, config: RunConfig, console: Console, lists: str) -> None:
    console.print(f"{config.model} on {lists}", highlight=False)
    train_any(data, run, config, console)


def with_initial_list(schema: FeatureSchema) -> FeatureSchema:
    """The schema of re-ranking data: `initial_score` is a numeric feature of the items.

    The display position becomes the position in the initial list, named `initial_position` if the
    schema has no position.
    """
    if SCORE in [feature.name for feature in schema.features]:
        raise UserError(f"the data already has a feature {SCORE!r}; use the original data set")
    score = {"name": SCORE, "scope": "example", "kind": "numeric", "required": True}
    described = schema.as_dict()
    features, position = [*described["features"], score], schema.position or POSITION
    return FeatureSchema.of({**described, "features": features, "position": position})


def reordered(serialized: bytes, scores: Scores, schema: FeatureSchema) -> bytes:
    """Orders a list by the scores of its items, ties as they are; adds score and position."""
    from tensorflow_serving.apis import input_pb2

    before = input_pb2.ExampleListWithContext.FromString(serialized)
    after = input_pb2.ExampleListWithContext(context=before.context)
    column = PACKED["example"] if schema.packed else SCORE
    order = np.argsort(-np.asarray(scores), kind="stable")
    for position, index in enumerate(order, start=1):
        item = after.examples.add()
        item.CopyFrom(before.examples[index])
        # The last feature of the schema is the last of the packed numbers.
        item.features.feature[column].float_list.value.append(float(scores[index]))
        item.features.feature[schema.position].float_list.value[:] = [float(position)]
    return after.SerializeToString(deterministic=True)


def scored_records(data: Path, split: str, run: Path) -> Iterator[tuple[bytes, Scores]]:
    """Yields the records of a split in file order, each with the run's scores of its items."""
    builder = ElwcDatasetBuilder(DataFolder(data), _BATCH_SIZE)
    records = builder.serialized_lists(split).batch(_BATCH_SIZE)
    batches = tf.data.Dataset.zip((records, builder.build_parsed_dataset(split)))
    ranker = open_run(run)
    for serialized, features in batches:
        outputs = ranker.score(features)
        scores = (outputs[SCORES] if isinstance(outputs, dict) else outputs).numpy()
        masks = features[MASK].numpy()
        for record, of_list, mask in zip(serialized.numpy(), scores, masks, strict=True):
            yield record, of_list[mask]


def fold_of(list_id: str, folds: int) -> int:
    """The fold of a list, the same in every run."""
    return int.from_bytes(hashlib.blake2b(list_id.encode(), digest_size=8).digest(), "big") % folds


def _record_writer(path: Path) -> Any:
    return tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP"))


def _make_folds(folder: DataFolder, work: Path, folds: int, console: Console) -> list[Path]:
    """Makes a data set `without-<fold>` for each fold: the others for training, it for test."""
    counts = [0] * folds
    names = [shard_file("fold", fold, folds) for fold in range(folds)]
    records = ElwcDatasetBuilder(folder).serialized_lists("train").as_numpy_iterator()
    (work / "folds").mkdir(parents=True)
    with progress_bar(console, "splitting the training lists") as move:
        writers = [_record_writer(work / "folds" / name) for name in names]
        for done, record in enumerate(records, start=1):
            fold = fold_of(list_id_of(folder.schema, record), folds)
            writers[fold].write(record)
            counts[fold] += 1
            move(done, folder.num_lists("train"))
        for writer in writers:
            writer.close()
    if not all(counts):
        raise UserError(
            f"data {folder.path}: {sum(counts)} training lists are too few for {folds} folds"
        )
    return [_make_fold(folder, work, fold, names, counts) for fold in range(folds)]


def _make_fold(
    folder: DataFolder, work: Path, fold: int, names: list[str], counts: list[int]
) -> Path:
    path = work / f"without-{fold}"
    folder.copy_description(path)
    others = [name for number, name in enumerate(names) if number != fold]
    for number, name in enumerate(others):
        os.symlink(f"../folds/{name}", path / shard_file("train", number, len(others)))
    os.symlink(f"../folds/{names[fold]}", path / shard_file("test", 0, 1))
    for file in folder.files("validation"):
        os.symlink(os.path.abspath(file), path / Path(file).name)
    lists = {
        "train": sum(counts) - counts[fold],
        "validation": folder.num_lists("validation"),
        "test": counts[fold],
    }
    splits = {split: {"lists": number} for split, number in lists.items()}
    write_json(path / MANIFEST_FILE, {"splits": splits})
    return path


def _write_splits(
    out: Path,
    sources: dict[str, list[tuple[Path, str, Path]]],
    schema: FeatureSchema,
    console: Console,
) -> dict[str, list[Scores]]:
    """Writes the records; returns the scores of the lists of each split."""
    scores: dict[str, list[Scores]] = {split: [] for split in sources}
    for split, of_split in sources.items():
        with progress_bar(console, f"scoring {split}") as move:
            for number, (data, part, run) in enumerate(of_split):
                path = out / shard_file(split, number, len(of_split))
                with _record_writer(path) as writer:
                    for record, of_list in scored_records(data, part, run):
                        writer.write(reordered(record, of_list, schema))
                        scores[split].append(np.asarray(of_list, np.float64))
                        move(len(scores[split]))
    return scores


def _write_description(
    folder: DataFolder,
    out: Path,
    schema: FeatureSchema,
    scores: dict[str, list[Scores]],
    config: RunConfig,
    folds: int,
) -> None:
    """Writes schema, statistics, vocabularies and manifest of the new data set."""
    folder.copy_description(out)
    schema.save(out / SCHEMA_FILE)
    values = np.concatenate(scores["train"])
    moments = {name: float(getattr(values, name)()) for name in ("mean", "std", "min", "max")}
    statistics: dict[str, Any] = dict(folder.statistics)
    of_items = {**statistics.get("example", {}), SCORE: {"count": len(values), **moments}}
    write_json(out / STATISTICS_FILE, {**statistics, "example": of_items})
    described = {
        **folder.manifest,
        "splits": {
            split: {"lists": len(of_split), "items": sum(map(len, of_split))}
            for split, of_split in scores.items()
        },
        "initial_lists": {
            "data": str(folder.path.resolve()),
            "folds": folds,
            "ranker": config.changed(),
        },
    }
    write_manifest(out, described)
