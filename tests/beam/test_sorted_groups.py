import tempfile
from pathlib import Path

import apache_beam as beam
import pytest

from tests.beam.sourcing import _dump, _load
from tfr_moe.beam.runner import running
from tfr_moe.beam.sorted_groups import CoGroupSorted, sorted_runs

KNOWN = [("a", 1), ("b", 2), ("a", 3), ("nobody asks", 4)]
ASKED = [("a", "x"), ("c", "y"), ("a", "z"), ("b", "w")]


def use(key, known, questions):
    for question in questions:
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


def test_a_few_keys_that_are_numbers_are_shared_evenly(tmp_path):
    """By a hash one of two processes would have ten of the sixteen files of scores."""
    with running(("--direct_num_workers=2",)) as pipeline:
        entries = pipeline | beam.Create([(key, "x" * 100) for key in range(16)])
        runs = entries | sorted_runs(lambda entry: entry[0])
        sizes = runs | beam.Map(lambda paths: sum(Path(path).stat().st_size for path in paths))
        _ = sizes | beam.Map(_dump, folder=str(tmp_path), name="sizes")
    one, other = _load(tmp_path / "sizes")
    assert one == other > 8 * 100
