"""Requests: a context and items as plain mappings, checked and encoded, or read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from tfr_moe.elwc.encoder import Encoded, ScopeEncoder
from tfr_moe.elwc.values import RowError, is_missing, to_id
from tfr_moe.elwc.wire import ids_entry, list_record
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.utils.io import read_json

from .protos import PredictionLog, PredictLog, PredictRequest, fill_tensor


class Request(NamedTuple):
    """Raw values: those of the query and user, and those of each item."""

    context: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]


class RequestFile(BaseModel):
    """The entries of a request file; `_check_types` checks their types."""

    model_config = ConfigDict(extra="forbid")

    context: Any
    items: Any


class RequestEncoder:
    """Checks a request against a schema and serializes it as `ExampleListWithContext`.

    What the server would reject is rejected here first, with the item's position and the feature:
    one request that cannot be parsed fails all that share its batch.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> RequestEncoder(schema).encode({}, [{"price": 2}, {"prize": 3}])
        Traceback (most recent call last):
        tfr_moe.errors.UserError: items[1]: unknown feature 'prize'; allowed: price
    """

    def __init__(self, schema: FeatureSchema):
        self.schema = schema
        self._encode_context = ScopeEncoder(schema, "context")
        self._encode_items = ScopeEncoder(schema, "example")
        self._list_id = schema.list_id
        self._context = {f.name: None for f in schema.select("context")}
        self._example = {f.name: None for f in schema.select("example")}

    def encode(self, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> bytes:
        """Serializes a request; the schema's `list_id` may be part of the context.

        Raises a UserError that names the item and the feature that is unknown, missing or wrong.
        """
        _check_types(context, items)
        self._check_names("context", context, {self._list_id: None, **self._context})
        for position, item in enumerate(items):
            self._check_names(f"items[{position}]", item, self._example)
        given = context.get(self._list_id)
        try:
            list_id = to_id(self._list_id, "" if is_missing(given) else given)
        except RowError as error:
            raise _named("context", error) from error
        shared = _bodies("context", self._encode_context([context]))[0]
        bodies = _bodies("items[{}]", self._encode_items(items))
        return list_record(bodies, shared + ids_entry(self._list_id, [list_id]))

    @staticmethod
    def _check_names(where: str, row: Mapping[str, Any], allowed: Mapping[str, None]) -> None:
        if unknown := row.keys() - allowed.keys():
            names = ", ".join(repr(name) for name in sorted(unknown, key=str))
            word = "features" if len(unknown) > 1 else "feature"
            raise UserError(f"{where}: unknown {word} {names}; allowed: {', '.join(allowed)}")


def _named(where: str, error: RowError) -> UserError:
    return UserError(f"{where}: {str(error).replace('column ', 'feature ', 1)}")


def _bodies(where: str, rows: Sequence[Encoded | RowError]) -> list[bytes]:
    """Returns the bytes of rows; the first error of one becomes a `UserError`."""
    bodies = []
    for position, row in enumerate(rows):
        if isinstance(row, RowError):
            raise _named(where.format(position), row) from row
        bodies.append(row[0])
    return bodies


def _check_types(context: Any, items: Any) -> None:
    if not isinstance(context, Mapping):
        raise UserError(f"context: must map features to values, got {type(context).__name__}")
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes)):
        raise UserError(f"items: must be a list of mappings, got {type(items).__name__}")
    for position, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise UserError(
                f"items[{position}]: must map features to values, got {type(item).__name__}"
            )


def predict_request(model: str, signature: str, lists: Sequence[bytes]) -> Any:
    """A `PredictRequest` for serialized `ExampleListWithContext`s."""
    request = PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    fill_tensor(request.inputs["inputs"], np.array(lists, object))
    return request


def prediction_log(request: Any, response: Any = None) -> bytes:
    """The `PredictionLog` of a `PredictRequest` and perhaps its `PredictResponse`, serialized."""
    log = PredictLog(request=request, response=response)
    return PredictionLog(predict_log=log).SerializeToString()


def load_request(path: str | Path, schema: FeatureSchema | None = None) -> Request:
    """Reads a request from a JSON file: `{"context": {...}, "items": [{...}, ...]}`.

    A schema checks its values too. Raises a UserError that names the file and what is wrong.
    """
    data = read_json(Path(path), RequestFile)
    if data is None:
        raise UserError(f"{path}: no such file")
    request = Request(**data)
    try:
        _check_types(*request)
        if schema is not None:
            RequestEncoder(schema).encode(*request)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return request
