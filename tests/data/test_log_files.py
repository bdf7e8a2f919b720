"""Log files as tables: formats, and what is said of a file that cannot be read."""

import gzip

import pytest

from tests.data.test_schema_inference import frame
from tfr_moe.errors import UserError
from tfr_moe.schema import FeatureSchema
from tfr_moe.tables import infer_schema, read_table


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.tsv", "log.jsonl", "log.parquet"])
def test_files_of_all_kinds_give_the_same_schema(tmp_path, name):
    rows, path = frame(), tmp_path / name
    if "jsonl" in name:
        rows.to_json(path, orient="records", lines=True)
    elif "parquet" in name:
        rows.to_parquet(path)
    else:
        rows.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    assert infer_schema(read_table(path), list_id="q", label="buy").schema == (
        infer_schema(rows, list_id="q", label="buy").schema
    )


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "log.xlsx").write_text("x")
    (tmp_path / "log.parquet").write_text("x")
    for name, message in [
        ("none.csv", "no such file"),
        ("log.xlsx", "unknown file type"),
        ("log.parquet", "cannot be read"),
    ]:
        with pytest.raises(UserError, match=message):
            read_table(tmp_path / name)


def test_files_in_another_encoding_or_with_semicolons_are_rejected(tmp_path):
    log = tmp_path / "log.csv"
    log.write_bytes("q,buy,brand\n1,0,Müller\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"log.csv: column 'brand' is not valid UTF-8"):
        read_table(log)
    log.write_text("q;buy;brand\n1;0;a\n")
    with pytest.raises(UserError, match=r"'q' is missing; .*are the columns separated by commas"):
        infer_schema(read_table(log), list_id="q", label="buy")
    log.write_text("q;buy;brand\n1;0;a,b\n")
    with pytest.raises(UserError) as caught:
        read_table(log)
    assert str(caught.value) == (
        f"{log}: cannot be read (the header is one column; are the columns separated by commas?)"
    )


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_digits_with_leading_zeros_are_ids(tmp_path, name):
    rows = ["q,buy,store,size,shop,amount,floor"]
    rows += [f"{n // 2},{n % 2},{n % 30:03d},{n % 30},{n % 5},0.{n % 7}," for n in range(120)]
    rows[60] = rows[60].removesuffix(",") + ",0"
    rows[70] = rows[70].removesuffix(",") + ",-2"
    text = "\n".join(rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    table = read_table(tmp_path / name)
    assert table["store"][:2].to_pylist() == ["000", "001"]
    assert table["size"][:2].to_pylist() == [0, 1]
    schema = FeatureSchema.of(infer_schema(table, list_id="q", label="buy").schema)
    kinds = {feature.name: feature.kind for feature in schema.features}
    others = dict.fromkeys(["size", "shop", "amount", "floor"], "numeric")
    assert kinds == {"store": "categorical", **others}


def test_a_column_that_occurs_twice_is_named(tmp_path):
    (tmp_path / "log.csv").write_text("q,a,a,buy\n1,01,2,0\n1,2,3,1\n")
    with pytest.raises(UserError, match="column 'a' occurs twice"):
        infer_schema(read_table(tmp_path / "log.csv"), list_id="q", label="buy")
