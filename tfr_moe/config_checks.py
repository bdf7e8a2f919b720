"""Which settings of a run go together: each raises ValueError with one line where they don't.

They take a `tfr_moe.config.RunConfig`.
"""

from __future__ import annotations

from typing import Any

from tfr_moe.model_names import BASELINE_NAMES, DOMAIN_NAMES, MIXTURES, MULTITASK_NAMES, TOWERS
from tfr_moe.tasks import check_given


def check_towers(config: Any) -> None:
    """Refuses settings of experts and reading that do nothing for this model, or don't go together."""
    if config.model in BASELINE_NAMES:
        for name, without in (("cache", "none"), ("profile", False)):
            if getattr(config, name) != without:
                raise ValueError(f"{name} is for neural models, not {config.model}")
    if config.expert_norm != "none" and config.model not in (*MIXTURES, *TOWERS):
        raise ValueError(
            f"expert_norm is for {', '.join((*MIXTURES, *TOWERS))}, not {config.model}"
        )
    if config.dispatch != "segments" and config.model not in MIXTURES:
        raise ValueError(f"dispatch is for {', '.join(MIXTURES)}, not {config.model}")
    if config.jit_compile and config.dispatch != "capacity":
        raise ValueError(
            "jit_compile needs dispatch=capacity: the shapes of segments depend on the gate"
        )
    if config.model == "ple" and config.num_levels > len(config.expert_hidden_dims):
        raise ValueError(
            f"num_levels must be <= {len(config.expert_hidden_dims)}, the number of "
            f"expert_hidden_dims, got {config.num_levels}"
        )


def check_strategy(config: Any) -> None:
    """Refuses what can't be done under the strategy."""
    if config.strategy is not None and config.model in BASELINE_NAMES:
        raise ValueError(f"strategy is for neural models, not {config.model}")
    if config.strategy != "ParameterServerStrategy":
        return
    for name, without in (("cache", "none"), ("profile", False)):
        # Both run Python where the data is read, which is not where the settings are.
        if getattr(config, name) != without:
            raise ValueError(f"{name} must be {str(without).lower()} under {config.strategy}")
    if config.deterministic:
        raise ValueError(f"deterministic must be false under {config.strategy}")
    if config.precision == "mixed_float16":
        raise ValueError(
            f"precision must be float32 or mixed_bfloat16 under {config.strategy}, whose gradients "
            f"can't be scaled, got {config.precision}"
        )


def check_tasks(config: Any) -> None:
    """Refuses settings of tasks for other models, and tasks that don't go together."""
    for name in ("tasks", "category_groups", "parameter_budget"):
        domains = DOMAIN_NAMES if name == "category_groups" else ()
        if config.model not in (*MULTITASK_NAMES, *domains) and getattr(config, name) is not None:
            others = f" and for {', '.join(domains)}" if domains else ""
            raise ValueError(
                f"{name} is for the multi-task models ({', '.join(MULTITASK_NAMES)}){others}, "
                f"not {config.model}"
            )
    if config.model in MULTITASK_NAMES and not config.expert_hidden_dims:
        raise ValueError(f"expert_hidden_dims must name a layer for {config.model}")
    if config.tasks is not None and config.category_groups is not None:
        raise ValueError("tasks and category_groups exclude each other")
    if config.category_groups is not None:
        groups = config.category_groups
        if (groups if isinstance(groups, int) else len(groups)) < 2:
            raise ValueError(f"category_groups must be 2 groups or more, got {groups}")
    if config.tasks is not None:
        if len(config.tasks) < 2:
            raise ValueError(f"tasks must be 2 labels or more, got {', '.join(config.tasks)}")
        tasks = config.tasks.items()
        graded = [name for name, task in tasks if (task.loss or config.loss) == "ordinal"]
        check_given({name: task.given for name, task in tasks}, graded)


def check_monitor(config: Any) -> None:
    """Refuses to watch a metric that is not computed."""
    if config.monitor == "loss" or config.monitor in config.metrics:
        return
    # Which tasks there are, only the data can tell where none are named.
    if config.model in MULTITASK_NAMES and config.category_groups is None:
        return
    raise ValueError(
        f"monitor must be loss or one of metrics ({', '.join(config.metrics)}), "
        f"got {config.monitor!r}"
    )
