"""Settings of a run: `RunConfig`, its presets, and the models by name. Loads no framework."""

from tfr_moe.config.models import (
    BASELINE_NAMES,
    MODEL_NAMES,
    MODELS,
    MULTITASK_NAMES,
    ModelSpec,
    applicable,
)
from tfr_moe.config.run_config import RunConfig, load_config, make_config
from tfr_moe.config.settings import SETTINGS

__all__ = [
    "BASELINE_NAMES",
    "MODELS",
    "MODEL_NAMES",
    "MULTITASK_NAMES",
    "SETTINGS",
    "ModelSpec",
    "RunConfig",
    "applicable",
    "load_config",
    "make_config",
]


def __dir__() -> list[str]:
    return __all__
