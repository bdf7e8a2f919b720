"""Tasks: what is resolved from settings and schema, and what is rejected."""

import pytest

from tests.tiny import SCHEMA, TASKS
from tfr_moe.config.tasks import (
    TaskSettings,
    check_conditions,
    metric_of,
    resolve_tasks,
    settings_of_names,
)
from tfr_moe.errors import UserError


def task_names(**settings):
    made = {name: TaskSettings.model_validate(own) for name, own in settings.items()}
    return resolve_tasks(made or None, TASKS, "sigmoid_cross_entropy", ("session_auc",))


def test_what_a_task_does_not_say_is_the_runs():
    click, purchase = task_names(click={}, purchase={"loss": "softmax_loss", "metrics": ["ndcg"]})
    assert click == ("click", "sigmoid_cross_entropy", 1.0, ("session_auc",), 1.0, None)
    assert purchase == ("purchase", "softmax_loss", 1.0, ("ndcg",), 1.0, None)


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
    with pytest.raises(ValueError, match="leads back to"):
        check_conditions({"purchase": "cart", "cart": "click", "click": "cart"})


def test_a_monitor_names_a_task_or_the_mean_over_tasks():
    tasks = task_names(click={}, purchase={"metrics": ["ndcg_10"]})
    assert metric_of("click_session_auc", tasks) == "session_auc"
    assert metric_of("ndcg_10", tasks) == "ndcg_10"
    with pytest.raises(
        UserError, match="one of session_auc, ndcg_10, click_session_auc, purchase_n"
    ):
        metric_of("purchase_session_auc", tasks)


def test_names_alone_are_tasks_with_defaults():
    assert settings_of_names(["click", "cart"]) == {"click": {}, "cart": {}}
    assert settings_of_names({"click": {"weight": 2}}) == {"click": {"weight": 2}}
    assert settings_of_names(None) is None
