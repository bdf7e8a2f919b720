"""What `running` does around a pipeline."""

import os

import apache_beam as beam

from tfr_moe.beam.runner import running


def test_worker_processes_share_the_cores_while_a_pipeline_runs(monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    with running(("--direct_num_workers=4",)) as pipeline:
        assert os.environ["TF_NUM_INTRAOP_THREADS"] == "2"
        _ = pipeline | beam.Create([1])
    assert "TF_NUM_INTRAOP_THREADS" not in os.environ
    with running(()) as pipeline:
        assert "TF_NUM_INTRAOP_THREADS" not in os.environ
        _ = pipeline | beam.Create([1])
