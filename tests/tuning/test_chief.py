"""Chief and workers over gRPC on loopback: leases, workers that vanish, and chiefs that come back."""

import threading
import time

import pytest

from tfr_moe.errors import UserError
from tfr_moe.tuning import keras_tuner as kt
from tfr_moe.tuning.chief import Chief, LeasedServicer
from tfr_moe.tuning.client import ChiefClient, signs_of_life
from tfr_moe.tuning.config import make_sweep_config
from tfr_moe.tuning.oracles import make_oracle
from tfr_moe.tuning.trial import TrialLostError

STATUS = kt.engine.trial.TrialStatus
LEASE = 60.0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def oracle_of(folder):
    config = make_sweep_config(
        {"space": "lambda_grid", "objective": {"name": "ndcg", "direction": "max"}}
    )
    oracle = make_oracle(config, folder)
    hp = kt.HyperParameters()
    hp.Choice("rate", [0.1, 0.01, 0.001])
    hp.Choice("model", ["moe", "dnn"])
    oracle.update_space(hp)
    return oracle


class Sweep:
    """A chief that serves an oracle, and clients of it."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.patch = folder, monkeypatch
        self.clock, self.poisoned, self.said = Clock(), [], []
        self.oracle = oracle_of(folder)
        self.start("127.0.0.1:0")

    def start(self, address):
        self.servicer = LeasedServicer(
            self.oracle, LEASE, self.poisoned.append, self.said.append, self.clock
        )
        self.chief = Chief(self.servicer, address)
        self.thread = threading.Thread(target=self.chief.run, args=(self.said.append,))
        self.thread.start()

    def client(self, name, patience=10.0):
        host, port = self.chief.address.split(":")
        self.patch.setenv("KERASTUNER_ORACLE_IP", host)
        self.patch.setenv("KERASTUNER_ORACLE_PORT", port)
        self.patch.setenv("KERASTUNER_TUNER_ID", name)
        return ChiefClient(oracle_of(self.folder), self.chief.address, name, patience)

    def end(self, client, trial, status=STATUS.COMPLETED):
        client.update_trial(trial.trial_id, {"ndcg": 0.5})
        trial.status = status
        client.end_trial(trial)

    def close(self):
        self.servicer.stop_triggered = True
        self.oracle.ongoing_trials.clear()
        self.servicer.seen.clear()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    running = Sweep(tmp_path, monkeypatch)
    yield running
    running.close()


def work_off(sweep, client, name):
    ended = []
    while (trial := client.create_trial(name)).status == STATUS.RUNNING:
        sweep.end(client, trial)
        ended.append(trial.trial_id)
    return ended, trial.status


def test_a_worker_sees_the_values_that_the_chief_drew(sweep):
    trial = sweep.client("worker-1").create_trial("worker-1")
    assert trial.hyperparameters.values == sweep.oracle.trials["0000"].hyperparameters.values


def test_the_trial_of_a_silent_worker_goes_to_another_and_none_is_lost(sweep):
    lost = sweep.client("worker-1").create_trial("worker-1")
    second = sweep.client("worker-2")
    ended, status = work_off(sweep, second, "worker-2")
    # Everything else is done, but the silent worker may still lose its trial: not yet over.
    assert len(ended) == 5
    assert status == STATUS.IDLE
    sweep.clock.now += LEASE + 1
    ended, status = work_off(sweep, second, "worker-2")
    assert ended == [lost.trial_id]
    assert status == STATUS.STOPPED
    assert "worker-1 is gone" in sweep.said[0]
    sweep.thread.join(10)
    assert not sweep.thread.is_alive()


def test_a_worker_that_gives_signs_of_life_keeps_its_trial(sweep):
    first, second = sweep.client("worker-1"), sweep.client("worker-2")
    trial = first.create_trial("worker-1")
    for _ in range(3):
        sweep.clock.now += LEASE - 1
        first.get_trial(trial.trial_id)
    assert second.create_trial("worker-2").trial_id != trial.trial_id


def test_a_worker_that_lost_its_trial_is_told_so_and_its_results_are_not_taken(sweep):
    first, second = sweep.client("worker-1"), sweep.client("worker-2")
    trial = first.create_trial("worker-1")
    sweep.clock.now += LEASE + 1
    assert second.create_trial("worker-2").trial_id == trial.trial_id
    for call in (
        lambda: first.get_trial(trial.trial_id),
        lambda: first.update_trial(trial.trial_id, {"ndcg": 0.9}),
        lambda: first.end_trial(trial),
    ):
        with pytest.raises(TrialLostError, match="is not worker-1's"):
            call()
    assert trial.trial_id not in sweep.oracle.end_order


def test_signs_of_life_find_out_that_the_trial_is_another_workers(sweep):
    first = sweep.client("worker-1")
    trial = first.create_trial("worker-1")
    with signs_of_life(first, trial.trial_id, lease=0.4) as check:
        check()
        sweep.servicer.lose("worker-1")
        sweep.oracle.create_trial("worker-2")
        time.sleep(0.5)
        with pytest.raises(TrialLostError):
            check()


def test_a_worker_without_contact_for_a_lease_leaves_its_trial(sweep):
    class Unheard:
        def get_trial(self, trial_id):
            raise UserError("no chief")

    with signs_of_life(Unheard(), "0000", lease=0.2) as check:
        check()
        time.sleep(0.3)
        with pytest.raises(TrialLostError):
            check()


def test_a_trial_that_kills_three_workers_fails_and_the_rest_goes_on(sweep):
    for number in range(3):
        name = f"worker-{number}"
        assert sweep.client(name).create_trial(name).trial_id == "0000"
        sweep.servicer.lose(name)
    assert [trial.trial_id for trial in sweep.poisoned] == ["0000"]
    assert sweep.oracle.trials["0000"].status == STATUS.FAILED
    ended, status = work_off(sweep, sweep.client("worker-9"), "worker-9")
    assert len(ended) == 5
    assert status == STATUS.STOPPED


def test_workers_wait_for_a_chief_that_was_killed_and_go_on_with_their_trials(sweep):
    client = sweep.client("worker-1")
    trial = client.create_trial("worker-1")
    sweep.chief._server.stop(None).wait()
    sweep.oracle = oracle_of(sweep.folder)
    sweep.oracle.reload(keep_ongoing=True)
    old, address = sweep.servicer, sweep.chief.address

    def come_back():
        time.sleep(0.5)
        sweep.start(address)

    back = threading.Thread(target=come_back)
    back.start()
    client.get_trial(trial.trial_id)
    back.join()
    old.stop_triggered = True
    old.oracle.ongoing_trials.clear()
    old.seen.clear()
    sweep.end(client, trial)
    assert sweep.oracle.end_order == [trial.trial_id]


def test_a_chief_that_stays_away_is_named(tmp_path, sweep):
    client = sweep.client("worker-1", patience=0.5)
    sweep.chief._server.stop(None).wait()
    with pytest.raises(UserError, match=rf"chief {sweep.chief.address}: has not answered for 0 s"):
        client.create_trial("worker-1")


def test_an_address_that_is_taken_is_refused(sweep):
    with pytest.raises(UserError, match="cannot be listened on"):
        Chief(sweep.servicer, sweep.chief.address)
