"""Tables 3 to 5 of PRM; see `experiments.common.paper_tables`."""

from __future__ import annotations

from pathlib import Path

from experiments.common.paper_tables import TableSettings, paper_studies

CONFIGS = Path(__file__).parent / "configs"
TABLES = {f"prm-table{number}": f"table{number}" for number in (3, 4, 5)}


class PRMSettings(TableSettings):
    """Settings of the tables, with the configs of this paper."""

    configs: str = str(CONFIGS)


STUDIES = paper_studies(TABLES, PRMSettings)
