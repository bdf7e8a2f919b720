"""Metrics, those of training among them."""

from __future__ import annotations

import functools
from typing import Any

import tfr_moe.layers as layers
import tfr_moe.metrics as metrics
from tests.conformance.arrays import floats
from tests.conformance.cases import MetricCase
from tests.conformance.registry.losses import RANKED
from tests.conformance.registry.settings import K, N
from tfr_moe._compat import tf


def update_usage(metric: Any, values: dict[str, Any]) -> None:
    # A layer feeds what a batch gave to each expert, which is a sum over its lists.
    metric.update_state(tf.reduce_sum(values["importance"], axis=0))


ROWS = [
    MetricCase("SessionAUC", metrics.SessionAUC, RANKED),
    *(
        MetricCase(metric.__name__, functools.partial(metric, k=5), RANKED)
        for metric in (metrics.NDCG, metrics.MRR, metrics.MAP, metrics.Precision)
    ),
    *(
        MetricCase(metric.__name__, functools.partial(metric, k=3), RANKED)
        for metric in (metrics.PRMPrecision, metrics.PRMMAP)
    ),
    MetricCase(
        "TrainingMean",
        layers.gating.TrainingMean,
        {"values": floats("B", None)},
        lambda metric, values: metric.update_state(values["values"]),
    ),
    MetricCase(
        "ExpertUsage",
        lambda: layers.gating.ExpertUsage(N, K),
        {
            "importance": floats("B", N, scale=0.0)._replace(
                draw=lambda rng, shape: rng.random(shape).astype("float32")
            )
        },
        update_usage,
    ),
]
