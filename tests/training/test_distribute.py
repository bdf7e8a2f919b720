"""Clusters of TF_CONFIG, and the strategies that go with them."""

import json

import pytest

from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError
from tfr_moe.training.distribute import (
    ClusterTask,
    cluster_from_environment,
    find_cluster,
    resolve_strategy,
    with_strategy,
)

TWO = {"worker": ["a:1", "b:1"]}


def environment(cluster, role="worker", number=0):
    task = {"type": role, "index": number}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_the_chief_leads_or_the_first_worker_where_there_is_none():
    found = cluster_from_environment(environment({"chief": ["a:1"], "worker": ["b:1", "c:1"]}))
    assert found.task == ClusterTask("worker", 0)
    assert found.leader == ClusterTask("chief", 0)
    assert found.addresses["worker"] == ("b:1", "c:1")
    found = cluster_from_environment(environment(TWO, number=1))
    assert found.leader == ClusterTask("worker", 0)


def test_a_single_process_is_no_cluster():
    alone = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    assert cluster_from_environment({"TF_CONFIG": json.dumps(alone)}) is None
    assert cluster_from_environment({"TF_CONFIG": "{}"}) is None


@pytest.mark.parametrize(
    ("cluster", "number", "message"),
    [
        ({"worker": ["a", "b:1"]}, 0, "worker 'a' must be HOST:PORT"),
        ({"worker": ["a:1", "a:1"]}, 0, "a:1 is given twice"),
        (TWO, 2, "task worker:2 is not in the cluster"),
        ({"boss": ["a:1"], "worker": ["b:1"]}, 0, "unknown role 'boss'; allowed: chief, worker"),
        ({"worker": ["a:1"], "ps": ["b:1"]}, 0, "unknown role 'ps'"),
        ({"chief": ["a:1", "b:1"], "worker": ["c:1"]}, 0, "must be one chief"),
    ],
)
def test_invalid_clusters_are_rejected(cluster, number, message):
    with pytest.raises(UserError, match=f"TF_CONFIG: .*{message}"):
        cluster_from_environment(environment(cluster, number=number))


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": {"worker": ["a:1", "b:1"]}}'])
def test_a_broken_environment_is_rejected(text):
    with pytest.raises(UserError, match="TF_CONFIG: must be JSON with cluster and task"):
        cluster_from_environment({"TF_CONFIG": text})


def test_the_environment_counts_only_for_strategies_over_several_processes(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", environment(TWO)["TF_CONFIG"])
    assert find_cluster("MultiWorkerMirroredStrategy") == cluster_from_environment()
    assert find_cluster("MirroredStrategy") is None
    assert find_cluster(None) is None


def test_the_cluster_chooses_the_strategy_and_another_is_rejected():
    workers = cluster_from_environment(environment(TWO))
    assert resolve_strategy(workers, None) == "MultiWorkerMirroredStrategy"
    assert resolve_strategy(None, "MirroredStrategy") == "MirroredStrategy"
    assert with_strategy(RunConfig(), workers).training.strategy == "MultiWorkerMirroredStrategy"
    with pytest.raises(UserError, match="trains in one process, a cluster needs MultiWorker"):
        resolve_strategy(workers, "MirroredStrategy")
    with pytest.raises(UserError, match="ParameterServerStrategy is not supported"):
        resolve_strategy(None, "ParameterServerStrategy")
