"""The training lists in folds, as data sets that each leave one of them out."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from rich.console import Console

from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, write_json
from tfr_moe.reranking.lists import record_writer
from tfr_moe.schema import MANIFEST_FILE, FeatureSchema, shard_file


def fold_of(list_id: str, folds: int) -> int:
    """The fold of a list, the same in every run.

    Example:
        >>> 0 <= fold_of("query 7", 5) < 5
        True
    """
    return int.from_bytes(hashlib.blake2b(list_id.encode(), digest_size=8).digest(), "big") % folds


def list_id_of(serialized: bytes, schema: FeatureSchema) -> str:
    """The id of a serialized list."""
    from tensorflow_serving.apis import input_pb2

    found = input_pb2.ExampleListWithContext.FromString(serialized)
    return found.context.features.feature[schema.list_id].bytes_list.value[0].decode("utf-8")


def make_folds(folder: DataFolder, work: Path, folds: int, console: Console) -> None:
    """A data set `without-<fold>` for each fold: trained on the others, with the fold for its test."""
    if (work / "folds").is_dir():
        return
    counts = [0] * folds
    names = [shard_file("fold", fold, folds) for fold in range(folds)]
    with (
        console.status("cutting the training lists into folds"),
        complete_folder(work / "folds") as partial,
    ):
        writers = [record_writer(partial / name) for name in names]
        for record in ElwcDatasetBuilder(folder).serialized_lists("train").as_numpy_iterator():
            fold = fold_of(list_id_of(record, folder.schema), folds)
            writers[fold].write(record)
            counts[fold] += 1
        for writer in writers:
            writer.close()
        if not all(counts):
            raise UserError(
                f"data {folder.path}: {sum(counts)} training lists don't fill {folds} folds"
            )
        for fold in range(folds):
            _without(folder, work / f"without-{fold}", fold, names, counts)


def _without(
    folder: DataFolder, path: Path, fold: int, names: list[str], counts: list[int]
) -> None:
    shutil.rmtree(path, ignore_errors=True)
    folder.copy_description(path)
    others = [name for place, name in enumerate(names) if place != fold]
    for number, name in enumerate(others):
        os.symlink(f"../folds/{name}", path / shard_file("train", number, len(others)))
    os.symlink(f"../folds/{names[fold]}", path / shard_file("test", 0, 1))
    for file in folder.files("validation"):
        os.symlink(os.path.abspath(file), path / Path(file).name)
    lists = {"train": sum(counts) - counts[fold], "test": counts[fold]}
    validation = folder.num_lists("validation")
    splits = {split: {"lists": number} for split, number in lists.items()}
    if validation is not None:
        splits["validation"] = {"lists": validation}
    write_json(path / MANIFEST_FILE, {"splits": splits})
