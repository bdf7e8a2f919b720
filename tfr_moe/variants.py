"""How an export may differ from the trained model: precision, a fixed list size, fewer categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tfr_moe._compat import tf
from tfr_moe.data import DataFolder
from tfr_moe.errors import UserError
from tfr_moe.layers.rows import fixed_shapes
from tfr_moe.scorers.flatten import flattened
from tfr_moe.scorers.fold import folded
from tfr_moe.scorers.narrow import narrowed
from tfr_moe.scorers.prune import pruned
from tfr_moe.training import LoadedRun
from tfr_moe.training.run import make_scorer

Precision = Literal["float32", "bfloat16"]


class ExportOptions(NamedTuple):
    """What `tfr-moe export` can change.

    Attributes:
        precision: `bfloat16` stores and multiplies the towers' weights in half precision.
        list_size: every list is filled up to this size, a longer one is refused, and the towers are
            compiled by XLA, which GPUs gain from; None for lists of any size.
        fold_gate: look the choice of experts up in a table by category.
        categories: names of top categories or `parent > child`; experts and embeddings that only others
            need are left out. Empty for all categories.
        unknown_categories: answer lists of other categories as those of unknown ones instead of
            refusing them.
    """

    precision: Precision = "float32"
    list_size: int | None = None
    fold_gate: bool = False
    categories: tuple[str, ...] = ()
    unknown_categories: bool = False


class Variant(NamedTuple):
    """A run's model after the options.

    Attributes:
        run: with the changed model.
        experts: the numbers of its experts in the trained model; empty where they are the same.
        categories: keys of the categories that it is for; empty for all.
        tracing: the context in which its graph is made.
        sentences: what was changed, for the model card.
    """

    run: LoadedRun
    experts: list[int]
    categories: list[str]
    tracing: Callable[[], AbstractContextManager[None]]
    sentences: list[str]


def as_precision(name: str) -> Precision:
    """The precision of that name.

    Raises:
        UserError: with the names that there are.
    """
    for known in get_args(Precision):
        if name == known:
            return known
    raise UserError(f"--precision must be one of {', '.join(get_args(Precision))}, got {name!r}")


def read_categories(path: Path) -> tuple[str, ...]:
    """Names from a file, one a line; blank lines and those that begin with # don't count.

    Raises:
        UserError: if the file can't be read or names nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--categories {path}: cannot be read ({error})") from error
    names = tuple(line.strip() for line in lines if line.strip() and line.strip()[0] != "#")
    if not names:
        raise UserError(f"--categories {path}: names no category")
    return names


def applied(run: LoadedRun, options: ExportOptions) -> Variant:
    """Changes a run's model as the options say.

    Raises:
        UserError: for what this model can't do.
    """
    if options.list_size is not None and options.list_size < 1:
        raise UserError(f"--list-size must be above 0, got {options.list_size}")
    if options.unknown_categories and not options.categories:
        raise UserError("--unknown-categories is for an export with --categories")
    model = run.model
    experts: list[int] = []
    kept: list[str] = []
    sentences: list[str] = []
    if options.categories:
        scorer = make_scorer(DataFolder(run.path), run.config)
        model, kept, experts = pruned(scorer, model, options.categories, options.unknown_categories)
        sentences.append(_pruned_sentence(kept, experts, options))
    model = flattened(model)
    if options.fold_gate:
        model = folded(model)
        sentences.append("The choice of experts is looked up in a table by category.")
    if options.precision == "bfloat16":
        model = narrowed(model)
        sentences.append("The towers compute in bfloat16.")
    tracing: Callable[[], AbstractContextManager[Any]] = nullcontext
    if options.list_size is not None:
        tracing = fixed_shapes
        sentences.append(
            f"Lists have at most {options.list_size} items; the towers are compiled by XLA."
        )
    return Variant(run._replace(model=model), experts, kept, tracing, sentences)


def _pruned_sentence(kept: Sequence[str], experts: Sequence[int], options: ExportOptions) -> str:
    names = ", ".join(options.categories[:10]) + (", ..." if len(options.categories) > 10 else "")
    rest = "answered as unknown ones" if options.unknown_categories else "refused"
    those = f" Experts {', '.join(map(str, experts))} are in it." if experts else ""
    return f"Only for {len(kept)} sub-categories ({names}); others are {rest}.{those}"


def renumbered(explanation: tf.keras.Model, experts: Sequence[int]) -> tf.keras.Model:
    """The explanation with experts called by their numbers in the trained model."""
    numbers = tf.constant(list(experts), tf.int32)
    outputs = {
        name: tf.gather(numbers, value) if name.startswith("expert_ids") else value
        for name, value in explanation.output.items()
    }
    return tf.keras.Model(explanation.input, outputs)
