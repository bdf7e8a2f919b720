"""What a caller asks: a context and items as plain mappings, from code or from a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfr_moe.encoding import RowError, to_id
from tfr_moe.errors import UserError
from tfr_moe.row_encoding import ScopeEncoder
from tfr_moe.schema import FeatureSchema
from tfr_moe.wire import ids_entry, list_record

_KEYS = ("context", "items")


class Request(NamedTuple):
    """Raw values: those of the query and user, and those of each item to be ranked."""

    context: dict[str, Any]
    items: list[dict[str, Any]]


class RequestEncoder:
    """Checks a request against a schema and serializes it as `ExampleListWithContext`.

    Whatever the server would refuse is refused here first, with the number of the item (the first
    is 0) and the feature: one request that can't be parsed fails all that share its batch.

    Example:
        >>> schema = FeatureSchema(
        ...     list_id="query",
        ...     labels=["click"],
        ...     features=[{"name": "price", "scope": "example", "kind": "numeric"}],
        ... )
        >>> RequestEncoder(schema).encode({}, [{"price": 2}, {"prize": 3}])
        Traceback (most recent call last):
        tfr_moe.errors.UserError: items[1]: unknown feature 'prize'; there are: price
    """

    def __init__(self, schema: FeatureSchema):
        self._encode_context = ScopeEncoder(schema, "context")
        self._encode_item = ScopeEncoder(schema, "example")
        self._list_id = schema.list_id
        self._list_id_entry = ids_entry(schema.list_id)
        self._context = {f.name: None for f in schema.select("context")}
        self._example = {f.name: None for f in schema.select("example")}

    def encode(self, context: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> bytes:
        """Serializes a request.

        Args:
            context: values of the context features; the schema's `list_id` may be among them.
            items: for each item the values of the example features.

        Raises:
            UserError: naming the item and the feature that is unknown, missing or of the wrong type.
        """
        self._check_names("context", context, {self._list_id: None, **self._context})
        for number, item in enumerate(items):
            if item.keys() - self._example.keys():
                self._check_names(f"items[{number}]", item, self._example)
        where = "context"
        try:
            list_id = to_id(self._list_id, context.get(self._list_id, ""))
            shared = self._encode_context(context)[0] + self._list_id_entry([list_id])
            bodies = []
            for number, item in enumerate(items):
                where = f"items[{number}]"
                bodies.append(self._encode_item(item)[0])
        except RowError as error:
            reason = str(error).replace("column ", "feature ", 1)
            raise UserError(f"{where}: {reason}") from error
        return list_record(bodies, shared)

    @staticmethod
    def _check_names(where: str, row: Mapping[str, Any], allowed: Mapping[str, None]) -> None:
        if unknown := row.keys() - allowed.keys():
            names = ", ".join(repr(name) for name in sorted(unknown))
            word = "features" if len(unknown) > 1 else "feature"
            raise UserError(f"{where}: unknown {word} {names}; there are: {', '.join(allowed)}")


def load_request(path: str | Path, schema: FeatureSchema | None = None) -> Request:
    """Reads a request from a JSON file: `{"context": {...}, "items": [{...}, ...]}`.

    Args:
        path: the file.
        schema: if given, the values are checked against it.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"request {path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"request {path}: not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise UserError(
            f"request {path}: not valid JSON (line {error.lineno}: {error.msg})"
        ) from error
    if not isinstance(data, dict):
        raise UserError(f"request {path}: must be an object with the keys context and items")
    for key in _KEYS:
        if key not in data:
            raise UserError(f"request {path}: {key!r} is missing; the keys are: {', '.join(_KEYS)}")
    if unknown := sorted(data.keys() - set(_KEYS)):
        raise UserError(
            f"request {path}: unknown key {unknown[0]!r}; there are: {', '.join(_KEYS)}"
        )
    context, items = data["context"], data["items"]
    if not isinstance(context, dict):
        raise UserError(f"request {path}: 'context' must be an object")
    if not isinstance(items, list):
        raise UserError(f"request {path}: 'items' must be a list of objects")
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise UserError(f"request {path}: items[{number}] must be an object")
    if schema is not None:
        try:
            RequestEncoder(schema).encode(context, items)
        except UserError as error:
            raise UserError(f"request {path}: {error}") from error
    return Request(context, items)
