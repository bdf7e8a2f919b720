"""One export of each small model, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.serving.models import BRANDS, SHOP, mixture, scorer
from tfr_moe.encoding import ListEncoder, RowParser
from tfr_moe.serving.export import export_model

CONTEXT = {"top": "food", "sub": "bread", "age": 31}


def shop_items(count: int) -> list[dict[str, Any]]:
    return [
        {
            "price": 1.5 * i + 1,
            "stars": i % 5,
            "brand": BRANDS[i % 3],
            "tags": ["new", "sale"][: i % 3],
        }
        for i in range(count)
    ]


def elwc(items: list[dict[str, Any]], context: Mapping[str, Any] = CONTEXT) -> bytes:
    parser = RowParser(SHOP)
    return ListEncoder(SHOP).encode(
        "q", parser.values("context", context), [parser.values("example", item) for item in items]
    )


WARMUP = [elwc(shop_items(count)) for count in (3, 1, 7)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain`, `mixture` (list-level gate) and `itemwise` (item-level gate)."""
    root = tmp_path_factory.mktemp("models")
    export_model(scorer(), SHOP, root / "plain", warmup=WARMUP, details={"data": "shop"})
    for name, item_level in (("mixture", False), ("itemwise", True)):
        model, explanation = mixture(item_level)
        export_model(model, SHOP, root / name, explanation=explanation, warmup=WARMUP)
    return root


@pytest.fixture(scope="session")
def signature(models: Path) -> Callable[[str, str], Callable[[list[bytes]], dict[str, Any]]]:
    """Gives a signature of an exported model as a function of serialized lists."""
    from tfr_moe._compat import tf

    loaded = {p.name: tf.saved_model.load(str(p / "1")) for p in models.iterdir()}

    def get(model: str, name: str) -> Callable[[list[bytes]], dict[str, Any]]:
        function = loaded[model].signatures[name]

        def call(lists: list[bytes]) -> dict[str, Any]:
            outputs = function(inputs=tf.constant(lists, tf.string, shape=[len(lists)]))
            return {key: value.numpy() for key, value in outputs.items()}

        return call

    return get
