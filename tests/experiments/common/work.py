"""Work that the tests hand to other processes, which must find it by name."""

from __future__ import annotations

import os
import time
from pathlib import Path


def square(job: dict) -> dict:
    """The square of the job's number."""
    return {"square": job["number"] ** 2, "process": os.getpid()}


def marked(folder: str, job: dict) -> dict:
    """Leaves a mark for each call, so that a test can count them."""
    with (Path(folder) / "calls.txt").open("a", encoding="utf-8") as file:
        file.write(f"{job['number']}\n")
    return square(job)


def slow(job: dict) -> dict:
    """Takes its time."""
    time.sleep(job["seconds"])
    return {"done": True}
