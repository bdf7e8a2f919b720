"""The operations that an exported model runs, and the rejection of those that cannot serve."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError

_FORBIDDEN = (
    (re.compile(r"PyFunc"), "calls back into Python"),
    (
        re.compile(r"Random|Multinomial|Normal(V2)?$|Rng|Uniform(Int|FullInt)?$|^StatefulUniform"),
        "draws random numbers",
    ),
    (
        re.compile(
            r"^Assign|^Resource(Apply|Scatter|StridedSliceAssign)|^LookupTable(Insert|Remove)"
        ),
        "writes to a variable or table",
    ),
)


def operations_of(signatures: Iterable[Any]) -> set[str]:
    """Names of the operations in concrete functions and in all functions that they call."""
    operations: set[str] = set()
    for signature in signatures:
        graph = signature.graph.as_graph_def()
        operations |= {node.op for node in graph.node}
        functions = {function.signature.name for function in graph.library.function}
        operations |= {node.op for f in graph.library.function for node in f.node_def}
        operations -= functions  # a call by the function's name is not an operation
    return operations


def check_operations(signatures: Iterable[Any]) -> None:
    """Rejects signatures that TensorFlow Serving cannot run, or not twice with the same result.

    Args:
        signatures: concrete functions.

    Raises:
        UserError: naming the operation: one that TensorFlow itself does not have, Python callbacks,
            random numbers (noise or dropout left on) and writes (training metrics left on).
    """
    for operation in sorted(operations_of(signatures)):
        if not hasattr(tf.raw_ops, operation):
            raise UserError(f"the serving graph runs {operation!r}, which is not TensorFlow's own")
        for pattern, fault in _FORBIDDEN:
            if pattern.search(operation):
                raise UserError(f"the serving graph runs {operation!r}, which {fault}")
