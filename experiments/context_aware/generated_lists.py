"""Graded lists in LETOR format whose grades depend on the other items of the list.

Lists are as long and labels as skewed as in MSLR-WEB30K (31,531 queries, 3,771,125 documents):
lengths are log-normal around a mean of 119.6, cut at 1,251; the grades 0 to 4 have shares of 51.5,
32.5, 13.4, 1.8 and 0.8 per cent, and queries differ in how much good they have at all, so that some
3 % of the lists have nothing relevant, as there.

An item i has features x_i: five topic scores, a price and `features` - 6 others, all standard
normal within a query; every query shifts each of them by a normal deviate of its own, of twice that
size. So a value by itself says little, and what an item is among its neighbours says more. Its
utility is

    u_i = own_i + s context_i + 0.5 Normal(0, 1) + 4/3 sqrt(1.25 + s^2) Normal(0, 1) of the query

with s = `context_strength`,

    own_i     = unit variance: a linear part, a product and a sine of features before the shift
    context_i = -(z_price + z_crowd) / sqrt(2)

where z_price is the item's price less the list's mean over the list's deviation, and z_crowd the
same of the share of the list's items whose topic (the greatest topic score) is the item's own. At
strength 0 the rest of the list has no say; at 1 it has as much as the item itself. A ranker that
scores items one by one sees the shifted price alone, and crowds not at all.

The grade is the number of thresholds below u_i; thresholds are quantiles of a first sample of
queries.

    python -m experiments.context_aware.generated_lists --out lists --queries 2000 --features 12
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from tfr_moe.errors import UserError
from tfr_moe.utils import atomic_directory, progress_bar

SHARES = (0.5147, 0.3249, 0.1339, 0.0183, 0.0081)
MOST = 1251
TOPICS = 5
_SPREAD = 0.45  # of the logarithm of a list's length
_SHIFT = 2.0
_NOISE = 0.5
_QUERY = 4 / 3  # of the deviation within a list: then some 3 % of the lists have nothing relevant
_SAMPLE = 300  # queries that set the thresholds
_GZIP_LEVEL = 3


@dataclass(frozen=True)
class LetorOptions:
    """What to generate.

    Attributes:
        queries: number of lists; 60 % for training, 20 % each for validation and test.
        mean_length: mean number of items; WEB30K's is 119.6.
        features: number of features, at least 8.
        context_strength: s.
        seed: random seed.

    Raises:
        UserError: for a value out of range.
    """

    queries: int = 1000
    mean_length: float = 119.6
    features: int = 20
    context_strength: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("queries", 5, None),
            ("mean_length", 2, MOST / 2),
            ("features", TOPICS + 3, None),
            ("context_strength", 0, None),
        ):
            value = getattr(self, name)
            if value < low or (high is not None and value > high):
                upper = "" if high is None else f" and <= {high:g}"
                raise UserError(f"{name} must be >= {low}{upper}. Received: {value}")


class GeneratedList(NamedTuple):
    """A list before grading.

    Attributes:
        features: [n, features], as written.
        utility: [n].
    """

    features: NDArray[np.float64]
    utility: NDArray[np.float64]


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardises over the list; 0 if all values are equal."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros_like(values)


def context_of(price: NDArray[np.float64], topic: NDArray[np.int64]) -> NDArray[np.float64]:
    """The context term of the utility: high for cheap items of rare topics.

    Example:
        >>> context_of(np.array([1.0, 3.0]), np.array([0, 0])).round(4)
        array([ 0.7071, -0.7071])
    """
    crowd = np.bincount(topic, minlength=TOPICS)[topic] / len(topic)
    return -(_standard(price) + _standard(crowd)) / np.sqrt(2.0)


def lists(options: LetorOptions, count: int, stream: int) -> Iterator[GeneratedList]:
    """Yields the lists of one random stream of the seed."""
    rng = np.random.default_rng([options.seed, stream])
    weights = np.random.default_rng([options.seed, 99]).normal(size=options.features - TOPICS - 1)
    weights /= np.linalg.norm(weights)
    middle = np.log(options.mean_length) - _SPREAD**2 / 2
    for _ in range(count):
        size = int(np.clip(np.round(rng.lognormal(middle, _SPREAD)), 1, MOST))
        x = rng.normal(size=(size, options.features))
        shift = _SHIFT * rng.normal(size=options.features)
        others = x[:, TOPICS + 1 :]
        # Variances 1/2, 1/4 and 1/4: E[sin(2 z)^2] is nearly 1/2.
        of_items = (
            np.sqrt(0.5) * others @ weights
            + 0.5 * others[:, 0] * others[:, 1]
            + np.sqrt(0.5) * np.sin(2.0 * x[:, 0])
        )
        context = context_of(x[:, TOPICS], np.argmax(x[:, :TOPICS], axis=1))
        within = np.sqrt(1.0 + options.context_strength**2 + _NOISE**2)
        noise = _NOISE * rng.normal(size=size) + _QUERY * within * rng.normal()
        features = x + shift
        # The topic is the greatest of the scores: a common shift leaves it readable.
        features[:, :TOPICS] = x[:, :TOPICS] + shift[0]
        yield GeneratedList(features, of_items + options.context_strength * context + noise)


def thresholds(options: LetorOptions) -> NDArray[np.float64]:
    """[4] the utilities at which the grades 1, 2, 3 and 4 begin."""
    sample = np.concatenate([generated.utility for generated in lists(options, _SAMPLE, stream=1)])
    return np.quantile(sample, np.cumsum(SHARES)[:-1])


def generate_letor(
    out: str | Path, options: LetorOptions, progress: Callable[..., None] | None = None
) -> dict[str, int]:
    """Writes `{train,validation,test}.txt.gz` and `truth.json` into the folder `out`.

    Args:
        out: a new or empty folder; it appears only when complete.
        options: what to generate.
        progress: called with the number of lists done and of all lists.

    Returns:
        The number of lists of each split.

    Raises:
        UserError: if `out` is not empty.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "lists"
        >>> generate_letor(out, LetorOptions(queries=10, mean_length=5))
        {'train': 6, 'validation': 2, 'test': 2}
    """
    fifth = options.queries // 5
    counts = {"train": options.queries - 2 * fifth, "validation": fifth, "test": fifth}
    limits = thresholds(options)
    source = lists(options, options.queries, stream=0)
    shares = np.zeros(len(SHARES), np.int64)
    number = 0
    with atomic_directory(out) as folder:
        for split, count in counts.items():
            with gzip.open(folder / f"{split}.txt.gz", "wt", _GZIP_LEVEL) as file:
                for _ in range(count):
                    generated = next(source)
                    grades = np.searchsorted(limits, generated.utility, side="right")
                    shares += np.bincount(grades, minlength=len(SHARES))
                    number += 1
                    _write(file, number, grades, generated.features)
                    if progress:
                        progress(number, options.queries)
        truth = {
            "options": asdict(options),
            "thresholds": limits.tolist(),
            "grades": shares.tolist(),
        }
        (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return counts


def _write(
    file: TextIO, query: int, grades: NDArray[np.int64], features: NDArray[np.float64]
) -> None:
    for grade, row in zip(grades, features, strict=True):
        values = " ".join(f"{number}:{value:.5g}" for number, value in enumerate(row, start=1))
        file.write(f"{grade} qid:{query} {values}\n")


def main() -> None:
    """Writes the lists that the command line describes."""
    parser = argparse.ArgumentParser(description="Generate graded lists in LETOR format.")
    parser.add_argument("--out", required=True, help="folder to create")
    for field in fields(LetorOptions):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(field.default), default=field.default)
    values = vars(parser.parse_args())
    out = values.pop("out")
    with progress_bar(Console(stderr=True), "lists") as progress:
        print(f"wrote {out}: {generate_letor(out, LetorOptions(**values), progress)}")


if __name__ == "__main__":
    main()
