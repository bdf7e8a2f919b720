"""Settings of the Census-Income study."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from tfr_moe.reproduce.settings import StudySettings

Model = Literal[
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
]
MODELS: tuple[Model, ...] = (
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
)


class CensusSettings(StudySettings):
    """Settings of the Census-Income study.

    The text of the paper at hand does not say how large its networks were, nor how many trials and runs
    there were; the sizes here are chosen by the time that they take.

    Attributes:
        groups: which groups of tasks.
        models: which models.
        runs: runs of each model and group with the tuned settings, with seeds 0, 1, ...
        trials: settings tried for each model and group, the same number for all.
        tuning_seed: of the search.
        expert_units: width of each of MMoE's 8 experts; sets everyone's number of parameters.
        epochs: at most so many.
        patience: epochs without a better validation AUC after which training stops.
        batch_size: rows per step.
    """

    groups: tuple[Literal[1, 2], ...] = (1, 2)
    models: tuple[Model, ...] = MODELS
    runs: PositiveInt = 4
    trials: PositiveInt = 3
    tuning_seed: int = 0
    expert_units: PositiveInt = 8
    epochs: PositiveInt = 5
    patience: PositiveInt = 2
    batch_size: PositiveInt = 512

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "small": {"runs": 2, "trials": 2, "expert_units": 2, "epochs": 2},
        "large": {"runs": 30, "trials": 30, "expert_units": 64, "epochs": 30},
    }
    MAY_GROW: ClassVar[frozenset[str]] = frozenset({"runs"})

    @model_validator(mode="after")
    def _some_and_different(self) -> CensusSettings:
        for name in ("groups", "models"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be some, and different from each other")
        return self
