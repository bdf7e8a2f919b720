"""A worker: runs the trials that a chief hands out."""

from __future__ import annotations

import os

from .client import ChiefClient, signs_of_life
from .oracles import make_oracle
from .plan import Plan
from .processes import run_job_in_process
from .records import Trial
from .roles import Role
from .say import Say
from .trial import Job, run_job
from .tuner import SweepTuner


def run_worker(plan: Plan, role: Role, say: Say) -> None:
    """Runs trials until the chief has no more.

    Args:
        plan: the sweep, whose folder the chief sees too.
        role: the worker's name and the chief's address.
        say: takes a line for stderr.

    Raises:
        UserError: if the chief stays away.
    """
    # KerasTuner's client reads them.
    os.environ.update(role.environment())
    run_one = run_job_in_process if plan.config.process_per_trial else run_job

    def run(job: Job) -> Trial:
        with signs_of_life(tuner.oracle, job.trial_id, plan.config.lease) as check:
            return run_one(plan, job, say, check)

    local = make_oracle(plan.config, plan.path)
    tuner = SweepTuner(local, plan.hypermodel, plan.path, run, say, role.tuner_id)
    tuner.oracle = ChiefClient(local, role.address, role.tuner_id)
    tuner.search()
