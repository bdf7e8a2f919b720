"""Initial lists for re-rankers, by any ranker, without leakage: cross-fitted in folds.

As Pobrotyn et al. 2020, section 5.5: the training lists are cut into k folds by a hash of their ids, k
rankers are trained on k - 1 folds each, and each scores the fold that it has not seen. A ranker that is
trained on all of them scores validation and test. Every list is then put into the order of its scores.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tfr_moe._compat import tf, tfr
from tfr_moe.comparison import open_run, scorer_of, train_model
from tfr_moe.config import RunConfig
from tfr_moe.data import DataFolder, ElwcDatasetBuilder
from tfr_moe.errors import UserError
from tfr_moe.evaluation.score import compiled
from tfr_moe.folders import complete_folder, read_json, write_json
from tfr_moe.schema import (
    MANIFEST_FILE,
    MASK,
    PACKED,
    SCHEMA_FILE,
    STATISTICS_FILE,
    Feature,
    FeatureSchema,
    shard_file,
)
from tfr_moe.scorers.multitask import SCORES

SCORE, POSITION = "initial_score", "initial_position"
_LISTS_AT_A_TIME = 128


def fold_of(list_id: str, folds: int) -> int:
    """The fold of a list, the same in every run.

    Example:
        >>> 0 <= fold_of("query 7", 5) < 5
        True
    """
    return int.from_bytes(hashlib.blake2b(list_id.encode(), digest_size=8).digest(), "big") % folds


def with_initial_list(schema: FeatureSchema) -> FeatureSchema:
    """The schema of re-ranking data: `initial_score` is a numeric of the items.

    The display position becomes the place in the initial list, `initial_position` where the schema
    named none.

    Raises:
        UserError: if the data has an initial score already.
    """
    if SCORE in [feature.name for feature in schema.features]:
        raise UserError(f"the data has a feature {SCORE!r} already: give the set that it came from")
    score = Feature.model_validate({"name": SCORE, "scope": "example", "kind": "numeric"})
    return FeatureSchema.model_validate(
        {
            **schema.model_dump(mode="json", exclude_defaults=True),
            "features": [
                feature.model_dump(mode="json", exclude_defaults=True)
                for feature in (*schema.features, score)
            ],
            "position": schema.position or POSITION,
        }
    )


def reordered(serialized: bytes, scores: Any, schema: FeatureSchema) -> bytes:
    """A list in the order of its scores, with score and place in each item.

    Args:
        serialized: `ExampleListWithContext`.
        scores: one for each item; equal ones keep their order.
        schema: that of the re-ranking data.
    """
    from tensorflow_serving.apis import input_pb2

    before = input_pb2.ExampleListWithContext.FromString(serialized)
    after = input_pb2.ExampleListWithContext(context=before.context)
    column = PACKED["example"] if schema.packed else SCORE
    for place, at in enumerate(np.argsort(-np.asarray(scores), kind="stable"), start=1):
        item = after.examples.add()
        item.CopyFrom(before.examples[at])
        # A feature that is added last stands last among the packed numbers.
        item.features.feature[column].float_list.value.append(float(scores[at]))
        item.features.feature[schema.position].float_list.value[:] = [float(place)]
    return after.SerializeToString(deterministic=True)


def rerank_data(
    data: str | Path,
    out: str | Path,
    config: RunConfig,
    folds: int = 5,
    console: Console | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes a data set of initial lists; the same call goes on where a killed one stopped.

    Until it is complete, the folds and the rankers stand in the hidden folder `.<name>.work` beside it.

    Args:
        data: the data-set folder.
        out: the folder to make.
        config: the settings of the ranker, of any model.
        folds: k.
        console: where progress goes; None for stderr.
        overwrite: replace `out`.

    Returns:
        Per split the number of lists.

    Raises:
        UserError: for data, settings or folders that don't fit.
    """
    console = console or Console(stderr=True)
    folder, out = DataFolder(data), Path(out)
    if folds < 2:
        raise UserError(f"folds must be 2 or more, got {folds}")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise UserError(f"{out}: exists already; give another folder or ask to overwrite it")
    schema = with_initial_list(folder.schema)
    splits = [split for split in ("validation", "test") if folder.num_lists(split) != 0]
    work = out.parent / f".{out.name}.work"
    _hold(
        work, {"data": str(folder.path.resolve()), "folds": folds, **config.model_dump(mode="json")}
    )
    _make_folds(folder, work, folds, console)
    parts: dict[str, list[tuple[Path, str, Path]]] = {"train": []}
    for fold in range(folds):
        without = work / f"without-{fold}"
        run = _trained(
            without, work / "runs" / str(fold), config, f"fold {fold + 1}/{folds}", console
        )
        parts["train"].append((without, "test", run))
    everything = _trained(folder.path, work / "runs" / "all", config, "all of train", console)
    for split in splits:
        parts[split] = [(folder.path, split, everything)]
    with complete_folder(out, overwrite) as partial:
        counts = _write(folder, partial, parts, schema, console)
        _describe(folder, partial, schema, counts, config, folds)
    shutil.rmtree(work)
    return {split: found["lists"] for split, found in counts.items()}


