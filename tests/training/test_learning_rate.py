"""The learning rate's drop follows from the number of the epoch, so that it survives a kill."""

import pytest

from tfr_moe.config import make_config
from tfr_moe.training.optimizers import learning_rate_drop


def test_the_rate_is_a_tenth_after_the_epoch_named():
    config = make_config({"model": "dnn", "learning_rate": 0.5, "learning_rate_drop_epoch": 2})
    [callback] = learning_rate_drop(config)
    rates = [callback.schedule(epoch, 123.0) for epoch in range(4)]  # Keras counts from 0
    assert rates == pytest.approx([0.5, 0.5, 0.05, 0.05])


def test_without_an_epoch_the_rate_stays():
    assert learning_rate_drop(make_config({"model": "dnn"})) == []
