"""What `running` does around a pipeline."""

import gc
import os

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import userstate

from tfr_moe.beam import runner
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


class Numbered(beam.DoFn):
    """The number of a value among those of its key."""

    SEEN = userstate.BagStateSpec("seen", VarIntCoder())

    def process(self, pair, seen=beam.DoFn.StateParam(SEEN)):  # noqa: B008
        seen.add(pair[1])
        yield len(list(seen.read()))


def test_steps_beside_others_keep_their_states():
    with running(()) as pipeline:
        pairs = pipeline | beam.Create([("a", 5), ("a", 6), ("b", 7)])
        for name in ("One", "Two"):
            numbers = pairs | name >> beam.ParDo(Numbered())
            assert_that(numbers, equal_to([1, 2, 1]), label=f"Check {name}")


@pytest.mark.parametrize("steps", [1, 9])
def test_steps_of_one_class_are_inspected_once(monkeypatch, steps):
    inspected, inspect = [], userstate.get_dofn_specs

    def recorded(step):
        inspected.append((type(step), str(step.get_function_arguments("process"))))
        return inspect(step)

    monkeypatch.setattr(userstate, "get_dofn_specs", inspect)  # is put back at the end
    monkeypatch.setattr(runner, "_inspect", recorded)
    with running(()) as pipeline:
        values = pipeline | beam.Create([1])
        for number in range(steps):
            values |= f"Step {number}" >> beam.Map(str)
    assert 0 < len(inspected) == len(set(inspected))


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
