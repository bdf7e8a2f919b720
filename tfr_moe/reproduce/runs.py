"""Many independent runs, in several processes, that survive a kill: one JSON line per finished run.

A run is described by a mapping of plain values (its job). What is in the file is not run again, so
giving the same command a second time goes on where the first one stopped; a run that was in the
middle starts afresh. Only this process writes the file.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tfr_moe.errors import UserError
from tfr_moe.progress import progress_bar

Job = dict[str, Any]
Result = dict[str, Any]

_SECONDS_BETWEEN_LINES = 30.0
_RUNS_PER_PROCESS = 50
"""Then a fresh process: TensorFlow keeps some 20 MB of each graph that was traced, whatever is cleared."""


def key_of(job: Job) -> str:
    """The job as text that does not depend on the order of its keys.

    Example:
        >>> key_of({"seed": 1, "model": "mmoe"})
        '{"model": "mmoe", "seed": 1}'
    """
    return json.dumps(job, sort_keys=True)


def read_entries(path: Path) -> list[tuple[Job, Result]]:
    """The jobs in a file of JSON lines with their results; a last line that was cut off does not count.

    Raises:
        UserError: for a broken line that is not the last, naming file and line.
    """
    if not path.is_file():
        return []
    entries = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                break
            try:
                entry = json.loads(line)
                entries.append((dict(entry["job"]), entry["result"]))
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    f"{path} line {number}: is no finished run; remove the line, or give another --out"
                ) from None
    return entries


def read_finished(path: Path) -> dict[str, Result]:
    """The results of the same file by `key_of` their jobs."""
    return {key_of(job): result for job, result in read_entries(path)}


def _drop_torn_line(path: Path) -> None:
    if not path.is_file():
        return
    with path.open("rb+") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)


def run_all(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    path: Path,
    processes: int = 1,
    console: Console | None = None,
    description: str = "runs",
) -> list[Result]:
    """The results of all jobs in their order; those that are not in `path` yet are run and added.

    Args:
        jobs: what to run; each a mapping of plain values, all different.
        work: makes a JSON-serializable result of a job. With several processes it must be picklable.
        path: file of JSON lines, each {"job": ..., "result": ..., "seconds": ...}.
        processes: how many at a time; a few runs with 1 happen in this process.
        console: where progress goes, with the time that is left.
        description: what the progress calls the runs.

    Raises:
        UserError: for a broken file, and whatever `work` raises; finished runs stay in the file.
    """
    console = console or Console(quiet=True)
    _drop_torn_line(path)
    finished = read_finished(path)
    waiting = [job for job in jobs if key_of(job) not in finished]
    if len(waiting) < len(jobs):
        console.print(f"{description}: {len(jobs) - len(waiting)} of {len(jobs)} are done already")
    with (
        path.open("a", encoding="utf-8") as file,
        _reporter(console, description, len(waiting)) as report,
    ):
        for done, (job, result, seconds) in enumerate(_run(waiting, work, processes), start=1):
            line = json.dumps({"job": job, "result": result, "seconds": round(seconds, 2)})
            file.write(line + "\n")
            file.flush()
            finished[key_of(job)] = result
            report(done)
    return [finished[key_of(job)] for job in jobs]


def _timed(work: Callable[[Job], Result], job: Job) -> tuple[Job, Result, float]:
    started = time.monotonic()
    return job, work(job), time.monotonic() - started


def _run(
    jobs: Sequence[Job], work: Callable[[Job], Result], processes: int
) -> Iterator[tuple[Job, Result, float]]:
    if len(jobs) < 2 or (processes == 1 and len(jobs) <= _RUNS_PER_PROCESS):
        for job in jobs:
            yield _timed(work, job)
        return
    # Forking a process in which TensorFlow has threads hangs.
    context = multiprocessing.get_context("spawn")
    batch = processes * _RUNS_PER_PROCESS
    for start in range(0, len(jobs), batch):
        with (
            _one_thread_per_process(),
            ProcessPoolExecutor(processes, context, initializer=_end_with_parent) as pool,
        ):
            futures = [pool.submit(_timed, work, job) for job in jobs[start : start + batch]]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def _one_thread_per_process() -> Iterator[None]:
    """Lets the processes started meanwhile compute in one thread each: they share the cores."""
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_with_parent() -> None:
    """Lets a worker end when its parent is killed; it would wait for jobs for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _reporter(console: Console, description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else a line now and then, each with the time that is left."""
    started = last = time.monotonic()
    with progress_bar(console, description) as move:
        move(0, total)

        def report(done: int) -> None:
            nonlocal last
            move(done, total)
            now = time.monotonic()
            if not console.is_terminal and (done == total or now - last > _SECONDS_BETWEEN_LINES):
                last = now
                left = (now - started) / done * (total - done)
                console.print(
                    f"{description}: {done}/{total}, {now - started:.0f} s, {left:.0f} s to go",
                    highlight=False,
                    soft_wrap=True,
                )

        yield report
