"""The steps of `run_day.py` as a DAG of Apache Airflow 2; put the files into the folder of DAGs.

Airflow's variables name what the steps need: `ranker_python`, the Python that has tfr_moe;
`ranker_logs`, the folder of logs, whose files start with their day; `ranker_schema`;
`ranker_work`, the folder of data, runs and models; `ranker_options`, if there are more options of
`run_day.py`, such as `--config`; and for the labels `ranker_server`, HOST:PORT of TensorFlow
Serving, and `ranker_models_config`, the file that it reads. A task fails if a check did not pass
(exit code 3): the steps after it do not run, and the live version stays. Without a scheduler:

    airflow dags test ranker 2024-06-02
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from airflow import DAG
from airflow.models.baseoperator import chain
from airflow.operators.bash import BashOperator

sys.path.insert(0, str(Path(__file__).parent))
from run_day import STEPS

COMMAND = (
    "{{ var.value.ranker_python }} "
    f"{Path(__file__).with_name('run_day.py')} {{{{ ds }}}}"
    " --logs '{{ var.value.ranker_logs }}/{{ ds }}*' --schema {{ var.value.ranker_schema }}"
    " --work {{ var.value.ranker_work }} {{ var.value.get('ranker_options', '') }} --step "
)
LABELS = (
    "{{ var.value.ranker_python }} "
    f"{Path(__file__).with_name('labels.py')} {{{{ var.value.ranker_work }}}}/models/shop"
    " --config {{ var.value.ranker_models_config }} --server {{ var.value.ranker_server }}"
)

with DAG(
    "ranker",
    schedule="@daily",
    start_date=datetime(2024, 6, 1),
    catchup=False,
    max_active_runs=1,  # a day starts from the run of the day before
    default_args={"retries": 1},
):
    steps = [BashOperator(task_id=name, bash_command=COMMAND + name) for name in STEPS]
    chain(*steps, BashOperator(task_id="labels", bash_command=LABELS))
