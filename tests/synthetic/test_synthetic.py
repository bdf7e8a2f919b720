import csv
import gzip
import itertools

import numpy as np
import pytest

from tests.records import typed_row
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.synthetic import (
    SearchLogOptions,
    SessionGenerator,
    build_world,
    generate,
    world,
)
from tfr_moe.synthetic.world import COMPONENTS, Words
from tfr_moe.utils.settings import parse_options

SMALL = SearchLogOptions(sessions=60, num_files=2, top_categories=3, sub_categories=9)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rows(folder):
    for path in sorted(folder.glob("logs-*.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def drawn(options, *names):
    """Columns, utility and session of all rows, as flat arrays."""
    generator = SessionGenerator(options, build_world(options))
    parts, offset = [], 0
    for part in range(options.num_files):
        for chunk in generator.chunks(part):
            columns = [chunk.columns[name] for name in names]
            parts.append((*columns, chunk.utility, chunk.session + offset))
            offset += len(chunk.history)
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def auc(score, label):
    """Share of (bought, not bought) pairs in the right order, by looking at every pair."""
    pairs = score[label == 1][:, None] - score[label == 0][None]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0))


def feature_importance(options, names, groups):
    """[groups, features] eq. 16: the AUC of each feature, averaged over a group's sessions."""
    *columns, group, label, _, session = drawn(options, *names, groups, "purchase")
    bounds = np.searchsorted(session, np.arange(session[-1] + 2))
    result = {}
    for begin, end in itertools.pairwise(bounds):
        bought = label[begin:end]
        if 0 < bought.sum() < len(bought):
            values = [auc(column[begin:end], bought) for column in columns]
            result.setdefault(group[begin], []).append(values)
    return np.array([np.mean(result[key], axis=0) for key in sorted(result)])


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        generate(tmp_path / name, SMALL.model_copy(update={"seed": seed}))
    first, again, other = (contents(tmp_path / name) for name in "abc")
    assert first == again
    assert all(first[name] != other[name] for name in first if name != "schema.yaml")


def test_files_are_named_by_part_and_nothing_else_is_left(tmp_path):
    generate(tmp_path / "logs", SMALL)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "logs-00000-of-00002.csv.gz",
        "logs-00001-of-00002.csv.gz",
        "schema.yaml",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_schema_loads_and_every_row_parses(tmp_path):
    generate(tmp_path / "logs", SMALL)
    schema = FeatureSchema.load(tmp_path / "logs" / "schema.yaml")
    parsed = [typed_row(schema, row) for row in rows(tmp_path / "logs")]
    assert len({row.list_id for row in parsed}) == SMALL.sessions
    times = [row.time for row in parsed]
    assert times == sorted(times)
    assert times[-1] - times[0] <= SMALL.days * 86400
    assert {value for row in parsed for value in (row.example["purchase"],)} == {0.0, 1.0}


def test_labels_position_and_utility_are_no_features(tmp_path):
    generate(tmp_path / "logs", SMALL)
    schema = FeatureSchema.load(tmp_path / "logs" / "schema.yaml")
    names = {feature.name for feature in schema.features}
    others = {"purchase", "cart", "click", "position", "session_id", "timestamp"}
    assert names.isdisjoint({*others, "utility"})
    assert names | others == set(next(iter(rows(tmp_path / "logs"))))


def test_positions_count_from_one_and_items_of_a_list_are_distinct():
    position, item, _, session = drawn(SMALL, "position", "item_id")
    for s in range(SMALL.sessions):
        mine = session == s
        assert position[mine].tolist() == list(range(1, mine.sum() + 1))
        assert len(set(item[mine])) == mine.sum() >= 2


def test_an_item_has_the_same_attributes_wherever_it_is_shown():
    options = SMALL.model_copy(update={"sessions": 300, "items_per_category": 5})
    columns = ("item_id", "price", "brand", "sales_volume", "item_sub_category")
    *values, _, _ = drawn(options, *columns)
    by_item = {}
    for item, *attributes in zip(*values, strict=True):
        by_item.setdefault(item, set()).add(tuple(attributes))
    assert max(len(actual) for actual in by_item.values()) == 1
    assert len(values[0]) > 5 * len(by_item)


