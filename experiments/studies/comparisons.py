"""Our own comparisons: any models under the same settings, and variants beyond the paper.

`compare-models` has a row for each model that takes a category tree or none, with the first paper's
settings; towers, embeddings and the loss come from `with_settings`. `adv-hsc-moe-variants` changes
one setting of a mixture at a time. Two compare towers of equal cost: `complete-journey` on the
lists of `experiments.datasets.complete_journey`, `category-tastes` on generated logs in which
categories differ.
"""

from __future__ import annotations

import functools
from pathlib import Path

from pydantic import Field

from experiments.adv_hsc_moe.model_tables import run_table
from experiments.common.study import Study
from experiments.common.tuned_runs import TunedRunSettings

CONFIGS = Path(__file__).parent / "configs"
MODELS, VARIANTS = "compare-models", "adv-hsc-moe-variants"
JOURNEY, TASTES = "complete-journey", "category-tastes"


class ComparisonSettings(TunedRunSettings):
    """Settings of `compare-models`."""

    configs: str = str(CONFIGS)


class VariantSettings(ComparisonSettings):
    """Settings of the variants; one is selected among them, so they don't use the test split."""

    split: str = "validation"


class JourneySettings(VariantSettings):
    """Settings of the Complete Journey; the test split is for what was selected on validation."""

    learning_rates: tuple[float, ...] = Field((5e-4, 1e-3, 2e-3), min_length=1)


class TasteSettings(VariantSettings):
    """Settings of the generated logs; the test is on later logs of the same world (`test_data`)."""

    learning_rates: tuple[float, ...] = Field((5e-3, 1e-2, 2e-2), min_length=1)


STUDIES = {
    MODELS: Study(
        ComparisonSettings, functools.partial(run_table, MODELS, "models"), needs_data=True
    ),
    VARIANTS: Study(
        VariantSettings, functools.partial(run_table, VARIANTS, "variants"), needs_data=True
    ),
    JOURNEY: Study(
        JourneySettings, functools.partial(run_table, JOURNEY, "complete_journey"), needs_data=True
    ),
    TASTES: Study(
        TasteSettings, functools.partial(run_table, TASTES, "category_tastes"), needs_data=True
    ),
}
