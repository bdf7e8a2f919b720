"""Layers that look at a whole list: attention, positions and recurrence."""

from __future__ import annotations

import functools

import numpy as np

import tfr_moe.layers as layers
from tests.conformance.arrays import floats, mask, positions
from tests.conformance.cases import ModelCase
from tests.conformance.registry.settings import ENCODER, LISTS

ROWS = [
    ModelCase(
        "PositionBiasTower",
        # At zero, as by default, nothing would depend on anything.
        lambda: layers.PositionBiasTower(2, 3, dropout=0.2, output_initializer="uniform"),
        {"positions": positions(5), "presentation": floats("BL", 2), "mask": mask()},
        {"output": "BL"},
        draws=True,
    ),
    ModelCase(
        # NaN at padded items is for the encoder to keep out.
        "EncoderBlock",
        lambda: layers.EncoderBlock(num_heads=2, hidden_dim=5, residual=False),
        {
            "inputs": floats("BL", 4)._replace(junk=lambda rng, shape: np.ones(shape)),
            "mask": mask(),
        },
        {"output": "BL"},
    ),
    ModelCase(
        "SelfAttentionEncoder",
        lambda: layers.SelfAttentionEncoder(**ENCODER),
        LISTS,
        {"output": "BL"},
    ),
    ModelCase(
        "SelfAttentionEncoder with dropout",
        lambda: layers.SelfAttentionEncoder(**ENCODER, dropout=0.2),
        LISTS,
        {"output": "BL"},
        draws=True,
    ),
    *(
        ModelCase(
            f"SelfAttentionEncoder with {kind} positions in the {where}",
            functools.partial(
                layers.SelfAttentionEncoder,
                **ENCODER,
                head_dim=5,
                positional_encoding=kind,
                max_positions=3,
                encode_inputs=where == "inputs",
            ),
            LISTS,
            {"output": "BL"},
            ordered=True,
        )
        for kind, where in (("learned", "inputs"), ("fixed", "projection"))
    ),
    ModelCase(
        "DeepListwiseContext",
        lambda: layers.DeepListwiseContext([5], state_dim=3, num_comparisons=2),
        LISTS,
        {"output": "BL"},
        ordered=True,
    ),
    ModelCase(
        "DeepListwiseContext with dropout",
        lambda: layers.DeepListwiseContext([], state_dim=3, num_comparisons=2, dropout=0.2),
        LISTS,
        {"output": "BL"},
        draws=True,
        ordered=True,
    ),
]
