"""Tables 2 to 5 of the context-aware ranker; see `experiments.common.paper_tables`."""

from __future__ import annotations

from pathlib import Path

from experiments.common.paper_tables import TableSettings, paper_studies

CONFIGS = Path(__file__).parent / "configs"
TABLES = {f"context-aware-table{number}": f"table{number}" for number in (2, 3, 4, 5)}


class ContextAwareSettings(TableSettings):
    """Settings of the tables, with the configs of this paper."""

    configs: str = str(CONFIGS)


STUDIES = paper_studies(TABLES, ContextAwareSettings)
