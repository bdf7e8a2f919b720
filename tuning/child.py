"""What a process below a sweep's command runs: `python -m tfr_moe.tuning.child trial|worker SWEEP`.

It lives only as long as its standard input is open, which the kernel closes when the parent dies,
however it dies. A trial's job is the first line of that input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tfr_moe.children import end_with_parent
from tfr_moe.errors import INTERRUPTED, MISTAKE, UserError, error_line

from .plan import Plan
from .roles import Role
from .say import printer
from .trial import Job, run_job
from .worker import run_worker


def main(arguments: Sequence[str]) -> None:
    """Runs one trial, or all that a chief hands out."""
    kind, sweep = arguments[0], Path(arguments[1])
    job = Job(**json.loads(sys.stdin.readline())) if kind == "trial" else None
    end_with_parent()
    plan, console = Plan.open(sweep), Console(stderr=True)
    if job is None:
        role = Role.from_environment()
        run_worker(plan, role, printer(console, role.tuner_id))
    else:
        run_job(plan, job, printer(console))


if __name__ == "__main__":
    code = 0
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(error_line(error), file=sys.stderr)
        code = MISTAKE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.stderr.flush()
    # The thread that reads standard input would hold up an orderly end.
    os._exit(code)
