"""Rows in the layout of Census-Income, made up, with labels that follow from age and sector."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.mmoe import census_income as census


def line(**values: str) -> str:
    """A line of the file; what is not given is 0 for numbers and `Not in universe` for the rest."""
    plain = dict.fromkeys(census.COLUMNS, "Not in universe")
    plain |= dict.fromkeys((*census.NUMERIC_COLUMNS, census.WEIGHT_COLUMN), "0")
    plain |= {"income": "- 50000", **values}
    return census.SEPARATOR.join(plain[name] for name in census.COLUMNS) + "."


def random_line(rng: np.random.Generator) -> str:
    """Older people in the private sector earn more, young ones never married."""
    age = int(rng.integers(15, 80))
    private = bool(rng.random() < 0.5)
    rich = age / 80 + 0.3 * private + 0.1 * rng.standard_normal() > 0.8
    single = age / 80 + 0.1 * rng.standard_normal() < 0.4
    return line(
        age=str(age),
        class_of_worker="Private" if private else "?",
        capital_gains=str(int(rng.integers(0, 2) * 1000)),
        income=" 50000+" if rich else "- 50000",
        marital_status="Never married" if single else "Divorced",
        education="Masters degree(MA MS MEng MEd MSW MBA)" if private else "Children",
        instance_weight=f"{rng.random():.6f}",
    )


def write_rows(path: Path, count: int, seed: int = 0) -> Path:
    """A file of so many rows."""
    rng = np.random.default_rng(seed)
    path.write_text("\n".join(random_line(rng) for _ in range(count)) + "\n", encoding="utf-8")
    return path