def test_the_pair_of_names_is_the_key_of_a_sub_category():
    world = build_world(SearchLogOptions(shared_names=2))
    pairs = list(zip(world.parent, world.sub_names, strict=True))
    assert len(set(pairs)) == len(pairs) == 60
    twice = {name for name in world.sub_names if world.sub_names.count(name) > 1}
    assert len(twice) == 2
    strict = build_world(SearchLogOptions(shared_names=0))
    assert len(set(strict.sub_names)) == 60


def test_weights_have_length_one_at_every_strength():
    for strength in (0.0, 0.3, 1.0):
        world = build_world(SearchLogOptions(category_strength=strength))
        np.testing.assert_allclose(np.linalg.norm(world.weights, axis=1), 1.0, atol=1e-12)
    assert world.weights.shape == (60, len(COMPONENTS))


def test_strength_zero_leaves_nothing_of_the_categories():
    world = build_world(SearchLogOptions(category_strength=0.0))
    np.testing.assert_array_equal(world.price_level, 0.0)
    np.testing.assert_allclose(world.weights, np.broadcast_to(world.common, world.weights.shape))


@pytest.mark.parametrize("strength, varies", [(1.0, True), (0.0, False)])
def test_feature_importance_varies_between_top_categories_not_within(strength, varies):
    names = ("product_ctr", "price", "sales_volume", "good_comments_ratio", "relevance_score")
    options = SearchLogOptions(
        sessions=5000,
        num_files=1,
        top_categories=4,
        sub_categories=8,
        shared_names=0,
        traffic_exponent=0.0,
        off_category=0.0,
        category_strength=strength,
    )
    importance = feature_importance(options, names, "sub_category").reshape(4, 2, len(names))
    within = importance.var(axis=1, ddof=1).mean()
    between = 2 * importance.mean(axis=1).var(axis=0, ddof=1).mean()
    # The F ratio of an analysis of variance: near 1 where top categories are all alike.
    ratio = between / within
    assert ratio > 4 if varies else ratio < 2


def test_purchases_fall_with_position_at_equal_utility():
    biased = SearchLogOptions(sessions=4000, num_files=1, position_bias=0.7, mean_list_length=10)
    for options, expected in (
        (biased, 8**-0.7),
        (biased.model_copy(update={"position_bias": 0.0}), 1),
    ):
        position, purchase, utility, _ = drawn(options, "position", "purchase")
        high = utility > 1.5
        top, low = (purchase[high & (position == p)].mean() for p in (1, 8))
        assert low / top == pytest.approx(expected, abs=0.12)


def test_a_purchase_has_a_cart_a_cart_a_click_and_rates_come_out_near_the_options():
    options = SearchLogOptions(sessions=3000, num_files=1)
    click, cart, purchase, _, _ = drawn(options, "click", "cart", "purchase")
    assert np.all(click >= cart)
    assert np.all(cart >= purchase)
    assert cart.mean() == pytest.approx(options.cart_rate, abs=0.04)
    assert purchase.mean() == pytest.approx(options.purchase_rate, abs=0.03)
    assert click.mean() == pytest.approx(options.click_rate, abs=0.05)


def test_the_true_utility_ranks_well_but_not_perfectly():
    label, utility, session = drawn(SearchLogOptions(sessions=1500, num_files=1), "purchase")
    values = [
        auc(utility[session == s], label[session == s])
        for s in range(1500)
        if 0 < label[session == s].sum() < np.sum(session == s)
    ]
    assert 0.75 < np.mean(values) < 0.86


def test_hashed_numbers_are_uniform_and_normal():
    keys = world.combine(3, np.arange(100_000))
    uniform, normal = world.uniform(keys), world.normal(keys)
    counts = np.bincount((uniform * 10).astype(int), minlength=10)
    assert np.all(np.abs(counts - 10_000) < 500)
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert np.mean(normal > 1.0) == pytest.approx(0.1587, abs=0.01)


def test_zipf_cdf_of_three_ranks():
    # Weights 1, 1/2, 1/3 of 11/6.
    np.testing.assert_allclose(world.zipf_cdf(3, 1.0), [6 / 11, 9 / 11, 1.0])


def test_the_sizes_of_table_two_come_in_chunks():
    options = SearchLogOptions(
        sessions=2_250_000,
        num_files=100,
        top_categories=38,
        sub_categories=3479,
        queries_per_category=640,
        users=1_000_000,
    )
    generator = SessionGenerator(options, build_world(options))
    chunk = next(generator.chunks(99))
    assert len(chunk.history) == 1000
    assert 9_000 < len(chunk.utility) < 15_000
    assert chunk.columns["session_id"][0] == 2_227_500


