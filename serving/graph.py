"""Which operations an exported model runs, and the refusal of those that have no place in serving."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfr_moe.errors import UserError

SAVED_MODEL = "saved_model.pb"

_PYTHON = re.compile(r"PyFunc")
_RANDOM = re.compile(r"Random|Multinomial|Normal(V2)?$|Rng|Uniform(Int|FullInt)?$|^StatefulUniform")
_WRITE = re.compile(
    r"^Assign|^Resource(Apply|Scatter|StridedSliceAssign)|^LookupTable(Insert|Remove)"
)
_FORBIDDEN = (
    (_PYTHON, "calls back into Python"),
    (_RANDOM, "draws random numbers"),
    (_WRITE, "writes to a variable or table"),
)


_INIT = "__saved_model_init_op"


def load_meta_graph(path: Path) -> Any:
    """The `MetaGraphDef` of the SavedModel in the folder `path`."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / SAVED_MODEL).read_bytes())
    return saved.meta_graphs[0]


def signatures_of(meta_graph: Any) -> dict[str, Any]:
    """The `SignatureDef`s by name, without those by which TensorFlow initialises a model."""
    named = meta_graph.signature_def.items()
    return {name: value for name, value in named if not name.startswith("__saved_model")}


def served_operations(path: Path) -> set[str]:
    """Names of the operations that the signatures of a SavedModel run, its functions followed.

    What only saves or restores the model is not among them.
    """
    graph = load_meta_graph(path)
    functions = {f.signature.name: f.node_def for f in graph.graph_def.library.function}
    nodes = {node.name: node for node in graph.graph_def.node}
    pending = [
        _node_name(info.name)
        for name, signature in graph.signature_def.items()
        if name != _INIT  # fills the lookup tables when the model is loaded
        for info in signature.outputs.values()
    ]
    operations: set[str] = set()
    called: list[str] = []
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        operations.add(nodes[name].op)
        called += _functions_of(nodes[name])
        pending += [_node_name(source) for source in nodes[name].input]
    entered: set[str] = set()
    while called:
        function = called.pop()
        # A few attributes name functions that exist only as a gradient's or a fallback's label.
        if function in entered or function not in functions:
            continue
        entered.add(function)
        for node in functions[function]:
            operations.add(node.op)
            called += _functions_of(node)
    return operations


def check_operations(path: Path) -> None:
    """Refuses a SavedModel that TensorFlow Serving could not run, or not twice the same.

    Raises:
        UserError: naming the operation: one that TensorFlow does not have itself, Python callbacks,
            random numbers (noise or dropout left on) and writes (training metrics left on).
    """
    from tfr_moe._compat import tf

    for operation in sorted(served_operations(path)):
        if not hasattr(tf.raw_ops, operation):
            raise UserError(f"the serving graph runs {operation!r}, which is not TensorFlow's own")
        for pattern, fault in _FORBIDDEN:
            if pattern.search(operation):
                raise UserError(f"the serving graph runs {operation!r}, which {fault}")


def _node_name(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


def _functions_of(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)
