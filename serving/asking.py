"""What a client asks and what it makes of the answers, apart from how messages travel.

Each operation is a generator: it yields the calls that it needs next, all of which may run at once,
is sent their answers in the same order, and returns its result. The client of threads and that of
asyncio run the same operations.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc

from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema

from . import messages
from .answers import (
    Ranking,
    RequestError,
    Signature,
    VersionStatus,
    merged,
    outputs_of,
    ranking_of,
    signatures_in,
    status_of,
)
from .channel import PREDICT_PATH
from .request import RequestEncoder
from .tensors import predict_request

T = TypeVar("T")
Items = Sequence[Mapping[str, Any]]

_ALONE_TOLERANCE = 1e-2


class Method(NamedTuple):
    """A method of the server: its path and the classes of its messages."""

    path: str
    request: Any
    answer: Any


PREDICT = Method(
    PREDICT_PATH,
    messages.PredictRequest,
    messages.PredictResponse,
)
METADATA = Method(
    "/tensorflow.serving.PredictionService/GetModelMetadata",
    messages.GetModelMetadataRequest,
    messages.GetModelMetadataResponse,
)
STATUS = Method(
    "/tensorflow.serving.ModelService/GetModelStatus",
    messages.GetModelStatusRequest,
    messages.GetModelStatusResponse,
)
METHODS = (PREDICT, METADATA, STATUS)


class Call(NamedTuple):
    """A message for a method."""

    method: Method
    message: Any


Steps = Generator[list[Call], list[Any], T]


class _Part(NamedTuple):
    """Some of the items of a list, encoded, the place of the first of them, and the call that asks."""

    start: int
    serialized: bytes
    call: Call


class Asking:
    """The operations of a client.

    Args:
        model: the model's name.
        schema: of its requests; None asks the server for it.
        version: a fixed version.
        label: or the label of one.
        max_message_bytes: no request is larger.
        split: a list that does not fit into one request is sent in parts.

    Raises:
        UserError: if both a version and a label are given.
    """

    def __init__(
        self,
        model: str,
        schema: FeatureSchema | None,
        version: int | None,
        label: str | None,
        max_message_bytes: int,
        split: bool,
    ):
        if version is not None and label is not None:
            raise UserError(f"give a version or a label, not both (version {version}, {label!r})")
        self.model = model
        self.version = version
        self.label = label
        self._limit = max_message_bytes
        self._split = split
        self._schema = schema
        self._encoder = None if schema is None else RequestEncoder(schema)

    def schema(self) -> Steps[FeatureSchema]:
        """The schema of the requests, from the server where it was not given."""
        if self._schema is None:
            (answer,) = yield [self._predict("schema", b"")]
            text = bytes(outputs_of(answer, "schema")["schema"][0])
            self._schema = FeatureSchema.model_validate_json(text)
            self._encoder = RequestEncoder(self._schema)
        return self._schema

    def rank(self, context: Mapping[str, Any], items: Items) -> Steps[Ranking]:
        """Ranks one list."""
        parts = yield from self._parts("rank", context, items)
        if len(parts) == 1:
            (answer,) = yield [parts[0].call]
            return ranking_of(self.model, answer)
        answers = yield from self._split_answers("rank", context, items, parts)
        ranked = [ranking_of(self.model, answer) for answer in answers]
        return merged(list(zip([part.start for part in parts], ranked, strict=True)))

    def predict(self, context: Mapping[str, Any], items: Items) -> Steps[list[float]]:
        """Scores of one list, in its order."""
        parts = yield from self._parts("serving_default", context, items)
        if len(parts) == 1:
            answers = yield [parts[0].call]
        else:
            answers = yield from self._split_answers("serving_default", context, items, parts)
        ends = [*(part.start for part in parts[1:]), len(items)]
        scores: list[float] = []
        for part, end, answer in zip(parts, ends, answers, strict=True):
            scores += outputs_of(answer, "scores")["scores"][0, : end - part.start].tolist()
        return scores

    def status(self) -> Steps[list[VersionStatus]]:
        """The versions that the server knows."""
        request = messages.GetModelStatusRequest()
        request.model_spec.name = self.model
        (answer,) = yield [Call(STATUS, request)]
        return status_of(answer)

    def metadata(self) -> Steps[dict[str, Signature]]:
        """The signatures of the model."""
        request = messages.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._address(request.model_spec)
        (answer,) = yield [Call(METADATA, request)]
        return signatures_in(answer)

    def _address(self, spec: Any, version: int | None = None) -> None:
        spec.name = self.model
        if version is not None or self.version is not None:
            spec.version.value = self.version if version is None else version
        elif self.label is not None:
            spec.version_label = self.label

    def _predict(self, signature: str, serialized: bytes, version: int | None = None) -> Call:
        request = predict_request(self.model, signature, [serialized], messages.PredictRequest)
        self._address(request.model_spec, version)
        return Call(PREDICT, request)

    def _parts(
        self, signature: str, context: Mapping[str, Any], items: Items
    ) -> Steps[list[_Part]]:
        """The list encoded: as a whole, or halved until each part fits."""
        yield from self.schema()
        waiting, done = [(self._part(signature, context, items), len(items))], []
        while waiting:
            part, count = waiting.pop()
            size = part.call.message.ByteSize()
            if size <= self._limit:
                done.append(part)
                continue
            if not self._split or count < 2:
                which = "list" if count == len(items) else "item"
                raise UserError(
                    f"a {which} of {count} items takes {size:,} bytes, more than the limit of "
                    f"{self._limit:,} bytes (max_message_bytes)"
                )
            middle = part.start + count // 2
            end = part.start + count
            for start, stop in ((middle, end), (part.start, middle)):
                half = self._part(signature, context, items[start:stop], start)
                waiting.append((half, stop - start))
        return done

    def _part(
        self, signature: str, context: Mapping[str, Any], items: Items, start: int = 0
    ) -> _Part:
        assert self._encoder is not None
        serialized = self._encoder.encode(context, items)
        return _Part(start, serialized, self._predict(signature, serialized))

    def _split_answers(
        self, signature: str, context: Mapping[str, Any], items: Items, parts: Sequence[_Part]
    ) -> Steps[list[Any]]:
        """The answers for the parts of a list, all from one version.

        The first item is scored alone as well: by another score the model tells that it compares
        the items of a list, so that parts of it can't be ranked apart.
        """
        assert self._encoder is not None
        alone = self._encoder.encode(context, items[:1])
        while True:
            (first,) = yield [parts[0].call]
            version = first.model_spec.version.value
            rest = [self._predict(signature, part.serialized, version) for part in parts[1:]]
            try:
                probe, *others = yield [self._predict(signature, alone, version), *rest]
            except RequestError as error:
                # Between the two steps the version may go, once another has come.
                if error.code == grpc.StatusCode.NOT_FOUND and self.version is None:
                    continue
                raise
            apart, together = _score_of_first(probe), _score_of_first(first)
            if not math.isclose(
                apart, together, rel_tol=_ALONE_TOLERANCE, abs_tol=_ALONE_TOLERANCE
            ):
                raise UserError(
                    f"a list of {len(items)} items is beyond the limit of {self._limit:,} bytes, and "
                    f"model {self.model!r} compares the items of a list, so that it can't be split"
                )
            return [first, *others]


def _score_of_first(answer: Any) -> float:
    outputs = outputs_of(answer, "scores")
    place = list(outputs["order"][0]).index(0) if "order" in outputs else 0
    return float(outputs["scores"][0, place])