def test_progress_counts_sessions(tmp_path):
    seen = []
    generate(tmp_path / "logs", SMALL, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(30, 60), (60, 60)]


def test_an_interrupted_log_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "logs", SMALL, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        generate(tmp_path, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


@pytest.mark.parametrize(
    "pairs, message",
    [
        (["category_strength=1.5"], "category_strength: Input should be less than or equal to 1$"),
        (["sessions=0"], "sessions: Input should be greater than or equal to 1$"),
        (["seed=first"], "seed: Input should be a valid integer"),
        (["sub_categories=3"], r"sub_categories must be between 8 and 1e\+07, got 3$"),
        (["purchase_rate=0.5"], "purchase_rate must be between 0.001 and 0.15, got 0.5$"),
        (["noise=nan"], "noise: Input should be less than or equal to 10$"),
        (["colour=red"], "setting 'colour=red': synth has no such option; available: sessions, "),
    ],
)
def test_unknown_options_and_values_out_of_range_are_rejected_by_name(pairs, message):
    with pytest.raises(UserError, match=message):
        parse_options(SearchLogOptions, pairs, "synth")


def test_options_as_text_get_the_types_of_their_fields():
    options = parse_options(SearchLogOptions, ["num_files=3", "noise=0.5"], "synth", sessions=50)
    assert options == SearchLogOptions(sessions=50, num_files=3, noise=0.5)


def test_combinations_keep_the_variance_and_follow_the_strength():
    """|A_c| = 1 in every category; at strength 0 all categories share one A_0."""
    for strength, spread in ((0.0, 0.0), (1.0, 0.5)):
        world = build_world(SearchLogOptions(combinations=0.5, category_strength=strength))
        np.testing.assert_allclose(np.linalg.norm(world.combinations, axis=1), 1.0)
        assert np.std(world.combinations, axis=0).mean() >= 0.2 * spread
        if not spread:
            np.testing.assert_allclose(world.combinations, world.combinations[:1].repeat(60, 0))
    variances = [
        np.concatenate(
            [c.utility for c in SessionGenerator(options, build_world(options)).chunks(0)]
        ).var()
        for options in (
            SearchLogOptions(sessions=3000, num_files=1, combinations=p) for p in (0.0, 0.6)
        )
    ]
    # 36,000 rows; items repeat, so the variances agree within some per cent.
    assert variances[1] == pytest.approx(variances[0], rel=0.1)


def test_names_are_readable_one_to_one_and_leave_the_numbers_as_they_are(tmp_path):
    generate(tmp_path / "logs", SMALL)
    written = list(rows(tmp_path / "logs"))
    named = ("query_id", "item_id", "brand")
    numbers = ("price", "position", "purchase", "user_id", *named)
    *plain, queries, items, brands, _, _ = drawn(SMALL, *numbers)
    for name, values in zip(numbers, plain, strict=False):
        np.testing.assert_allclose([float(row[name]) for row in written], values)
    for name, values in zip(named, (queries, items, brands), strict=True):
        pairs = {(row[name], int(value)) for row, value in zip(written, values, strict=True)}
        texts = {text for text, _ in pairs}
        assert len(pairs) == len(texts) == len(set(values.tolist())), name
        assert all(text[0].isalpha() and "|" not in text for text in texts), name
    item_ids = {row["item_id"] for row in written}
    history = [item for row in written for item in row["click_history"].split("|") if item]
    assert len(item_ids.intersection(history)) > 20


@pytest.mark.parametrize("changes", [{}, {"top_categories": 38, "sub_categories": 400}])
def test_every_name_of_a_log_is_another(changes):
    options = SearchLogOptions(queries_per_category=1100, **changes)
    words = Words(options, build_world(options))
    categories = options.sub_categories
    for names, count in (
        (words.query, categories * options.queries_per_category),
        (words.product, categories * options.items_per_category),
        (words.brand, 4000),
    ):
        assert len({names(number) for number in range(count)}) == count
    assert words.query(0) == "black jackets"
    assert words.query(150) == "black jackets for travel"
    # The accessories of two top categories.
    number = build_world(options).sub_names.index("Accessories") * options.items_per_category
    assert words.product(number) == "Black Clothing Accessory 1"
