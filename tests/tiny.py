"""A small data set, written without Beam, whose category decides which feature matters."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from tests.records import encode_list
from tfr_moe._compat import tf
from tfr_moe.config import applicable, make_config
from tfr_moe.schema import FeatureSchema, shard_file

SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "query_id",
        "labels": ["purchase"],
        "position": "position",
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": [
            {"name": "top", "scope": "context", "kind": "categorical"},
            {"name": "sub", "scope": "context", "kind": "categorical"},
            {"name": "age", "scope": "context", "kind": "numeric", "default": 40.0},
            {"name": "clicked", "scope": "context", "kind": "categorical_list",
             "hash_buckets": 20, "max_length": 3},
            {"name": "brand", "scope": "example", "kind": "categorical", "min_count": 1},
            {"name": "price", "scope": "example", "kind": "numeric", "transform": "log1p",
             "required": True},
            {"name": "sales", "scope": "example", "kind": "numeric"},
        ],
    }
)  # fmt: skip

# The same with a second label, for models of several tasks.
TASKS = SCHEMA.model_copy(update={"labels": ("purchase", "click")})

TREE = {"a": ["x", "y"], "b": ["x", "z"]}  # x stands under both


def lists(count, seed):
    """Typed lists: in category a the cheapest item sells, in b the one with most sales."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        top = str(rng.choice(list(TREE)))
        size = int(rng.integers(2, 9))
        price = rng.gamma(2.0, 10.0, size)
        sales = rng.normal(size=size)
        utility = -np.log1p(price) if top == "a" else sales
        felt = utility + 0.2 * rng.normal(size=size)
        bought = int(np.argmax(felt))
        clicked = np.argsort(-felt)[: max(1, size // 3)]
        context = {
            "top": top,
            "sub": str(rng.choice(TREE[top])),
            "age": float(rng.integers(18, 80)),
            "clicked": [f"item{i}" for i in range(int(rng.integers(0, 4)))],
        }
        items = [
            {
                "brand": f"brand{rng.integers(5)}",
                "price": float(price[i]),
                "sales": float(sales[i]),
                "purchase": float(i == bought),
                "click": float(i in clicked),
                "position": float(i + 1),
            }
            for i in range(size)
        ]
        yield f"{seed}-{number}", context, items


def graded_lists(count, seed):
    """The same with grades for labels: 3 for what was bought, 1 for what was clicked, else 0."""
    for list_id, context, items in lists(count, seed):
        for item in items:
            item["purchase"] = 3.0 * item["purchase"] or item["click"]
        yield list_id, context, items


def write_data_folder(
    path: Path, train=200, validation=60, test=60, schema=SCHEMA, lists=lists
) -> Path:
    """Writes schema, statistics, vocabularies, manifest and gzip TFRecords below `path`."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "vocabulary").mkdir(exist_ok=True)
    schema.save(path / "schema.json")
    manifest = {"format": 1, "splits": {}}
    columns = {"age": [], "price": [], "sales": []}
    for seed, (split, count) in enumerate(
        {"train": train, "validation": validation, "test": test}.items(), start=1
    ):
        options = tf.io.TFRecordOptions(compression_type="GZIP")
        for shard in range(2):
            name = str(path / shard_file(split, shard, 2))
            with tf.io.TFRecordWriter(name, options) as writer:
                for i, (list_id, context, items) in enumerate(lists(count, seed)):
                    if i % 2 == shard:
                        writer.write(encode_list(schema, list_id, context, items))
                    if split == "train" and shard == 0:
                        columns["age"].append(context["age"])
                        columns["price"] += [float(np.log1p(item["price"])) for item in items]
                        columns["sales"] += [item["sales"] for item in items]
        manifest["splits"][split] = {"lists": count}
    statistics = {
        name: {"count": len(v), "mean": float(np.mean(v or [0])), "std": float(np.std(v or [0]))}
        for name, v in columns.items()
    }
    grouped = {
        "context": {"age": statistics["age"]},
        "example": {"price": statistics["price"], "sales": statistics["sales"]},
    }
    (path / "statistics.json").write_text(json.dumps(grouped))
    (path / "manifest.json").write_text(json.dumps(manifest))
    vocabularies = {
        "top": sorted(TREE),
        "sub": [f"{top} > {sub}" for top, subs in TREE.items() for sub in subs],
        "brand": [f"brand{i}" for i in range(5)],
    }
    for name, words in vocabularies.items():
        (path / "vocabulary" / f"{name}.txt").write_text("\n".join(words) + "\n")
    return path


SMALL = {
    "expert_hidden_dims": (16, 8),
    "embedding_dim": 4,
    "num_experts": 4,
    "top_k": 2,
    "learning_rate": 0.01,
    "batch_size": 32,
    "num_epochs": 3,
    "attention_dim": 8,
    "personal_vector": "sales",
}


def small_config(settings, **explicit):
    """The configuration of those settings that the model uses, since `SMALL` is for all models.

    Settings given by keyword are all passed on, so that one that the model does not use is refused.
    """
    model = explicit.get("model", settings.get("model", "adv_hsc_moe"))
    return make_config({**applicable(model, settings), **explicit})


def shop_log(count: int, seed: int) -> pd.DataFrame:
    """A log with the columns of README.md and docs/dataframes.md; the cheapest item is bought."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        sub = int(rng.integers(6))
        shared = {
            "search_id": f"{seed}-{number}",
            "date": pd.Timestamp("2024-01-01") + pd.Timedelta(number, "h"),
            "top_category": f"top {sub // 3}",
            "sub_category": f"sub {sub}",
            "query": ["jacket", "lamp", "phone"][sub % 3],
        }
        prices = rng.integers(1, 60, 5)
        for price in prices:
            item = {"product_id": int(rng.integers(30)), "price": float(price)}
            rows.append({**shared, **item, "purchased": price == prices.min()})
    return pd.DataFrame(rows)
