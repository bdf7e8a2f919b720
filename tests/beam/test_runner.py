"""What `running` does around a pipeline."""

import gc
import os

import apache_beam as beam
import pytest

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


@pytest.fixture
def thresholds():
    """Python's own thresholds of the garbage collector."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield (700, 10, 10)
    gc.set_threshold(*before)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_what_a_program_hides_from_its_garbage_collector_stays_hidden(is_frozen, thresholds):
    gc.unfreeze()
    if is_frozen:
        gc.freeze()
    with running(()) as pipeline:
        assert gc.get_threshold() == (100_000, 10, 10)
        _ = pipeline | beam.Create([1])
    assert (gc.get_freeze_count() > 0) == is_frozen
    assert gc.get_threshold() == thresholds


def stop(_):
    raise KeyboardInterrupt


def stop_import(_):
    try:
        stop(_)
    except KeyboardInterrupt as interrupt:  # as pybind11 does
        raise ImportError("initialization failed") from interrupt


@pytest.mark.parametrize("interrupt", [stop, stop_import])
def test_ctrl_c_in_a_step_is_an_interrupt_without_traceback(interrupt, caplog):
    with pytest.raises(KeyboardInterrupt), running(()) as pipeline:
        _ = pipeline | beam.Create([1]) | "Step" >> beam.Map(interrupt)
    assert "Traceback" not in caplog.text and "KeyboardInterrupt" not in caplog.text
