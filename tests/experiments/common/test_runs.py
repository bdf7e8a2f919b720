"""Runs: each once, in their order, and again only what a kill took away."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from experiments.common.runs import read_finished, run_all
from tests.experiments.common.work import marked, square
from tfr_moe.errors import UserError

JOBS = [{"number": n} for n in range(5)]


def calls(folder):
    return [int(line) for line in (folder / "calls.txt").read_text().split()]


def test_results_come_in_the_order_of_the_jobs_and_as_lines(tmp_path):
    results = run_all(JOBS, square, tmp_path / "runs.jsonl")
    assert [r["square"] for r in results] == [0, 1, 4, 9, 16]
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["job"] for line in lines] == JOBS
    assert all(line["seconds"] >= 0 for line in lines)


def test_what_is_in_the_file_is_not_run_again(tmp_path):
    work = functools.partial(marked, str(tmp_path))
    run_all(JOBS[:3], work, tmp_path / "runs.jsonl")
    run_all(JOBS, work, tmp_path / "runs.jsonl")
    assert calls(tmp_path) == [0, 1, 2, 3, 4]


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    path, work = tmp_path / "runs.jsonl", functools.partial(marked, str(tmp_path))
    run_all(JOBS[:3], work, path)
    path.write_bytes(path.read_bytes()[:-5])
    assert len(read_finished(path)) == 2
    results = run_all(JOBS[:3], work, path)
    assert [r["square"] for r in results] == [0, 1, 4]
    assert calls(tmp_path) == [0, 1, 2, 2]
    assert len(read_finished(path)) == 3


def test_a_broken_line_in_the_middle_is_refused_by_number(tmp_path):
    path = tmp_path / "runs.jsonl"
    run_all(JOBS[:2], square, path)
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(UserError, match=r"runs.jsonl line 1: is not a finished run"):
        run_all(JOBS, square, path)


def test_an_error_keeps_what_was_finished(tmp_path):
    def fails_at_three(job):
        if job["number"] == 3:
            raise UserError("number 3 can't be done")
        return square(job)

    with pytest.raises(UserError, match="number 3"):
        run_all(JOBS, fails_at_three, tmp_path / "runs.jsonl")
    assert len(read_finished(tmp_path / "runs.jsonl")) == 3


def test_several_processes_give_the_same_results_in_the_same_order(tmp_path):
    results = run_all(JOBS, square, tmp_path / "runs.jsonl", processes=2)
    assert [r["square"] for r in results] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {r["process"] for r in results}


def test_progress_says_what_is_done_and_what_is_left(tmp_path):
    output = io.StringIO()
    console = Console(file=output, width=200)
    run_all(JOBS[:2], square, tmp_path / "runs.jsonl", console=console)
    run_all(JOBS, square, tmp_path / "runs.jsonl", console=console, description="pilots")
    assert "runs: 2/2, 0 s, 0 s to go" in output.getvalue()
    assert "pilots: 2 of 5 are finished already" in output.getvalue()


def running_children(parent):
    result = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in result.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_study_keeps_its_lines_and_leaves_no_worker(tmp_path, repository):
    source = (
        "from pathlib import Path\n"
        "from tests.experiments.common.work import slow\n"
        "from experiments.common.runs import run_all\n"
        "if __name__ == '__main__':\n"
        "    jobs = [{'seconds': s, 'n': n} for n, s in enumerate([0.0, 0.0, 60.0, 60.0])]\n"
        f"    run_all(jobs, slow, Path({str(tmp_path / 'runs.jsonl')!r}), processes=2)\n"
    )
    (tmp_path / "main.py").write_text(source)
    main = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py")],
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    try:
        deadline = time.monotonic() + 60
        while len(read_finished(tmp_path / "runs.jsonl")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = running_children(main.pid)
        assert len(children) >= 2
    finally:
        main.send_signal(signal.SIGKILL)
        main.wait()
    while any(alive(pid) for pid in children):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.1)
    assert len(read_finished(tmp_path / "runs.jsonl")) == 2
