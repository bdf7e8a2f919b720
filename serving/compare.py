"""Every output of every signature of an export against what the Keras model answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.schema import MASK, PACKED, FeatureSchema, Scope

from .dense import LIST_SIZE
from .ranked import EXPERT_IDS, EXPERT_WEIGHTS, LOWEST, SCORES
from .reference import Answer, batches_of, is_of_experts, parsed, single_items
from .signatures import DEFAULT, INPUT, RANK, REGRESS, SCHEMA, TENSORS, scores_by_name
from .tensors import serialized_examples
from .verify import Call

_LISTWISE = (DEFAULT, RANK, TENSORS)


def calls_of(schema: FeatureSchema, lists: Sequence[bytes]) -> list[Call]:
    """Asks every signature for all lists, in batches; `check_answers` takes the answers."""
    return [call for batch in batches_of(lists) for call in _calls(schema, batch)]


def _calls(schema: FeatureSchema, batch: list[bytes]) -> Iterator[Call]:
    given = {INPUT: np.array(batch, object)}
    yield Call(DEFAULT, given)
    yield Call(RANK, given)
    yield Call(TENSORS, plain_tensors(schema, batch))
    yield Call(REGRESS, {INPUT: _items(batch)})
    yield Call(SCHEMA, given)


def _items(batch: Sequence[bytes]) -> np.ndarray:
    """All items of the lists, each as a serialized `tf.train.Example` with its context."""
    from tensorflow_serving.apis import input_pb2

    items: list[bytes] = []
    for serialized in batch:
        given = input_pb2.Input()
        given.example_list_with_context.ParseFromString(serialized)
        items += serialized_examples(given)
    return np.array(items, object)


def plain_tensors(schema: FeatureSchema, lists: Sequence[bytes]) -> dict[str, np.ndarray]:
    """Serialized lists as the inputs of the signature `tensors`."""
    features = {name: value.numpy() for name, value in parsed(schema, lists).items()}
    found = {LIST_SIZE: features[MASK].sum(axis=1).astype(np.int32)}
    scopes: tuple[Scope, ...] = ("context", "example")
    for scope in scopes:
        numerics = list(schema.select(scope, "numeric"))
        if schema.packed and numerics:
            ends = np.cumsum([f.width for f in numerics])[:-1]
            columns = np.split(features[PACKED[scope]], ends, axis=-1)
            features |= {f.name: column for f, column in zip(numerics, columns, strict=True)}
        for f in schema.select(scope):
            single = f.kind == "categorical" or (f.kind == "numeric" and f.width == 1)
            found[f.name] = features[f.name][..., 0] if single else features[f.name]
    return found


def check_answers(
    model: tf.keras.Model,
    schema: FeatureSchema,
    lists: Sequence[bytes],
    expected: Sequence[Answer],
    found: Sequence[dict[str, np.ndarray]],
    tolerance: float,
) -> float:
    """Compares what an export answered with what it should have.

    Args:
        model: the Keras model, asked for each item as a list of its own, which is what `regress` does.
        schema: of the lists.
        lists: serialized `ExampleListWithContext`s.
        expected: the answer for each.
        found: for each of `calls_of(schema, lists)` the outputs.
        tolerance: by how much numbers may differ, absolute and relative.

    Returns:
        The largest difference of a score.

    Raises:
        UserError: naming the list, the signature and the output that differs.
    """
    largest, first = 0.0, 0
    answers = iter(found)
    for batch in batches_of(lists):
        wanted = expected[first : first + len(batch)]
        for signature in _LISTWISE:
            largest = max(largest, _check_lists(signature, wanted, next(answers), tolerance, first))
        items = single_items(parsed(schema, batch))
        with tf.device("/CPU:0"):
            alone = scores_by_name(model(items, training=False))[SCORES].numpy()[:, 0]
        where = f"warm-up lists from {first}: {REGRESS} outputs"
        _check(where, next(answers)["outputs"], alone, tolerance)
        if any(text != schema.to_json().encode() for text in next(answers)[SCHEMA].tolist()):
            raise UserError(f"the export's signature {SCHEMA!r} gives another schema")
        first += len(batch)
    return largest


def _check_lists(
    signature: str,
    wanted: Sequence[Answer],
    found: dict[str, np.ndarray],
    tolerance: float,
    first: int,
) -> float:
    """Compares the answers of one call, list by list; returns the largest difference of a score."""
    names = {n for n in wanted[0] if signature == RANK or not is_of_experts(n)}
    names |= {"order", "valid"} if signature == RANK else set()
    if names != set(found):
        raise UserError(
            f"the export's signature {signature!r} gives {', '.join(sorted(found))}; "
            f"expected: {', '.join(sorted(names))}"
        )
    largest = 0.0
    for row, answer in enumerate(wanted):
        size = len(answer[SCORES])
        where = f"warm-up list {first + row}: {signature}"
        order = _order(where, found, row, size) if signature == RANK else np.arange(size)
        for name, values in answer.items():
            if name.startswith(SCORES):
                given = found[name][row]
                largest = max(
                    largest, _check(f"{where} {name}", given[:size], values[order], tolerance)
                )
                if (given[size:] != LOWEST).any():
                    raise UserError(f"{where} {name}: padding is not the lowest float")
            elif name in found and name.startswith(EXPERT_IDS):
                weights = name.replace(EXPERT_IDS, EXPERT_WEIGHTS)
                _check_experts(where, found, row, answer, name, weights, order, tolerance)
    return largest


def _order(where: str, found: dict[str, np.ndarray], row: int, size: int) -> np.ndarray:
    order = found["order"][row]
    scores = found[SCORES][row, :size]
    complete = sorted(order[:size]) == list(range(size)) and (order[size:] == -1).all()
    if not complete or found["valid"][row] != size or (np.diff(scores) > 0).any():
        raise UserError(f"{where}: order, valid and scores contradict each other")
    return order[:size]


def _check_experts(
    where: str,
    found: dict[str, np.ndarray],
    row: int,
    answer: Answer,
    ids: str,
    weights: str,
    order: np.ndarray,
    tolerance: float,
) -> None:
    """Compares weights expert by expert, since equal weights have no order."""
    ours = _by_expert(answer[ids], answer[weights])
    theirs = _by_expert(found[ids][row], found[weights][row])
    if ours.ndim == 2:
        ours, theirs = ours[order], theirs[: len(order)]
    width = max(ours.shape[-1], theirs.shape[-1])
    ours, theirs = (_widened(array, width) for array in (ours, theirs))
    _check(f"{where} {weights}", theirs, ours, tolerance)


def _by_expert(ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[..., K] of each -> the weight of every expert, [..., N]."""
    there = np.maximum(ids, 0)
    dense = np.zeros([*ids.shape[:-1], there.max(initial=0) + 1], np.float32)
    np.put_along_axis(dense, there, np.where(ids < 0, 0, weights), axis=-1)
    return dense


def _widened(array: np.ndarray, width: int) -> np.ndarray:
    lack: Any = [(0, 0)] * (array.ndim - 1) + [(0, width - array.shape[-1])]
    return np.pad(array, lack)


def _check(where: str, found: np.ndarray, wanted: np.ndarray, tolerance: float) -> float:
    if found.shape != wanted.shape:
        raise UserError(f"{where}: the export gives {found.shape}, the model {wanted.shape}")
    gap = float(np.abs(found - wanted).max(initial=0.0))
    if not np.allclose(found, wanted, rtol=tolerance, atol=tolerance):
        raise UserError(
            f"{where}: the export's and the model's differ by {gap:.2g} (allowed: {tolerance:g})"
        )
    return gap
