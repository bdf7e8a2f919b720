"""Recorded requests, replayed with a run and its data to find skew, or as the lists of drift.

TensorFlow Serving's request log has a `PredictionLog` for each request, as warm-up files and the
client's recordings do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.baselines import BaselineRun, open_run
from tfr_moe.data.builder import ElwcDatasetBuilder
from tfr_moe.data.folder import DataFolder
from tfr_moe.elwc.values import decode_list, list_id_of
from tfr_moe.errors import UserError
from tfr_moe.schema import SPLITS, FeatureSchema, shard_files
from tfr_moe.training import LoadedRun
from tfr_moe.utils.failures import reason_of

from ..client.ranking import outputs_of
from ..model_store import RejectedError, ServedModel
from ..versions import read_log, versions_of
from .parsing import RequestParser
from .signatures import DEFAULT, INPUT, PREDICT, RANK, SCORES
from .verify import Arrays, fitting_schema, in_request_order, reference_batches

TOLERANCE = 1e-4
"""Allowed difference of scores and numbers, absolute and relative: float32 on other machines."""

_BATCH_SIZE = 256
_List = tuple[bytes, np.ndarray]
"""A serialized list and the scores that it was answered with, in the order of its items."""


def _lists_of(request: Any) -> list[bytes]:
    """The serialized lists of a `PredictRequest` for `predict` or `rank`; none of others."""
    signature = request.model_spec.signature_name or DEFAULT
    if signature not in (DEFAULT, PREDICT, RANK) or INPUT not in request.inputs:
        return []
    return tf.make_ndarray(request.inputs[INPUT]).tolist()


def recorded_batches(requests: str | Path, data: DataFolder) -> Iterator[Arrays]:
    """Yields features and mask of recorded requests, parsed by the schema of a data set."""
    parser = RequestParser(data.schema, data.categories)
    lists = (one for log in read_log(Path(requests)) for one in _lists_of(log.request))
    while batch := list(islice(lists, _BATCH_SIZE)):
        with fitting_schema(f"requests {requests}: a list"):
            features = parser.lists(tf.constant(batch))
        yield {name: value.numpy() for name, value in features.items()}


class SkewRow(NamedTuple):
    """How many of the compared lists differ in `name`, `scores` or a feature; `example` is one."""

    name: str
    compared: int
    different: int
    example: str = ""


def measure_skew(
    version: str | Path, requests: str | Path, run: str | Path, data: str | Path | None = None
) -> list[SkewRow]:
    """Replays recorded requests; returns a row for the scores, and with data for each feature.

    Scores are those of the recorded answers, or of the exported version where the log has none.
    They are compared with those of the run's model, which reads the lists as it reads
    training data. The values of each feature are compared with those of the list of the same ID in
    the data: every value of an item there must be one of the request's, in any order of the items.

    Args:
        version: `MODELS/NAME/<version>`, an export of the run.
        requests: TFRecord file of `PredictionLog`s.
        run: the run that is served.
        data: data set with the logged lists of the requests; None compares no values.

    Raises:
        UserError: for files that cannot be read, a log without requests for lists, or requests of
            another schema.
    """
    version = Path(version)
    if version.name not in map(str, versions_of(version.parent)):
        raise UserError(f"version {version}: is not that of an export; give MODELS/NAME/<version>")
    loaded, served = open_run(run), ServedModel(version)
    lists = list(_answered(read_log(Path(requests)), served))
    if not lists:
        raise UserError(f"requests {requests}: has no lists for {PREDICT} or {RANK}")
    rows = [_score_row(lists, loaded)]
    if data is not None:
        rows += _value_rows(lists, loaded.schema, DataFolder(data))
    return rows


def _answered(logs: Iterable[Any], served: ServedModel) -> Iterator[_List]:
    """The lists of the requests for `predict` and `rank`, with their served scores."""
    for log in logs:
        if lists := _lists_of(log.request):
            recorded = SCORES in log.response.outputs
            try:
                answer = log.response if recorded else served.predict(log.request)
            except RejectedError as error:
                raise UserError(
                    f"requests: {served.name} version {served.version} cannot answer one of them: "
                    f"{reason_of(error)}"
                ) from error
            outputs = outputs_of(answer)
            if "order" in outputs:
                outputs = in_request_order(outputs)
            yield from zip(lists, outputs[SCORES], strict=False)


def _score_row(lists: Sequence[_List], run: LoadedRun | BaselineRun) -> SkewRow:
    records = [record for record, _ in lists]
    batches = reference_batches(
        run.score, run.schema, records, categories=run.categories, name="request"
    )
    different, largest, example = 0, 0.0, ""
    for batch in batches:
        for row, expected in enumerate(batch.outputs[SCORES]):
            number = batch.first + row
            size = int(batch.mask[row].sum())
            served, trained = lists[number][1][:size], expected[:size]
            if not np.allclose(served, trained, rtol=TOLERANCE, atol=TOLERANCE):
                different += 1
                gap = float(np.abs(served - trained).max())
                if gap > largest:
                    largest = gap
                    example = f"request {number}: off by {gap:.4g}, the largest difference"
    return SkewRow("scores", len(lists), different, example)


def _value_rows(
    lists: Sequence[_List], schema: FeatureSchema, data: DataFolder
) -> Iterator[SkewRow]:
    """Compares the values of each feature with those of the same list in the data."""
    requests = {list_id_of(schema, record): record for record, _ in lists}
    requests.pop("", None)
    logged = _logged(data, set(requests), schema)
    pairs = {
        list_id: (decode_list(schema, requests[list_id]), decode_list(schema, record))
        for list_id, record in logged.items()
    }
    for feature in schema.features:
        wrong = []
        for list_id, both in pairs.items():
            sent, stored = (
                [row[feature.name] for row in ([context] if feature.scope == "context" else items)]
                for context, items in both
            )
            if odd := unmatched(sent, stored):
                wrong.append(f"list {list_id}: data {_text(odd[0])}, request {_short(sent)}")
        yield SkewRow(feature.name, len(pairs), len(wrong), *wrong[:1])


def _short(values: Sequence[Any]) -> str:
    return f"{', '.join(map(_text, values[:3]))}{', …' if values[3:] else ''}"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _logged(data: DataFolder, ids: set[str], schema: FeatureSchema) -> dict[str, bytes]:
    """The records of the data with one of the list IDs."""
    builder = ElwcDatasetBuilder(data)
    records = {
        list_id: record
        for split in SPLITS
        if shard_files(data.path, split)
        for record in builder.serialized_lists(split).as_numpy_iterator()
        if (list_id := list_id_of(schema, record)) in ids
    }
    if not records:
        raise UserError(f"data {data.path}: has no list with the ID of a request")
    return records


def unmatched(request: Sequence[Any], data: Sequence[Any]) -> list[Any]:
    """The values of the data that the request does not have, each counted as often as it occurs."""
    left, missing = list(request), []
    for value in data:
        equal = next((n for n, one in enumerate(left) if _equal(one, value)), None)
        if equal is None:
            missing.append(value)
        else:
            del left[equal]
    return missing


def _equal(one: Any, other: Any) -> bool:
    if isinstance(other, float):
        return bool(np.isclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
    if isinstance(other, list) and other and isinstance(other[0], float):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
