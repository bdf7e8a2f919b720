"""The multi-task layers by name, and sizes that give each the same number of parameters."""

from __future__ import annotations

from typing import Any

from tfr_moe._compat import tf
from tfr_moe.errors import UserError
from tfr_moe.layers.budget import dims_of_budget
from tfr_moe.layers.multitask import MMoE, MultiTaskLayer, OMoE, SharedBottom, SingleTask
from tfr_moe.layers.multitask_sharing import CrossStitch, L2Constrained, TensorFactorization

MULTITASK: dict[str, type[MultiTaskLayer]] = {
    "single_task": SingleTask,
    "shared_bottom": SharedBottom,
    "l2_constrained": L2Constrained,
    "cross_stitch": CrossStitch,
    "tensor_factorization": TensorFactorization,
    "omoe": OMoE,
    "mmoe": MMoE,
}
"""Model name -> layer, in the order of the paper's tables."""


def make_multitask(name: str, num_tasks: int, **settings: Any) -> MultiTaskLayer:
    """A new layer by its model name.

    Args:
        name: one of `MULTITASK`.
        num_tasks: number of tasks.
        **settings: arguments of the layer, such as `hidden_dims` and `tower_hidden_dims` (all),
            `num_experts` (omoe, mmoe), `l2_weight`, `own_share`, `tensor_ranks`.

    Raises:
        UserError: for an unknown name; the message lists the known ones.

    Example:
        >>> make_multitask("mmoe", 2, hidden_dims=[16], num_experts=8)(tf.ones([3, 5])).shape
        TensorShape([3, 2])
    """
    if name not in MULTITASK:
        raise UserError(f"model {name!r} is unknown; there are: {', '.join(MULTITASK)}")
    return MULTITASK[name](num_tasks, **settings)


def parameter_count(name: str, input_width: int, num_tasks: int, **settings: Any) -> int:
    """The number of trained numbers of a model: kernels, biases, gates, stitches and factors.

    The paper's own sums (section 3.3) leave biases, gates and the towers' last layer out; 13056 of
    those, `shared_bottom` of width 113, are compared with 8 experts of width 16.

    Example:
        >>> settings = {"hidden_dims": [16], "tower_hidden_dims": [8], "num_experts": 8}
        >>> parameter_count("mmoe", 100, 2, **settings)  # 8 x 101 x 16, 2 x 100 x 8, 2 x (17 x 8 + 9)
        14818
    """
    layer = make_multitask(name, num_tasks, **settings)
    with tf.Graph().as_default():  # where variables take no memory
        layer(tf.zeros([1, input_width]))
        return sum(variable.shape.num_elements() for variable in layer.trainable_weights)


def match_budget(
    name: str, budget: int, input_width: int, num_tasks: int, **settings: Any
) -> dict[str, Any]:
    """The settings of a model with `hidden_dims` scaled so that it has about `budget` parameters.

    The towers, the number of experts and the ranks stay as they are.

    Args:
        name: one of `MULTITASK`.
        budget: the number of parameters by `parameter_count` to come near to.
        input_width: width n of the input.
        num_tasks: number of tasks.
        **settings: as of `make_multitask`, with `hidden_dims`.

    Example:
        >>> match_budget("shared_bottom", 14818, 100, 2, hidden_dims=[16], tower_hidden_dims=[8])
        {'hidden_dims': (126,), 'tower_hidden_dims': [8]}
    """

    def parameters(dims: tuple[int, ...]) -> int:
        return parameter_count(name, input_width, num_tasks, **{**settings, "hidden_dims": dims})

    return {**settings, "hidden_dims": dims_of_budget(settings["hidden_dims"], budget, parameters)}
