"""Inputs by their axes, so that one test can permute, pad and regroup the lists of any case.

`axes` is "B" for one value a list, "BL" for one an item and "" for what belongs to neither; a width
may follow. Every test draws its inputs together with a mask [B, L] of valid items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Whole, ragged, with padding in the middle, of one item, of none.
MASK = np.array(
    [
        [1, 1, 1, 1, 1],
        [1, 1, 0, 1, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1],
    ],
    bool,
)

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Array(NamedTuple):
    """One input.

    Attributes:
        axes: "B" or "BL".
        width: size of the axis after those; None for none.
        dtype: of the symbolic input.
        draw: values of a shape.
        junk: values of a shape that padded positions may have; None where the value follows from
            the mask.
        of_mask: the value that follows from the mask.
    """

    axes: str
    width: int | None
    dtype: str
    draw: Draw | None = None
    junk: Draw | None = None
    of_mask: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def shape(self) -> list[int | None]:
        """The shape without the batch axis."""
        return [None] * (len(self.axes) - 1) + ([] if self.width is None else [self.width])

    def of(self, rng: np.random.Generator, mask: np.ndarray) -> np.ndarray:
        """Values for lists of that mask."""
        if self.of_mask is not None:
            return self.of_mask(mask)
        assert self.draw is not None
        lead = mask.shape[: len(self.axes)]
        return self.draw(rng, lead if self.width is None else (*lead, self.width))


Values = dict[str, np.ndarray]


def nan(_: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def floats(axes: str, width: int | None, scale: float = 1.0) -> Array:
    """Normal deviates; not a number at padded positions."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return scale * rng.normal(size=shape).astype(np.float32)

    return Array(axes, width, "float32", draw, nan)


def experts(axes: str, slots: int, num_experts: int) -> Array:
    """Distinct experts for each list or item."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        order = np.argsort(rng.random([*shape[:-1], num_experts]), axis=-1)
        return order[..., : shape[-1]].astype(np.int32)

    return Array(axes, slots, "int32", draw, draw)


def ids(axes: str, width: int, *choices: str) -> Array:
    """Strings, the empty one for a missing id and an unknown one among them."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.choice([*choices, "", "unheard of"], shape).astype(object)

    return Array(axes, width, "string", draw, draw)


def positions(limit: int) -> Array:
    """Places of items, beyond the limit too."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.integers(0, 2 * limit, shape).astype(np.int32)

    return Array("BL", None, "int32", draw, draw)


def mask() -> Array:
    """The mask itself."""
    return Array("BL", None, "bool", of_mask=lambda m: m)


def num_items() -> Array:
    """The number of valid items of each list."""
    return Array("B", None, "float32", of_mask=lambda m: m.sum(axis=1).astype(np.float32))


def one_if_valid() -> Array:
    """The mask as a number for each item."""
    return Array("BL", None, "float32", of_mask=lambda m: m.astype(np.float32))


def labels() -> Array:
    """Every other valid item is relevant, -1 if padded; lists of one item are irrelevant."""

    def of_mask(m: np.ndarray) -> np.ndarray:
        order = np.cumsum(m, axis=1) % 2 == 0
        return np.where(m, order.astype(np.float32), np.float32(-1.0))

    return Array("BL", None, "float32", of_mask=of_mask)


def different_labels() -> Array:
    """0, 1, 2, ... by position, -1 at padded positions."""

    def of_mask(m: np.ndarray) -> np.ndarray:
        return np.where(m, np.cumsum(m, axis=1) - 1, -1).astype(np.float32)

    return Array("BL", None, "float32", of_mask=of_mask)


def draw(arrays: dict[str, Array], mask: np.ndarray = MASK, seed: int = 0) -> Values:
    """All inputs of a case."""
    rng = np.random.default_rng(seed)
    return {name: array.of(rng, mask) for name, array in arrays.items()}


def with_junk(arrays: dict[str, Array], values: Values, mask: np.ndarray) -> Values:
    """The same values with something else at padded positions."""
    rng = np.random.default_rng(99)
    result = {}
    for name, array in arrays.items():
        value = values[name]
        if array.axes == "BL" and array.junk is not None:
            padded = ~mask if array.width is None else ~mask[..., np.newaxis]
            value = np.where(padded, array.junk(rng, value.shape), value)
        result[name] = value.astype(values[name].dtype)
    return result


def with_more_padding(arrays: dict[str, Array], values: Values, mask: np.ndarray) -> Values:
    """The same lists with three padded positions more."""
    rng = np.random.default_rng(98)
    wider = np.pad(mask, [(0, 0), (0, 3)])
    result = {}
    for name, array in arrays.items():
        value = values[name]
        if array.axes == "BL" and array.of_mask is not None:
            tail = array.of_mask(wider)[:, mask.shape[1] :]
            value = np.concatenate([value, tail], axis=1)
        elif array.axes == "BL" and array.junk is not None:
            tail = array.junk(rng, (len(value), 3, *value.shape[2:]))
            value = np.concatenate([value, tail.astype(value.dtype)], axis=1)
        result[name] = value
    return result


def orders(mask: np.ndarray) -> np.ndarray:
    """[B, L]: for each list another order of its positions."""
    return np.argsort(np.random.default_rng(97).random(mask.shape), axis=1)


def reorder(value: np.ndarray, order: np.ndarray) -> np.ndarray:
    """A value of axes "BL" in the new order of each list."""
    return np.stack([row[positions] for row, positions in zip(value, order, strict=True)])


def reordered(arrays: dict[str, Array], values: Values, order: np.ndarray) -> Values:
    """All inputs in the new order."""
    return {
        name: reorder(values[name], order) if array.axes == "BL" else values[name]
        for name, array in arrays.items()
    }


def groups(values: Any, *stops: int) -> list[Any]:
    """The lists in batches that end before `stops`."""
    starts = (0, *stops[:-1])
    return [
        {name: value[start:stop] for name, value in values.items()}
        for start, stop in zip(starts, stops, strict=True)
    ]
