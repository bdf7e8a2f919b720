import pytest

import experiments.datasets.wands  # noqa: F401 (registers the source)
from tests.beam.sourcing import rows_of
from tfr_moe.beam import BuildOptions, build
from tfr_moe.errors import UserError

QUERIES = """query_id\tquery\tquery_class
0\tsalon chair\tMassage Chairs
1\tsmart coffee table\tCoffee Tables
2\tnothing judged\t
"""
PRODUCTS = (
    "product_id\tproduct_name\tproduct_class\tcategory_hierarchy\tproduct_description\t"
    "product_features\trating_count\taverage_rating\treview_count\n"
    "10\tHydraulic Salon Chair\tMassage Chairs\tFurniture / Seating / Massage  Chairs"
    "\ta\tb\t5\t4.5\t3\n"
    '11\t"Round ""smart"" table"\tCoffee Tables|End Tables\tFurniture / Tables\t\t\t\t\t\n'
    "12\tSalon lamp\tLamps\tLighting &amp; Fans / Lamps\td\te\t1\t1.0\t1\n"
    "13\tSpa chair\tMassage Chairs\tOffice / Chairs\td\te\t1\t1.0\t1\n"
    "14\tOld chair\tMassage Chairs\tFurniture / Chairs\td\te\t1\t1.0\t1\n"
    "14\tOld chair\tMassage Chairs\tFurniture / Chairs\td\te\t1\t1.0\t1\n"
)
LABELS = """id\tquery_id\tproduct_id\tlabel
0\t0\t10\tExact
1\t0\t12\tIrrelevant
2\t0\t14\tPartial
3\t1\t11\tExact
4\t1\t99\tExact
5\t9\t10\tExact
6\t1\t10\tPerhaps
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in (("query", QUERIES), ("product", PRODUCTS), ("label", LABELS)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def test_pairs_are_joined_with_query_and_product(folder):
    rows, counts, _ = rows_of(folder, "wands", folder, None)
    first, lamp = rows[0].values, rows[1].values
    assert (first["query_id"], first["product_id"], first["relevance"]) == ("0", "10", 2.0)
    assert (first["top_category"], first["sub_category"]) == ("Furniture", "Massage Chairs")
    assert first["query_words"] == ["salon", "chair"]
    assert first["name_words"] == ["hydraulic", "salon", "chair"]
    assert (first["words_in_name"], first["same_class"]) == (1.0, 1.0)
    assert (lamp["words_in_name"], lamp["same_class"], lamp["relevance"]) == (0.5, 0.0, 0.0)
    assert lamp["top_category"] == "Lighting & Fans"
    assert rows[2].values["relevance"] == 1.0
    assert rows[3].values["product_name"] == 'Round "smart" table'
    assert counts["source", "products", "duplicate"] == 1
    assert counts["source", "queries", "kept"] == 3


def test_the_top_category_of_a_query_is_that_of_most_products_of_its_class(folder):
    rows, _, _ = rows_of(folder, "wands", folder, None)
    # Of the massage chairs two are Furniture and one is Office.
    assert [row.values["query_top_category"] for row in rows[:4]] == ["Furniture"] * 4


def test_pairs_that_name_nothing_known_are_rejected_with_their_place(folder):
    rows, _, _ = rows_of(folder, "wands", folder, None)
    assert [(row.line, row.error) for row in rows if row.error] == [
        (6, "column 'product_id': not in product.csv, got '99'"),
        (7, "column 'query_id': not in query.csv, got '9'"),
        (8, "column 'label': expected Exact, Partial, Irrelevant, got 'Perhaps'"),
    ]


def test_a_data_set_has_a_list_for_each_judged_query(folder):
    manifest = build(
        BuildOptions("wands", str(folder), None, folder / "data", seed=1, max_lost=0.5)
    )
    assert sum(split["lists"] for split in manifest["splits"].values()) == 2
    assert manifest["rows"] == {"read": 7, "written": 4, "rejected": 3, "cut": 0}
    assert manifest["source_counts"]["products"] == {"read": 6, "kept": 5, "duplicate": 1}
    child = (folder / "data" / "vocabulary" / "query_class.txt").read_text().splitlines()
    assert set(child) <= {"Furniture > Massage Chairs", "Furniture > Coffee Tables"}


def test_a_missing_file_or_column_is_named(folder):
    (folder / "product.csv").write_text("product_id\tproduct_name\n")
    with pytest.raises(UserError, match=r"product.csv: missing column 'product_class', "):
        rows_of(folder, "wands", folder, None)
    (folder / "label.csv").unlink()
    with pytest.raises(UserError, match=r"input .*/label.csv\*: no file matches"):
        rows_of(folder, "wands", folder, None)
