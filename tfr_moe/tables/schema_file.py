"""Writes an inferred schema as a YAML file with the reason of each decision as a comment."""

from __future__ import annotations

import math
from typing import Any

import yaml

from tfr_moe.tables.inference import Inference


def schema_yaml(inference: Inference, source: str) -> str:
    """Returns the text of a schema file to edit; `source` is named in its first line."""
    schema, decisions = inference
    reasons = {d.column: d.reason for d in decisions if not d.outcome.startswith("hierarchy")}
    lines = [
        f"# Inferred from {source}. Edit it: scopes, kinds and roles decide what the model learns "
        "from.",
        *(f"# warning: {d.column}: {d.reason}" for d in inference.warnings),
        *(f"{key}: {_flow(value)}" for key, value in schema.items() if key != "features"),
        *(f"# {d.outcome}: {d.reason}" for d in decisions if d.outcome == "hierarchy candidate"),
        "features:",
    ]
    for feature in schema["features"]:
        lines += [f"  # {reasons[feature['name']]}", f"  - {_flow(feature)}"]
    ignored = [f"#   {d.column}: {d.reason}" for d in decisions if d.outcome == "ignored"]
    if ignored:
        lines += ["# Ignored columns:", *ignored]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value in YAML's flow style."""
    text = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.strip()[1:-1]
