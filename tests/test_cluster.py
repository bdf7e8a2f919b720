"""Clusters: by flags, by TF_CONFIG, on loopback, and the strategies that go with them."""

import json

import pytest

from tfr_moe.cluster import (
    Cluster,
    Task,
    cluster_for,
    cluster_of_environment,
    cluster_of_flags,
    local_cluster,
    settings_of,
    strategy_of,
)
from tfr_moe.config import RunConfig
from tfr_moe.errors import UserError

SERVERS = "chief=a:1 worker=b:1,c:1 ps=d:1"


def test_flags_and_the_environment_name_the_same_cluster():
    found = cluster_of_flags(SERVERS, "ps:0")
    assert found.task == Task("ps", 0)
    assert found.addresses["worker"] == ("b:1", "c:1")
    assert cluster_of_environment({"TF_CONFIG": found.to_json()}) == found
    assert json.loads(found.to_json())["task"] == {"type": "ps", "index": 0}


def test_the_first_worker_leads_where_there_is_no_chief():
    cluster = cluster_of_flags("worker=a:1,b:1", "worker:1")
    assert cluster.leader == Task("worker", 0)
    assert not cluster.serves
    assert [str(task) for task in cluster.tasks] == ["worker 0", "worker 1"]


def test_all_but_the_chief_of_parameter_servers_only_serve():
    cluster = cluster_of_flags(SERVERS, "chief:0")
    serving = [str(task) for task in cluster.tasks if cluster.of(task).serves]
    assert serving == ["ps 0", "worker 0", "worker 1"]


def test_a_single_process_is_no_cluster():
    alone = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    assert cluster_of_environment({"TF_CONFIG": json.dumps(alone)}) is None
    assert cluster_of_environment({"TF_CONFIG": "{}"}) is None


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ("a:1,b:1", "worker:0", "must be ROLE=HOST:PORT"),
        ("worker=a,b:1", "worker:0", "worker 'a' must be HOST:PORT"),
        ("worker=a:1,a:1", "worker:0", "a:1 stands there twice"),
        ("worker=a:1,b:1", "worker:2", "no task worker:2"),
        ("worker=a:1,b:1", "worker", "must be ROLE:NUMBER"),
        ("boss=a:1 worker=b:1", "worker:0", "unknown role 'boss'; there are: chief, worker, ps"),
        ("worker=a:1 ps=b:1", "worker:0", "need a chief"),
        ("chief=a:1 ps=b:1", "chief:0", "must be a worker"),
        ("chief=a:1,b:1 worker=c:1", "worker:0", "must be one chief"),
    ],
)
def test_flags_that_name_no_cluster_are_refused(cluster, task, message):
    with pytest.raises(UserError, match=message):
        cluster_of_flags(cluster, task)


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": {"worker": ["a:1", "b:1"]}}'])
def test_a_broken_environment_is_refused(text):
    with pytest.raises(UserError, match="TF_CONFIG: must be JSON with cluster and task"):
        cluster_of_environment({"TF_CONFIG": text})


def test_the_environment_counts_only_for_strategies_over_several_processes(monkeypatch):
    cluster = cluster_of_flags("worker=a:1,b:1", "worker:1")
    monkeypatch.setenv("TF_CONFIG", cluster.to_json())
    assert cluster_for("MultiWorkerMirroredStrategy") == cluster
    assert cluster_for("MirroredStrategy") is None
    assert cluster_for(None) is None


def test_a_local_cluster_has_a_port_for_each_task():
    cluster = local_cluster(2, 1)
    assert {role: len(found) for role, found in cluster.addresses.items()} == {
        "chief": 1, "worker": 2, "ps": 1,
    }  # fmt: skip
    assert len({address for found in cluster.addresses.values() for address in found}) == 4
    assert isinstance(local_cluster(2), Cluster)
    assert local_cluster(2).leader == local_cluster(2).task


def test_the_cluster_chooses_the_strategy_and_another_is_refused():
    workers, servers = cluster_of_flags("worker=a:1,b:1", "worker:0"), local_cluster(1, 1)
    assert strategy_of(workers, None) == "MultiWorkerMirroredStrategy"
    assert strategy_of(servers, None) == "ParameterServerStrategy"
    assert strategy_of(None, "MirroredStrategy") == "MirroredStrategy"
    assert settings_of(RunConfig(), workers).strategy == "MultiWorkerMirroredStrategy"
    with pytest.raises(UserError, match="has no parameter servers, which asks for MultiWorker"):
        strategy_of(workers, "MirroredStrategy")
    with pytest.raises(UserError, match="needs a chief, workers and parameter servers"):
        strategy_of(None, "ParameterServerStrategy")
