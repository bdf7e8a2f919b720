"""Clusters: by flags, by TF_CONFIG, on loopback, and the strategies that go with them."""

import json

import pytest

from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError
from tfr_moe.training.distribute import (
    Cluster,
    ClusterTask,
    cluster_from_environment,
    find_cluster,
    local_cluster,
    parse_cluster,
    resolve_strategy,
    with_strategy,
)

WITH_CHIEF = "chief=a:1 worker=b:1,c:1"


def test_flags_and_the_environment_name_the_same_cluster():
    found = parse_cluster(WITH_CHIEF, "worker:1")
    assert found.task == ClusterTask("worker", 1)
    assert found.leader == ClusterTask("chief", 0)
    assert found.addresses["worker"] == ("b:1", "c:1")
    assert cluster_from_environment({"TF_CONFIG": found.to_json()}) == found
    assert json.loads(found.to_json())["task"] == {"type": "worker", "index": 1}


def test_the_first_worker_leads_where_there_is_no_chief():
    cluster = parse_cluster("worker=a:1,b:1", "worker:1")
    assert cluster.leader == ClusterTask("worker", 0)
    assert [str(task) for task in cluster.tasks] == ["worker 0", "worker 1"]


def test_a_single_process_is_no_cluster():
    alone = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    assert cluster_from_environment({"TF_CONFIG": json.dumps(alone)}) is None
    assert cluster_from_environment({"TF_CONFIG": "{}"}) is None


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ("a:1,b:1", "worker:0", "must be ROLE=HOST:PORT"),
        ("worker=a,b:1", "worker:0", "worker 'a' must be HOST:PORT"),
        ("worker=a:1,a:1", "worker:0", "a:1 is given twice"),
        ("worker=a:1,b:1", "worker:2", "no task worker:2"),
        ("worker=a:1,b:1", "worker", "must be ROLE:NUMBER"),
        ("boss=a:1 worker=b:1", "worker:0", "unknown role 'boss'; allowed: chief, worker"),
        ("worker=a:1 ps=b:1", "worker:0", "unknown role 'ps'"),
        ("", "worker:0", "must be a worker"),
        ("chief=a:1,b:1 worker=c:1", "worker:0", "must be one chief"),
    ],
)
def test_flags_that_name_no_cluster_are_rejected(cluster, task, message):
    with pytest.raises(UserError, match=message):
        parse_cluster(cluster, task)


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": {"worker": ["a:1", "b:1"]}}'])
def test_a_broken_environment_is_rejected(text):
    with pytest.raises(UserError, match="TF_CONFIG: must be JSON with cluster and task"):
        cluster_from_environment({"TF_CONFIG": text})


def test_the_environment_counts_only_for_strategies_over_several_processes(monkeypatch):
    cluster = parse_cluster("worker=a:1,b:1", "worker:1")
    monkeypatch.setenv("TF_CONFIG", cluster.to_json())
    assert find_cluster("MultiWorkerMirroredStrategy") == cluster
    assert find_cluster("MirroredStrategy") is None
    assert find_cluster(None) is None


def test_a_local_cluster_has_a_port_for_each_task():
    cluster = local_cluster(3)
    assert isinstance(cluster, Cluster)
    assert len(set(cluster.addresses["worker"])) == 3
    assert cluster.leader == cluster.task


def test_the_cluster_chooses_the_strategy_and_another_is_rejected():
    workers = parse_cluster("worker=a:1,b:1", "worker:0")
    assert resolve_strategy(workers, None) == "MultiWorkerMirroredStrategy"
    assert resolve_strategy(None, "MirroredStrategy") == "MirroredStrategy"
    assert with_strategy(RunConfig(), workers).training.strategy == "MultiWorkerMirroredStrategy"
    with pytest.raises(UserError, match="trains in one process, a cluster needs MultiWorker"):
        resolve_strategy(workers, "MirroredStrategy")
    with pytest.raises(UserError, match="ParameterServerStrategy is not supported"):
        resolve_strategy(None, "ParameterServerStrategy")
