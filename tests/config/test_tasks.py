"""Tasks: what is resolved from settings and schema, and what is rejected."""

import pytest

from tests.tiny import SCHEMA, TASKS
from tfr_moe.config import make_config
from tfr_moe.config.tasks import TaskSettings, check_conditions, resolve_tasks
from tfr_moe.errors import UserError


def task_names(**settings):
    made = {name: TaskSettings.model_validate(values) for name, values in settings.items()}
    return resolve_tasks(made or None, TASKS, "sigmoid_cross_entropy", ("session_auc",))


def test_what_a_task_does_not_say_is_the_runs():
    click, purchase = task_names(click={}, purchase={"loss": "softmax_loss", "metrics": ["ndcg"]})
    rest = {"weight": 1.0, "score_weight": 1.0, "conditioned_on": None}
    loss = "sigmoid_cross_entropy"
    assert dict(click) == {"name": "click", "loss": loss, "metrics": ("session_auc",), **rest}
    loss = "softmax_loss"
    assert dict(purchase) == {"name": "purchase", "loss": loss, "metrics": ("ndcg",), **rest}


def test_a_task_may_go_without_metrics():
    assert task_names(click={"metrics": []}, purchase={})[0].metrics == ()


def test_all_labels_are_tasks_unless_there_is_one_alone():
    assert [task.name for task in task_names()] == ["purchase", "click"]
    assert resolve_tasks(None, SCHEMA, "ndcg", ()) == ()


def test_a_task_must_be_a_label():
    with pytest.raises(UserError, match="tasks: 'cart' is not a label of the data; allowed: pur"):
        task_names(cart={}, click={})


def test_what_is_given_must_be_a_task_and_lead_nowhere_twice():
    check_conditions({"click": None, "cart": "click", "purchase": "cart"})
    with pytest.raises(ValueError, match=r"tasks\.cart\.conditioned_on: 'click' is not a task"):
        check_conditions({"purchase": "cart", "cart": "click"})
    with pytest.raises(ValueError, match="forms a cycle"):
        check_conditions({"purchase": "cart", "cart": "click", "click": "cart"})


def test_a_monitor_names_a_task_or_the_mean_over_tasks():
    def config(monitor):
        tasks = {"click": {}, "purchase": {"metrics": ["ndcg_10"]}}
        settings = {"model": "mmoe", "tasks": tasks, "metrics": ["session_auc"]}
        return make_config({**settings, "monitor": monitor})

    assert config("click_session_auc").tasks_over(TASKS)
    assert config("ndcg_10").tasks_over(TASKS)
    with pytest.raises(
        UserError, match="one of session_auc, ndcg_10, click_session_auc, purchase_n"
    ):
        config("purchase_session_auc").tasks_over(TASKS)


def test_names_alone_are_tasks_with_defaults():
    config = make_config({"model": "mmoe", "tasks": ["click", "cart"]})
    defaults = TaskSettings.model_validate({})
    assert config.multi_task.tasks == {"click": defaults, "cart": defaults}
    given = make_config({"model": "mmoe", "tasks": {"click": {"weight": 2}, "cart": {}}})
    assert given.multi_task.tasks["click"].weight == 2
    assert make_config({"model": "mmoe", "tasks": None}).multi_task.tasks is None
