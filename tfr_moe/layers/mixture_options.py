"""What a mixture can do beyond the paper, each off by default: names, defaults, and which part takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPTIONS: dict[str, tuple[str, str, Any]] = {
    "gate_init_scale": ("gate", "init_scale", 1.0),
    "gate_bias_rate": ("gate", "bias_rate", 0.0),
    "gate_residual": ("mixture", "residual", False),
    "shared_expert": ("mixture", "shared", False),
    "shared_weights": ("mixture", "star", False),
    "hsc_fixed_side": ("hsc", "fixed_side", "none"),
    "hsc_on": ("hsc", "on", "probabilities"),
    "hsc_warmup_steps": ("hsc", "warmup_steps", 0),
    "adversarial_margin": ("adversarial", "margin", None),
    "adversarial_centred": ("adversarial", "centred", False),
    "adversarial_warmup_steps": ("adversarial", "warmup_steps", 0),
}
"""Name in `RunConfig` -> the part that takes it, the name of its argument there, its default."""


def given_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that differ from their defaults, so that a model without any is what it always was.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> given_options({"gate_init_scale": 1.0, "hsc_on": "logits"})
        {'hsc_on': 'logits'}
    """
    for name in settings:
        if name not in OPTIONS:
            raise ValueError(f"options must be of {', '.join(OPTIONS)}. Received: {name!r}")
    return {name: value for name, value in settings.items() if value != OPTIONS[name][2]}


def arguments_of(part: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the options give to a part: `gate`, `hsc`, `adversarial` or `mixture`.

    Example:
        >>> arguments_of("gate", {"gate_init_scale": 0.1, "hsc_on": "logits"})
        {'init_scale': 0.1}
    """
    return {
        argument: options[name]
        for name, (owner, argument, _) in OPTIONS.items()
        if owner == part and name in options
    }
