"""The file that `tfr-moe schema` writes."""

import yaml

from tests.data.test_schema_inference import BOUGHT, frame
from tfr_moe.cli.data import schema_yaml
from tfr_moe.schema import FeatureSchema
from tfr_moe.tables import infer_schema


def test_the_yaml_file_has_the_schema_and_the_reasons(tmp_path):
    actual = infer_schema(frame(copy=BOUGHT * 1.0), list_id="q", label="buy", weight="price")
    text = schema_yaml(actual, "log.csv")
    (tmp_path / "schema.yaml").write_text(text)
    schema = FeatureSchema.load(tmp_path / "schema.yaml")
    assert schema == FeatureSchema.model_validate(actual.schema)
    assert "hierarchy: {child: sub, parent: top}\n" in text
    assert "  # 6 distinct IDs; one value in each list\n  - {name: sub," in text
    assert "# warning: copy: leak: non-zero exactly where 'buy' is\n" in text
    assert list(yaml.safe_load(text))[:3] == ["list_id", "labels", "weight"]
