"""Independent runs in several processes, resumable: one line of JSON per finished run.

A run is described by a mapping of plain values (its job). Jobs whose result is in the file are not
run again, so re-running a command resumes an interrupted study. Only the main process writes the
file.
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
from tfr_moe.utils import progress_bar

Job = dict[str, Any]
Result = dict[str, Any]

_SECONDS_BETWEEN_LINES = 30.0


def key_of(job: Job) -> str:
    """Returns the job as text that does not depend on the order of its keys.

    Example:
        >>> key_of({"seed": 1, "model": "mmoe"})
        '{"model": "mmoe", "seed": 1}'
    """
    return json.dumps(job, sort_keys=True)


def read_entries(path: Path) -> list[tuple[Job, Result]]:
    """Reads jobs and results from a file of JSON lines; an incomplete last line is ignored.

    Raises:
        UserError: for any other invalid line, naming file and line.
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
                    f"{path} line {number}: is not a finished run; remove the line, or give "
                    "another --out"
                ) from None
    return entries


def read_finished(path: Path) -> dict[str, Result]:
    """Reads the results of the same file by `key_of` their jobs."""
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
    """Runs the jobs that are missing in `path` and returns the results of all jobs in their order.

    Args:
        jobs: mappings of plain values, all different.
        work: returns the JSON-serializable result of a job. With several processes it must be
            picklable.
        path: file of JSON lines, each {"job": ..., "result": ..., "seconds": ...}.
        processes: number of parallel runs; with 1, few runs stay in this process.
        console: where progress goes, with the remaining time.
        description: name of the runs in progress messages.

    Raises:
        UserError: for an invalid file, and whatever `work` raises; finished runs stay in the file.
    """
    console = console or Console(quiet=True)
    _drop_torn_line(path)
    finished = read_finished(path)
    waiting = [job for job in jobs if key_of(job) not in finished]
    if len(waiting) < len(jobs):
        console.print(
            f"{description}: {len(jobs) - len(waiting)} of {len(jobs)} are finished already"
        )
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
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield _timed(work, job)
        return
    # Forking a process in which TensorFlow has threads hangs.
    context = multiprocessing.get_context("spawn")
    with (
        _one_thread_per_process(),
        ProcessPoolExecutor(processes, context, initializer=_exit_with_parent) as pool,
    ):
        futures = [pool.submit(_timed, work, job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _one_thread_per_process() -> Iterator[None]:
    """Limits the processes started meanwhile to one thread each: they share the cores."""
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


def _exit_with_parent() -> None:
    """Ends a worker when its parent is killed; otherwise it would wait for jobs forever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _reporter(console: Console, description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else a line every 30 seconds, each with the remaining time."""
    started = last = time.monotonic()
    with progress_bar(console, description) as advance:
        advance(0, total)

        def report(done: int) -> None:
            nonlocal last
            advance(done, total)
            now = time.monotonic()
            if not console.is_terminal and (done == total or now - last > _SECONDS_BETWEEN_LINES):
                last = now
                remaining = (now - started) / done * (total - done)
                console.print(
                    f"{description}: {done}/{total}, {now - started:.0f} s, "
                    f"{remaining:.0f} s to go",
                    highlight=False,
                    soft_wrap=True,
                )

        yield report
