"""Measures the cost of a request: a mixture of N experts, K active, against one tower.

    python benchmarks/serving_cost.py [--json FILE] [--quick]

Each model is untrained, of full size, saved with the serving signatures and loaded without Keras.
In every round each answers the same request (a list of 60 items with 36 features, 30 numbers and 4
ids per item and a random category) through `predict`, in random order; ratios are taken within the
round, and their medians and quartiles printed. `--lists` sends several lists per request, as a
server's batching does.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import machine, quartiles

from tfr_moe._compat import tf
from tfr_moe.schema import FeatureSchema, FeatureTables
from tfr_moe.scorers import create, explanation_model
from tfr_moe.serving.client.request import RequestEncoder
from tfr_moe.serving.export.signatures import DEFAULT, INPUT, build

TOWER = "dnn"
CATEGORIES = 50
IDS = 1000
SCHEMA = FeatureSchema.model_validate(
    {
        "list_id": "query",
        "labels": ["click"],
        "hierarchy": {"child": "sub", "parent": "top"},
        "features": [
            {"name": "top", "scope": "context", "kind": "categorical"},
            {"name": "sub", "scope": "context", "kind": "categorical"},
            *({"name": f"n{i}", "scope": "example", "kind": "numeric"} for i in range(30)),
            *({"name": f"c{i}", "scope": "example", "kind": "categorical"} for i in range(4)),
        ],
    }
)


def tables() -> FeatureTables:
    """Vocabularies of all ids, and statistics of numbers between 0 and 1."""
    uniform = {"mean": 0.5, "std": 0.29}
    vocabularies: dict[str, list[str]] = {f"c{i}": [f"id{k}" for k in range(IDS)] for i in range(4)}
    vocabularies["top"] = [f"top{k}" for k in range(10)]
    vocabularies["sub"] = [f"top{k % 10} > sub{k}" for k in range(CATEGORIES)]
    return FeatureTables(
        {"context": {}, "example": {f"n{i}": uniform for i in range(30)}}, vocabularies
    )


def requests(
    count: int, items: int = 60, seed: int = 1
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Random contexts and items."""
    rng = random.Random(seed)
    lists = []
    for _ in range(count):
        category = rng.randrange(CATEGORIES)
        rows = [
            {f"n{i}": rng.random() for i in range(30)}
            | {f"c{i}": f"id{rng.randrange(IDS)}" for i in range(4)}
            for _ in range(items)
        ]
        lists.append(({"top": f"top{category % 10}", "sub": f"sub{category}"}, rows))
    return lists


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--experts", type=int, nargs="+", default=[10, 64, 128], help="N")
    parser.add_argument("--top-k", type=int, default=4, help="K")
    parser.add_argument("--lists", type=int, default=1, help="lists in a request")
    parser.add_argument("--items", type=int, default=60, help="items in a list")
    parser.add_argument("--hidden", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, default=0, help="TensorFlow's threads; 0: its choice"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.hidden, arguments.rounds = [32, 16], 10
    return arguments


def served(name: str, arguments: argparse.Namespace, folder: Path, experts: int) -> Any:
    """A SavedModel with the serving signatures, saved and loaded."""
    settings = {
        "expert_hidden_dims": tuple(arguments.hidden),
        "num_experts": experts,
        "top_k": arguments.top_k,
        "seed": arguments.seed,
    }
    model = create(name, SCHEMA, tables(), settings).build_model()
    module, signatures = build(model, SCHEMA, explanation_model(model))
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return tf.saved_model.load(str(folder))


def run_rounds(
    answer: dict[str, Callable[[Any], Any]], batches: list[Any], seed: int
) -> list[dict[str, float]]:
    """Milliseconds of each model in each round."""
    shuffle = random.Random(seed)
    for function in answer.values():
        for batch in batches[:5]:
            function(batch)
    milliseconds = []
    for batch in batches:
        spent = {}
        for name in shuffle.sample(list(answer), len(answer)):
            started = time.perf_counter()
            answer[name](batch)
            spent[name] = 1e3 * (time.perf_counter() - started)
        milliseconds.append(spent)
    return milliseconds


def main() -> None:
    arguments = parse_arguments()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    encoder = RequestEncoder(SCHEMA)
    drawn = requests(arguments.rounds * arguments.lists, arguments.items, arguments.seed)
    lists = [encoder.encode(*request) for request in drawn]
    batches = [
        tf.constant(lists[i * arguments.lists : (i + 1) * arguments.lists])
        for i in range(arguments.rounds)
    ]
    loaded = {}
    with tempfile.TemporaryDirectory() as scratch:
        loaded[TOWER] = served(TOWER, arguments, Path(scratch) / TOWER, arguments.top_k)
        for experts in arguments.experts:
            name = f"moe N={experts}"
            loaded[name] = served("moe", arguments, Path(scratch) / str(experts), experts)

        def predict_with(model: Any) -> Callable[[Any], Any]:
            predict = model.signatures[DEFAULT]
            return lambda batch: predict(**{INPUT: batch})["scores"].numpy()

        answer = {name: predict_with(model) for name, model in loaded.items()}
        rounds = run_rounds(answer, batches, arguments.seed)
    first = f"moe N={arguments.experts[0]}"
    spent = {name: quartiles([r[name] for r in rounds]) for name in answer}
    ratios = {
        f"{name} / {other}": quartiles([r[name] / r[other] for r in rounds])
        for other in (TOWER, first)
        for name in answer
        if name not in (TOWER, other)
    }
    sizes = {k: v for k, v in vars(arguments).items() if k not in ("json", "quick")}
    result = {"machine": machine(), "sizes": sizes, "milliseconds": spent, "ratios": ratios}
    print(f"{result['machine']}\n{sizes}")
    for name, values in (*spent.items(), *ratios.items()):
        unit = " ms" if name in spent else ""
        quartile = f"quartiles {values['low']:.2f} to {values['high']:.2f}"
        print(f"{name:<24} {values['median']:.2f}{unit}  ({quartile})")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