def _hold(work: Path, options: dict[str, Any]) -> None:
    path = work / "options.json"
    begun = read_json(path)
    if begun is not None and begun != options:
        names = [name for name in options if begun.get(name) != options[name]]
        raise UserError(
            f"{work}: was begun with another {', '.join(names)}; give the same again, or remove it"
        )
    work.mkdir(parents=True, exist_ok=True)
    write_json(path, options)


def _list_id(serialized: bytes, schema: FeatureSchema) -> str:
    from tensorflow_serving.apis import input_pb2

    found = input_pb2.ExampleListWithContext.FromString(serialized)
    return found.context.features.feature[schema.list_id].bytes_list.value[0].decode("utf-8")


def _make_folds(folder: DataFolder, work: Path, folds: int, console: Console) -> None:
    """A data set `without-<fold>` for each fold: trained on the others, with the fold for its test."""
    if (work / "folds").is_dir():
        return
    counts = [0] * folds
    names = [shard_file("fold", fold, folds) for fold in range(folds)]
    with (
        console.status("cutting the training lists into folds"),
        complete_folder(work / "folds") as partial,
    ):
        writers = [_writer(partial / name) for name in names]
        for record in ElwcDatasetBuilder(folder).serialized_lists("train").as_numpy_iterator():
            fold = fold_of(_list_id(record, folder.schema), folds)
            writers[fold].write(record)
            counts[fold] += 1
        for writer in writers:
            writer.close()
        if not all(counts):
            raise UserError(
                f"data {folder.path}: {sum(counts)} training lists don't fill {folds} folds"
            )
        for fold in range(folds):
            _without(folder, work / f"without-{fold}", fold, names, counts)


def _without(
    folder: DataFolder, path: Path, fold: int, names: list[str], counts: list[int]
) -> None:
    shutil.rmtree(path, ignore_errors=True)
    folder.copy_description(path)
    others = [name for place, name in enumerate(names) if place != fold]
    for number, name in enumerate(others):
        os.symlink(f"../folds/{name}", path / shard_file("train", number, len(others)))
    os.symlink(f"../folds/{names[fold]}", path / shard_file("test", 0, 1))
    for file in folder.files("validation"):
        os.symlink(os.path.abspath(file), path / Path(file).name)
    lists = {"train": sum(counts) - counts[fold], "test": counts[fold]}
    validation = folder.num_lists("validation")
    splits = {split: {"lists": number} for split, number in lists.items()}
    if validation is not None:
        splits["validation"] = {"lists": validation}
    write_json(path / MANIFEST_FILE, {"splits": splits})


def _trained(data: Path, run: Path, config: RunConfig, what: str, console: Console) -> Path:
    console.print(f"{config.model} on {what}", highlight=False)
    train_model(data, run, config, console)
    return run


