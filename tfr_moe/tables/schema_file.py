"""Writes an inferred schema as a YAML file with the reason of each decision as a comment."""

from __future__ import annotations

import json
from typing import Any

from tfr_moe.tables.hierarchy import Decision
from tfr_moe.tables.inference import Inference


def schema_yaml(inference: Inference, source: str) -> str:
    """Returns the text of a schema file to edit.

    Args:
        inference: the schema and the decisions.
        source: what it was inferred from, for the first line.

    Example:
        >>> print(schema_yaml(Inference({"list_id": "q", "labels": ["click"], "features": []},
        ...     [Decision("q", "list_id", "as given")]), "log.csv"))
        # Inferred from log.csv. Edit it: scopes, kinds and roles decide what the model learns from.
        list_id: q
        labels: [click]
        features:
        <BLANKLINE>
    """
    schema = inference.schema
    reasons = {d.column: d for d in inference.decisions if not d.outcome.startswith("hierarchy")}
    lines = [
        f"# Inferred from {source}. Edit it: scopes, kinds and roles decide what the model learns "
        "from."
    ]
    lines += [f"# warning: {d.column}: {d.reason}" for d in inference.warnings]
    for key in ("list_id", "labels", "time", "position", "weight", "hierarchy"):
        if key in schema:
            lines.append(f"{key}: {_flow(schema[key])}")
    lines += [
        f"# hierarchy candidate: {d.reason}"
        for d in inference.decisions
        if d.outcome == "hierarchy candidate"
    ]
    lines.append("features:")
    for feature in schema["features"]:
        lines.append(f"  # {reasons[feature['name']].reason}")
        lines.append(f"  - {_flow(feature)}")
    ignored = [d for d in inference.decisions if d.outcome == "ignored"]
    if ignored:
        lines.append("# Columns that are no features:")
        lines += [_ignored(decision) for decision in ignored]
    return "\n".join(lines) + "\n"


def _ignored(decision: Decision) -> str:
    return f"#   {decision.column}: {decision.reason}"


def _flow(value: Any) -> str:
    """A value in YAML's flow style; names stay unquoted where YAML reads them as text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


_YAML_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
