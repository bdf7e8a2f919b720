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
from collections.abc import Callable, Sequence
from pathlib import Path

from tfr_moe._compat import tf
from tfr_moe.elwc.values import decode_list
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.io import write_json

from ..client.protos import PredictResponse, fill_tensor
from ..client.request import RequestEncoder, predict_request
from .signatures import INPUT, RANK, Tensors

GOLDEN = "golden"


def write_golden(
    folder: Path,
    name: str,
    version: int,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    rank: Callable[..., Tensors],
) -> None:
    """Writes the golden pair of the list of median length, without its ID and labels.

    `rank` is that signature of the model.
    """
    context, items = decode_list(schema, sorted(lists, key=len)[len(lists) // 2])
    serialized = RequestEncoder(schema).encode(context, items)
    with tf.device("/CPU:0"):
        answer = {n: v.numpy() for n, v in rank(inputs=tf.constant([serialized])).items()}
    request = predict_request(name, RANK, [serialized])
    response = PredictResponse()
    response.model_spec.name, response.model_spec.signature_name = name, RANK
    response.model_spec.version.value = version
    for key, array in answer.items():
        fill_tensor(response.outputs[key], array)
    folder.mkdir()
    (folder / "list.pb").write_bytes(serialized)
    (folder / "request.pb").write_bytes(request.SerializeToString(deterministic=True))
    (folder / "response.pb").write_bytes(response.SerializeToString(deterministic=True))
    write_json(folder / "list.json", {"context": context, "items": items})
    inputs = {INPUT: [{"b64": base64.b64encode(serialized).decode("ascii")}]}
    write_json(folder / "request.json", {"signature_name": RANK, "inputs": inputs})
    write_json(folder / "response.json", {"outputs": {k: v.tolist() for k, v in answer.items()}})
