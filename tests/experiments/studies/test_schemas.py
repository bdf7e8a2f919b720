"""The schemas that studies of generated logs are built with."""

import pytest

from tfr_moe.schema import FeatureSchema
from tfr_moe.synthetic import SearchLogOptions, generate

NOISE = {"user_id", "query_id", "item_id", "click_history"}


@pytest.mark.parametrize(
    ("name", "left_out"), [("slim", NOISE), ("slim_with_queries", NOISE - {"query_id"})]
)
def test_a_schema_is_that_of_the_log_without_the_ids_that_are_noise(
    repository, tmp_path, name, left_out
):
    generate(tmp_path / "logs", SearchLogOptions(sessions=2, num_files=1))
    of_log = FeatureSchema.load(tmp_path / "logs" / "schema.yaml").as_dict()
    features = [each for each in of_log["features"] if each["name"] not in left_out]
    assert len(features) == len(of_log["features"]) - len(left_out)
    actual = FeatureSchema.load(repository / f"experiments/studies/schemas/{name}.yaml").as_dict()
    assert actual == {**of_log, "features": features}
