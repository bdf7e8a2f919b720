"""Clusters of TF_CONFIG, and which of their processes leads."""

import json

import pytest

from tfr_moe.errors import UserError
from tfr_moe.training.distribute import MULTI_WORKER, find_cluster, join_cluster, leads

TWO = {"worker": ["a:1", "b:1"]}


@pytest.fixture
def environment(monkeypatch):
    def change(cluster, role="worker", number=0):
        task = {"type": role, "index": number}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))

    return change


@pytest.mark.parametrize(
    ("cluster", "role", "number", "first"),
    [
        ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "chief", 0, True),
        ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 0, False),
        (TWO, "worker", 0, True),
        (TWO, "worker", 1, False),
    ],
)
def test_the_chief_leads_or_the_first_worker_where_there_is_none(
    environment, cluster, role, number, first
):
    environment(cluster, role, number)
    assert leads(find_cluster()) == first


def test_all_runs_of_a_process_have_one_strategy():
    """TensorFlow aborts collective operations of a second one whose shapes are other ones."""
    first, second = (join_cluster("MirroredStrategy").strategy for _ in range(2))
    assert first is second is not None


def test_a_single_process_is_no_cluster(environment, monkeypatch):
    environment({"worker": ["a:1"]})
    assert find_cluster() is None
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert find_cluster() is None
    monkeypatch.delenv("TF_CONFIG")
    assert find_cluster() is None
    alone = join_cluster(None)
    assert alone.worker is None
    assert alone.is_leader


INVALID = [
    ({"ps": ["a:1"], "worker": ["b:1"]}, 0, "job 'ps' is not supported; use chief and worker"),
    ({"boss": ["a:1"], "worker": ["b:1"]}, 0, "job 'boss' is not supported"),
    ({"chief": ["a:1", "b:1"], "worker": ["c:1"]}, 0, "at most one 'chief' job"),
    (TWO, 2, "`task_id` 2 exceeds the maximum id of worker"),
    ({"worker": ["a", "b:1"]}, 0, 'Could not parse port for local server from "a"'),
]


def test_invalid_clusters_are_rejected_in_one_line(run_python):
    """In a process of its own: TensorFlow joins a cluster once."""
    done = run_python(f"""
import json, os
from tfr_moe.errors import UserError
from tfr_moe.training.distribute import MULTI_WORKER, join_cluster
for cluster, number, _ in {INVALID!r}:
    task = {{"type": "worker", "index": number}}
    os.environ["TF_CONFIG"] = json.dumps({{"cluster": cluster, "task": task}})
    try:
        join_cluster(MULTI_WORKER)
    except UserError as error:
        print(error)
""")
    lines = done.stdout.splitlines()
    assert len(lines) == len(INVALID), done.stderr[-3000:]
    for line, (_, _, message) in zip(lines, INVALID, strict=True):
        assert line.startswith("TF_CONFIG: ")
        assert message in line


@pytest.mark.parametrize(
    "text", ["{", '{"cluster": {"worker": 3}}', '{"cluster": {"worker": ["a:1"]}}']
)
def test_a_broken_environment_is_rejected(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=r"^TF_CONFIG: "):
        join_cluster(MULTI_WORKER)
