import tempfile
from pathlib import Path

import apache_beam as beam
import pytest

from tests.beam.sourcing import _dump, _load
from tfr_moe.beam.runner import running
from tfr_moe.beam.sorted_groups import CoGroupSorted

KNOWN = [("a", 1), ("b", 2), ("a", 3), ("nobody asks", 4)]
ASKED = [("a", "x"), ("c", "y"), ("a", "z"), ("b", "w")]


def use(key, known, asked):
    for question in asked:
        yield key, sorted(known), question


@pytest.mark.parametrize("runner", [(), ("--runner=BundleBasedDirectRunner",)])
def test_queries_meet_all_known_values_of_their_key(tmp_path, monkeypatch, runner):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with running(runner) as pipeline:
        sides = (
            pipeline | "Known" >> beam.Create(KNOWN),
            pipeline | "Asked" >> beam.Create(ASKED),
        )
        _ = sides | CoGroupSorted(use) | beam.Map(_dump, folder=str(tmp_path), name="met")
    assert sorted(_load(tmp_path / "met")) == [
        ("a", [1, 3], "x"),
        ("a", [1, 3], "z"),
        ("b", [2], "w"),
        ("c", [], "y"),
    ]
    assert list(Path(tmp_path).glob(".runs-*")) == []
