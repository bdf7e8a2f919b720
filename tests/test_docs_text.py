"""The tutorial on text in docs/dataframes.md runs as it stands, and the vectors help."""

import joblib
import numpy as np
import pandas as pd
import pytest

from tests.test_docs import blocks_of
from tfr_moe import Ranker
from tfr_moe.beam import BuildOptions, build
from tfr_moe.data import DataFolder

COLOURS = ["black", "white", "red", "blue", "green", "yellow"]
THINGS = ["lamp", "jacket", "phone", "table", "kettle", "tent"]


def search_log(lists, seed, size=5):
    """The item with the colour of the query is bought."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(lists):
        thing = rng.choice(THINGS)
        colours = rng.permutation(COLOURS)[:size]
        wanted = int(rng.integers(size))
        for i, colour in enumerate(colours):
            rows.append(
                {
                    "search_id": f"{seed}-{number}",
                    "query": f"{colours[wanted]} {thing}",
                    "title": f"{thing} model {rng.integers(10**6)}, {colour}",
                    "price": float(rng.integers(1, 90)),
                    "purchased": int(i == wanted),
                }
            )
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def frames():
    return {"train": search_log(300, 0), "valid": search_log(60, 1), "test": search_log(60, 2)}


@pytest.fixture(scope="module")
def names(frames, repository, tmp_path_factory):
    """The names of the tutorial after it ran, and its folder."""
    page = repository / "docs" / "dataframes.md"
    (result,) = [b for b in blocks_of(page.read_text(encoding="utf-8")) if "sklearn" in b[1]]
    namespace = {**frames, "folder": tmp_path_factory.mktemp("text")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(namespace["folder"])
        exec(compile("\n" * (result[0] - 1) + result[1], str(page), "exec"), namespace)
    return namespace


def test_the_vector_is_a_wide_numeric_and_helps(names, frames):
    ranker = names["text_ranker"]
    vector = ranker.schema.feature("title_vector")
    assert (vector.kind, vector.scope, vector.width) == ("numeric", "example", 16)
    metrics = ranker.evaluate(names["with_vectors"](frames["test"]), ["ndcg"])
    plain = Ranker("dnn", learning_rate=0.01, num_epochs=3).fit(
        frames["train"],
        validation=frames["valid"],
        list_id="search_id",
        label="purchased",
        ignore=["title"],
        verbose=0,
    )
    # NDCG of a random order of five with one relevant item is 0.59.
    assert plain.evaluate(frames["test"], ["ndcg"])["ndcg"] < 0.75
    assert metrics["ndcg"] > 0.95


def test_the_file_of_the_tutorial_builds_the_same_statistics(names):
    folder = names["folder"]
    build(
        BuildOptions(
            "search-logs",
            str(folder / "log.parquet"),
            folder / "schema.json",
            folder / "data",
            validation_fraction=0.0,
            test_fraction=0.0,
        )
    )
    fitted = DataFolder(names["text_ranker"].run.path).statistics["example"]
    built = DataFolder(folder / "data").statistics["example"]
    assert set(built) == {"price", "text_match", *(f"title_vector[{i}]" for i in range(16))}
    for column, numbers in built.items():
        assert numbers == pytest.approx(fitted[column], rel=1e-6, abs=1e-9), column


def test_requests_are_embedded_by_the_stored_encoder(names, frames):
    embed = joblib.load(names["folder"] / "embed.joblib")
    ranker, rows = names["text_ranker"], frames["test"].head(5)
    titles = embed.transform(rows["title"]).astype("float32")
    match = titles @ embed.transform(rows["query"].head(1))[0]
    items = [
        {"price": price, "title_vector": vector.tolist(), "text_match": float(number)}
        for price, vector, number in zip(rows["price"], titles, match, strict=True)
    ]
    ranking = ranker.rank({"query": rows["query"].iloc[0]}, items)
    assert ranking[0].index == int(np.argmax(rows["purchased"].to_numpy()))
