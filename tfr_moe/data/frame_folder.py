"""Data frames -> a data-set folder on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.data.folder import DataFolder
from tfr_moe.data.frame_tables import serialized_lists
from tfr_moe.data.frames import scoring_data, training_data
from tfr_moe.data.limits import Log
from tfr_moe.schema import (
    MANIFEST_FILE,
    FeatureSchema,
    description_files,
    shard_file,
    shard_files,
)
from tfr_moe.utils.digests import write_manifest
from tfr_moe.utils.io import atomic_directory


def write_frames(
    out: str | Path, train: Any, validation: Any, test: Any, schema: FeatureSchema, log: Log
) -> DataFolder:
    """Writes a data set of one file per split; `build` writes more files, in parallel.

    Args:
        out: the folder to make.
        train: data frame with the training lists.
        validation: data frame; None takes lists from `train`, see `training_data`.
        test: data frame with the test lists.
        schema: describes all three.
        log: prints a line on what is lost.

    Raises:
        UserError: for a frame that does not fit the schema, or a folder that cannot be made.
    """
    data = training_data(train, validation, schema, out, log=log)
    splits = {
        **data.splits,
        **scoring_data(test, schema, "test", True, log, data.categories)[0].splits,
    }
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    counts = {}
    with atomic_directory(out) as folder:
        data.copy_description(folder)
        for name, split in splits.items():
            arrays = tf.nest.map_structure(lambda tensor: tensor.numpy(), split)
            counts[name] = {"lists": len(arrays.row_splits) - 1}
            records = serialized_lists(schema, arrays, counts[name]["lists"])
            with tf.io.TFRecordWriter(str(folder / shard_file(name, 0, 1)), options) as file:
                for record in records:
                    file.write(record)
        names = [*description_files(folder), *shard_files(folder)]
        write_manifest(folder / MANIFEST_FILE, {"format": 1, "splits": counts}, names)
    return DataFolder(out)
