"""Fixtures for all tests: the repository's root, the real data, and a fresh Python process."""

from __future__ import annotations

import atexit
import collections
import gc
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Collecting after every 700 objects takes a fifth of the time of tests that build Keras models; the
# last search, at the exit, takes up to a second.
RARELY = (50_000, 20, 50)
gc.set_threshold(*RARELY)
atexit.register(gc.freeze)
# Each test process and those that it starts have one core; more threads of TensorFlow only wait.
# Those of OpenMP, in LightGBM, XGBoost and scikit-learn, use a core while they wait.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The garbage collector of the processes of `run_python`, as above.
_QUICKER = f"import atexit, gc; gc.set_threshold{RARELY}; atexit.register(gc.freeze)"

ROOT = Path(__file__).resolve().parent.parent
LONG = 5000  # characters of a text that a failure does not print
# Folders whose files share what is expensive to make: each runs in one process.
TOGETHER = ("tests/conformance", "tests/report", "tests/serving")
# Tests of a case, their first parameter, share its models: half of the cases run in a process each.
HALVED = "tests/conformance"
LONG_FOLDERS = {"end_to_end", "tuning", "serving", "training", "conformance", "report", "beam"}
LONG_FOLDERS |= {"examples", "studies"}
LONG_FILES = {"test_ranker.py", "test_packaging.py", "test_benchmarks.py"}


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explains a failed `in` by the position of the text, without printing the whole page."""
    if op not in ("in", "not in") or not isinstance(left, str) or not isinstance(right, str):
        return None
    if len(right) <= LONG:
        return None
    position = right.find(left)
    around = right[max(0, position - 60) : position + len(left) + 60]
    count = right.count(left)
    result = f"{count} times, first at {position:,} in {around!r}" if count else "nowhere"
    return [f"{left!r} {op} a text of {len(right):,} characters: found {result}"]


@pytest.hookimpl(trylast=True)  # after the selection by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs long files first, so that the workers of pytest-xdist finish together.

    The folders that run in one process come first, then files with slow tests, then the folders
    whose tests train models or start processes, then files by their number of tests. The tests of
    a file keep their order.
    """
    tests = collections.Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> tuple[bool, bool, bool, int, str]:
        path = item.path
        is_together = any(path.is_relative_to(ROOT / folder) for folder in TOGETHER)
        is_long = not LONG_FOLDERS.isdisjoint(path.parts) or path.name in LONG_FILES
        return not is_together, path not in slow, not is_long, -tests[path], str(path)

    items.sort(key=rank)


def half_of(nodeid: str) -> int:
    """The half, 0 or 1, of the case of a test: `file::test[case-other parameters]`."""
    case = nodeid.partition("[")[2].partition("-")[0].rstrip("]")
    return zlib.crc32(case.encode()) % 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`: runs the files of some folders in one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            for folder in TOGETHER:
                if nodeid.startswith(f"{folder}/"):
                    return f"{folder}/{half_of(nodeid)}" if folder == HALVED else folder
            return super()._split_scope(nodeid)

    return Scheduling(config, log)


def global_state() -> dict[str, object]:
    """Global state of the loaded libraries, which all tests of a process share."""
    state: dict[str, object] = {"working directory": os.getcwd()}
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        state |= {"print options": numpy.get_printoptions(), "numpy errors": numpy.geterr()}
    if "tensorflow" in sys.modules and sys.modules.keys() & {"keras", "tf_keras"}:
        from tfr_moe._compat import tf

        state |= {
            "dtype policy": tf.keras.mixed_precision.global_policy().name,
            "floatx": tf.keras.backend.floatx(),
            "eager functions": tf.config.functions_run_eagerly(),
        }
    return state


@pytest.fixture(autouse=True)
def restored_state() -> Iterator[None]:
    """Fails the test that changes global state, instead of a later one."""
    before = global_state()
    yield
    after = global_state()
    changed = {name: after[name] for name in before if after[name] != before[name]}
    assert not changed, f"left changed for the tests that follow: {changed}"


def pytest_collection_finish() -> None:
    """Starts TensorFlow without its optimizer of graphs, see `pytest_runtest_setup`.

    What it starts with is kept for the functions of `tf.data`, which are optimized each time that
    an iterator is made: a tenth of the time of a short training.
    """
    if "tensorflow" in sys.modules:
        from tfr_moe._compat import tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        tf.config.list_logical_devices()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    """Switches off TensorFlow's optimizer of graphs, a quarter of the time of a short training.

    It is on in smoke tests, which have all kinds of models and every step from logs to an answered
    query, in those that ask for `optimized_graphs`, and in all processes that tests start, there
    for data sets too. It is set before the fixtures of a module are made, which then compute as its
    tests.
    """
    if "tensorflow" in sys.modules:
        from tfr_moe._compat import tf

        smoke = item.get_closest_marker("smoke") is not None
        off = not smoke and "optimized_graphs" not in item.fixturenames
        if tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"] != off:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": off})


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> None:
    """Frees what the file before left, and hides from later searches what is still in use.

    Trials, comparisons and `multipletests` of statsmodels collect garbage as well. After some
    thousand tests a search of all models and graphs that TensorFlow keeps takes half a minute.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def optimized_graphs() -> None:
    """See `pytest_runtest_setup`."""


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of small real data sets; the test is skipped where it is absent."""
    folder = Path(os.environ.get("TFR_MOE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist (set TFR_MOE_DATA)")
    return folder


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs source text in a fresh process of the same interpreter.

    The process does not inherit the variables that this process may have set by importing tfr_moe;
    others are given by keyword.
    """

    def run(
        source: str, *, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        set_by_import = {"TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL"}
        inherited = {k: v for k, v in os.environ.items() if k not in set_by_import}
        return subprocess.run(
            [sys.executable, "-c", f"{_QUICKER}\n{source}"],
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