def _writer(path: Path) -> Any:
    return tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP"))


def scored_records(data: Path, split: str, run: Path) -> Iterator[tuple[bytes, Any]]:
    """The records of a split in the order of the files, each with the run's scores of its items."""
    folder = DataFolder(data)
    schema = folder.schema

    def parse(serialized: Any) -> tuple[Any, Any]:
        features = tfr.data.parse_from_example_list(
            serialized,
            context_feature_spec=schema.feature_spec("context"),
            example_feature_spec=schema.feature_spec("example"),
            mask_feature_name=MASK,
        )
        return serialized, features

    records = ElwcDatasetBuilder(folder).serialized_lists(split).batch(_LISTS_AT_A_TIME).map(parse)
    score = compiled(scorer_of(open_run(run)), records.element_spec[1])
    for serialized, features in records:
        found = score(features)
        scores = (found[SCORES] if isinstance(found, dict) else found).numpy()
        for record, own, there in zip(
            serialized.numpy(), scores, features[MASK].numpy(), strict=True
        ):
            yield record, own[there]


def _write(
    folder: DataFolder,
    out: Path,
    parts: dict[str, list[tuple[Path, str, Path]]],
    schema: FeatureSchema,
    console: Console,
) -> dict[str, dict[str, float]]:
    """Writes the records; per split the numbers of lists and items, and moments of the scores."""
    counts = {}
    for split, sources in parts.items():
        found: dict[str, Any] = {"lists": 0, "items": 0}
        seen = []
        for number, (data, part, run) in enumerate(sources):
            with (
                console.status(f"scoring {split} {number + 1}/{len(sources)}"),
                _writer(out / shard_file(split, number, len(sources))) as writer,
            ):
                for record, scores in scored_records(data, part, run):
                    writer.write(reordered(record, scores, schema))
                    found["lists"] += 1
                    found["items"] += len(scores)
                    seen.append(_sums(scores))
        counts[split] = {**found, **_moments(np.array(seen))}
    return counts


def _sums(scores: Any) -> tuple[float, ...]:
    values = np.asarray(scores, np.float64)
    return len(values), values.sum(), np.square(values).sum(), values.min(), values.max()


def _moments(sums: Any) -> dict[str, float]:
    """Mean, deviation, least and greatest from the sums of the lists."""
    count, total, squares = sums[:, 0].sum(), sums[:, 1].sum(), sums[:, 2].sum()
    mean = total / count
    std = float(np.sqrt(max(0.0, squares / count - mean**2)))
    return {
        "count": int(count),
        "mean": float(mean),
        "std": std,
        "min": float(sums[:, 3].min()),
        "max": float(sums[:, 4].max()),
    }


def _describe(
    folder: DataFolder,
    out: Path,
    schema: FeatureSchema,
    counts: dict[str, dict[str, float]],
    config: RunConfig,
    folds: int,
) -> None:
    """Schema, statistics, vocabularies and manifest of the new set."""
    folder.copy_description(out)
    (out / SCHEMA_FILE).unlink()
    schema.save(out / SCHEMA_FILE)
    of_train = {k: counts["train"][k] for k in ("count", "mean", "std", "min", "max")}
    statistics: dict[str, Any] = dict(folder.statistics)
    statistics["example"] = {**statistics.get("example", {}), SCORE: of_train}
    write_json(out / STATISTICS_FILE, statistics)
    manifest: dict[str, Any] = {"format": 1}
    if (folder.path / MANIFEST_FILE).is_file():
        manifest = dict(folder.manifest)
    manifest["splits"] = {
        split: {"lists": found["lists"], "items": found["items"]} for split, found in counts.items()
    }
    manifest["initial_lists"] = {
        "data": str(folder.path.resolve()),
        "folds": folds,
        "ranker": config.model_dump(mode="json", exclude_defaults=True),
    }
    write_json(out / MANIFEST_FILE, manifest)
