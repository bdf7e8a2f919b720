"""The golden pair: a request and its answer, to test clients in any language.

In `assets.extra/golden/`:

    list.json       the context and the items with their raw values
    list.pb         the same as a serialized ExampleListWithContext
    request.pb      a serialized PredictRequest for the signature `rank`
    response.pb     the serialized PredictResponse to it
    request.json    the body of the same request over REST (POST /v1/models/NAME:predict)
    response.json   the body of the answer over REST

A client's encoder must turn `list.json` into a proto equal to `list.pb`, and a server must answer
`request.pb` with `response.pb`, within 1e-5 on a CPU.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfr_moe.elwc.values import decode_list
from tfr_moe.schema import FeatureSchema

from ..client.protos import PredictResponse, fill_tensor
from ..client.request import RequestEncoder, predict_request
from .signatures import INPUT, RANK

GOLDEN = "golden"


def golden_list(schema: FeatureSchema, lists: Sequence[bytes]) -> bytes:
    """The list of median length as a request: without its id, labels and other fields of data."""
    middle = sorted(lists, key=len)[len(lists) // 2]
    return RequestEncoder(schema).encode(*decode_list(schema, middle))


def write_golden(
    folder: Path,
    name: str,
    version: int,
    schema: FeatureSchema,
    serialized: bytes,
    answer: Mapping[str, np.ndarray],
) -> None:
    """Writes the files of the golden pair.

    Args:
        folder: is created.
        name: of the model.
        version: of the model.
        schema: of the list.
        serialized: an `ExampleListWithContext`.
        answer: the outputs of `rank` for it, a batch of one.
    """
    folder.mkdir()
    context, items = decode_list(schema, serialized)
    request = predict_request(name, RANK, [serialized])
    response = PredictResponse()
    response.model_spec.name, response.model_spec.signature_name = name, RANK
    response.model_spec.version.value = version
    for key, array in answer.items():
        fill_tensor(response.outputs[key], array)
    (folder / "list.pb").write_bytes(serialized)
    (folder / "request.pb").write_bytes(request.SerializeToString(deterministic=True))
    (folder / "response.pb").write_bytes(response.SerializeToString(deterministic=True))
    _write(folder / "list.json", {"context": context, "items": items})
    encoded = base64.b64encode(serialized).decode("ascii")
    _write(
        folder / "request.json",
        {"signature_name": RANK, "inputs": {INPUT: [{"b64": encoded}]}},
    )
    _write(folder / "response.json", {"outputs": {k: v.tolist() for k, v in answer.items()}})


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
