"""`make gpu-check` at small sizes on the CPU, so that on a GPU only the GPU is new; estimates by
hand-worked numbers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_gpu_check_runs_to_its_end_without_a_gpu(tmp_path):
    command = ["benchmarks/gpu_check.py", "--device", "cpu", "--quick", "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "gpu_check.json").read_text())
    assert result["failed"] == {}
    assert int(re.match(r"(\d+) passed", result["layers"]["passed"])[1]) > 30
    # The export was answered on the CPU twice.
    assert result["export"]["lists"] > 10
    assert result["export"]["largest difference of a score"] == 0
    table = (tmp_path / "gpu_check.md").read_text()
    assert done.stdout.endswith(table)
    assert "| `dispatch: grouped` over `sorted` |" in table
    assert "| share of the device's float32 matmul peak |" in table


@pytest.mark.slow
def test_gpu_check_wants_a_gpu_unless_told_otherwise(tmp_path):
    command = ["benchmarks/gpu_check.py", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env={"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "TensorFlow finds no GPU here; --device cpu runs the same without one"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_epoch_by_workers_has_the_steps_and_the_exchange_of_gradients(tmp_path):
    # A valid item in each step, 250 towers of one weight: 1,000 bytes of gradients.
    sizes = {"lists": 1, "slots": 2, "width": 1, "hidden": [], "experts": 250}
    seconds = {"N=10": {"median": 3.0, "low": 3.0, "high": 3.0}}
    step = {"machine": {"cores": 2}, "sizes": sizes, "marks": {"seconds": seconds}}
    reading = {"30 numerics": {"lists_per_second": {"packed": 26_674_871 / 30 / 7200}}}
    (tmp_path / "step.json").write_text(json.dumps(step))
    (tmp_path / "reading.json").write_text(json.dumps(reading))
    files = ["--step", str(tmp_path / "step.json"), "--reading", str(tmp_path / "reading.json")]
    options = ["--workers", "4", "--exchange", "1e-6"]
    command = [sys.executable, "benchmarks/extrapolate.py", *files, *options]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    epochs = json.loads(done.stdout)["epochs"]
    # 26,674,871 steps of 3 s; by 4 workers a quarter of them, each with 1.5 s for 1,500 bytes.
    assert epochs["here, 2 cores"]["epoch_hours"] == 22229.059
    assert epochs["4 workers of 2 cores"]["training_hours"] == 8335.897
    assert epochs["4 workers of 2 cores"]["reading_hours"] == 2.0
