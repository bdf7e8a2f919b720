"""Lists in their initial order: their schema, their records, and what scores them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe._compat import tf, tfr
from tfr_moe.comparison import open_run, scorer_of
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.score import compiled
from tfr_moe.schema import MASK, PACKED, Feature, FeatureSchema
from tfr_moe.scorers.multitask import SCORES

SCORE, POSITION = "initial_score", "initial_position"
_LISTS_AT_A_TIME = 128


def with_initial_list(schema: FeatureSchema) -> FeatureSchema:
    """The schema of re-ranking data: `initial_score` is a numeric of the items.

    The display position becomes the place in the initial list, `initial_position` where the schema
    named none.

    Raises:
        UserError: if the data has an initial score already.
    """
    if SCORE in [feature.name for feature in schema.features]:
        raise UserError(f"the data has a feature {SCORE!r} already: give the set that it came from")
    score = Feature.model_validate({"name": SCORE, "scope": "example", "kind": "numeric"})
    return FeatureSchema.model_validate(
        {
            **schema.model_dump(mode="json", exclude_defaults=True),
            "features": [
                feature.model_dump(mode="json", exclude_defaults=True)
                for feature in (*schema.features, score)
            ],
            "position": schema.position or POSITION,
        }
    )


def reordered(serialized: bytes, scores: Any, schema: FeatureSchema) -> bytes:
    """A list in the order of its scores, with score and place in each item.

    Args:
        serialized: `ExampleListWithContext`.
        scores: one for each item; equal ones keep their order.
        schema: that of the re-ranking data.
    """
    from tensorflow_serving.apis import input_pb2

    before = input_pb2.ExampleListWithContext.FromString(serialized)
    after = input_pb2.ExampleListWithContext(context=before.context)
    column = PACKED["example"] if schema.packed else SCORE
    for place, at in enumerate(np.argsort(-np.asarray(scores), kind="stable"), start=1):
        item = after.examples.add()
        item.CopyFrom(before.examples[at])
        # A feature that is added last stands last among the packed numbers.
        item.features.feature[column].float_list.value.append(float(scores[at]))
        item.features.feature[schema.position].float_list.value[:] = [float(place)]
    return after.SerializeToString(deterministic=True)


def scored_records(data: Path, split: str, run: Path) -> Iterator[tuple[bytes, Any]]:
    """The records of a split in the order of the files, each with the run's scores of its items."""
    folder = DataFolder(data)
    schema = folder.schema

    def parse(serialized: Any) -> tuple[Any, Any]:
        features = tfr.data.parse_from_example_list(
            serialized,
            context_feature_spec=schema.feature_spec("context"),
            example_feature_spec=schema.feature_spec("example"),
            mask_feature_name=MASK,
        )
        return serialized, features

    records = ElwcDatasetBuilder(folder).serialized_lists(split).batch(_LISTS_AT_A_TIME).map(parse)
    score = compiled(scorer_of(open_run(run)), records.element_spec[1])
    for serialized, features in records:
        found = score(features)
        scores = (found[SCORES] if isinstance(found, dict) else found).numpy()
        for record, own, there in zip(
            serialized.numpy(), scores, features[MASK].numpy(), strict=True
        ):
            yield record, own[there]


def record_writer(path: Path) -> Any:
    """A writer of gzip TFRecords."""
    return tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP"))
