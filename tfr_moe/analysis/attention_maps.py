"""Attention maps: how much items of one group attend to those of another (PRM, Figs. 2 and 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfr_moe._compat import tf
from tfr_moe.analysis.groups import Array, Features, Grouping, Places, grouping_of
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.folders import complete_folder, write_json
from tfr_moe.layers.attention import SelfAttentionEncoder
from tfr_moe.schema import MASK
from tfr_moe.training import load_run

POSITIONS = "position"
_SAMPLE = 20  # batches that ids and bounds are taken from


class AttentionMap:
    r"""The mean attention of items of each group to items of each group, gathered batch by batch.

    With w_ij the weight of item j for item i and n the number of items of their list,

    $$ weight_{ab} = \text{mean}_{i \in a, j \in b} w_{ij}, \qquad
       lift_{ab} = \text{mean}_{i \in a, j \in b} n w_{ij} $$

    A lift of 1 is what attention would be if it were spread evenly over the list, whatever its length.

    Args:
        labels: names of the groups.
        with_itself: whether pairs of an item with itself count.

    Example:
        >>> found = AttentionMap(["a", "b"])
        >>> found.add(np.array([[[0.5, 0.5], [0.9, 0.1]]]), np.array([[0, 1]]), np.array([2]))
        >>> found.as_json()["lift"]
        [[None, 1.0], [1.8, None]]
    """

    def __init__(self, labels: Sequence[str], with_itself: bool = False):
        size = len(labels)
        self.labels = list(labels)
        self._with_itself = with_itself
        self._weights, self._lifts, self._pairs = (np.zeros([size, size]) for _ in range(3))

    def add(self, weights: Array, groups: Array, sizes: Array) -> None:
        """Adds a batch.

        Args:
            weights: [B, L, L].
            groups: int [B, L], -1 for items that don't count.
            sizes: n, [B].
        """
        member = (groups[..., np.newaxis] == np.arange(len(self.labels))).astype(np.float64)
        counted = np.ones(weights.shape)
        if not self._with_itself:
            counted *= 1 - np.eye(weights.shape[1])
        lifts = weights * sizes[:, np.newaxis, np.newaxis]
        for total, values in (
            (self._weights, weights * counted),
            (self._lifts, lifts * counted),
            (self._pairs, counted),
        ):
            by_group = np.swapaxes(member, 1, 2) @ (values @ member)
            total += by_group.sum(axis=0)

    def as_json(self) -> dict[str, Any]:
        """Labels, and by group and group `weight`, `lift` (None without pairs) and number of `pairs`."""

        def means(total: Array) -> list[list[float | None]]:
            return [
                [float(value / count) if count else None for value, count in zip(*row, strict=True)]
                for row in zip(total, self._pairs, strict=True)
            ]

        return {
            "labels": self.labels,
            "weight": means(self._weights),
            "lift": means(self._lifts),
            "pairs": self._pairs.astype(int).tolist(),
        }


class Attended(NamedTuple):
    """A batch of lists with its attention weights.

    Attributes:
        features: raw features and the mask.
        weights: [B, L, L], a mean over heads and blocks.
    """

    features: Features
    weights: Array


def encoder_of(model: tf.keras.Model) -> SelfAttentionEncoder | None:
    """The self-attention encoder of a model; None where there is none."""
    found = [layer for layer in model.layers if isinstance(layer, SelfAttentionEncoder)]
    return found[0] if found else None


def attended(
    model: tf.keras.Model, dataset: tf.data.Dataset, block: int | None = None
) -> Iterator[Attended]:
    """Runs the encoder of a model over a data set.

    Args:
        model: one with an encoder, such as `FeatureScorer.build_model` makes.
        dataset: its elements begin with the raw features, as those of `build_evaluation_dataset` do.
        block: the block to look at, 1 the first; None for the mean over all.

    Raises:
        UserError: for a model without attention, or a block that it does not have.
    """
    encoder = encoder_of(model)
    if encoder is None:
        raise UserError(f"model {model.name}: has no attention; there is one with trunk=attention")
    if block is not None and not 1 <= block <= len(encoder.blocks):
        raise UserError(f"--block {block}: must be from 1 to {len(encoder.blocks)}")
    inputs = tf.keras.Model(model.input, encoder.input)

    @tf.function(input_signature=[dataset.element_spec[0]])
    def weights_of(features: Any) -> Any:
        found = encoder.attention_weights(inputs(features, training=False), features[MASK])
        chosen = found if block is None else found[:, block - 1 : block]
        return tf.reduce_mean(tf.cast(chosen, tf.float32), axis=[1, 2])

    for features, *_ in dataset:
        arrays = {name: value.numpy() for name, value in features.items()}
        yield Attended(arrays, weights_of(features).numpy().astype(np.float64))


def gather_maps(
    batches: Iterable[Attended], groupings: Mapping[str, Grouping]
) -> tuple[int, dict[str, AttentionMap]]:
    """The number of lists and a map for each grouping.

    Items attend to themselves too; that counts in the map of positions alone, since in any other it
    would draw the weight to the diagonal.
    """
    maps = {
        name: AttentionMap(grouping.labels, with_itself=name == POSITIONS)
        for name, grouping in groupings.items()
    }
    lists = 0
    for features, weights in batches:
        sizes = features[MASK].sum(axis=1)
        lists += int((sizes > 0).sum())
        for name, grouping in groupings.items():
            maps[name].add(weights, grouping(features), sizes)
    return lists, maps


def write_attention(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    by: Sequence[str] = (),
    split: str = "test",
    positions: int = 30,
    block: int | None = None,
    batch_size: int = 64,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes `attention.json` and a picture for each map below `out`.

    Args:
        run: a finished run of a model with attention.
        data: the data set.
        out: the folder to make.
        by: features of the items: an id, whose most frequent values are the groups, or a number, of which
            seven bands with about as many items each are. Positions come by themselves.
        split: of the data.
        positions: so many places of the list are looked at.
        block: see `attended`.
        batch_size: lists at a time.
        overwrite: replace `out`.

    Returns:
        What `attention.json` holds.

    Raises:
        UserError: in one line, for whatever can't work.
    """
    from tfr_moe.analysis.heatmaps import draw_heatmap

    loaded = load_run(run)
    builder = ElwcDatasetBuilder(DataFolder(data), batch_size)
    dataset = builder.build_evaluation_dataset(split)
    sample = [
        {name: value.numpy() for name, value in features.items()}
        for features, *_ in islice(dataset, _SAMPLE)
    ]
    groupings: dict[str, Grouping] = {POSITIONS: Places(positions)}
    groupings |= {name: grouping_of(loaded.schema, name, sample) for name in by}
    with complete_folder(out, overwrite) as folder:
        lists, maps = gather_maps(attended(loaded.model, dataset, block), groupings)
        shown = {name: gathered.as_json() for name, gathered in maps.items()}
        found = {
            "run": str(run),
            "model": loaded.config.model,
            "data": str(data),
            "split": split,
            "lists": lists,
            "block": block,
            "maps": shown,
        }
        write_json(folder / "attention.json", found)
        for name, values in shown.items():
            draw_heatmap(values, f"attention by {name}", folder / f"{name}.png")
    return found
