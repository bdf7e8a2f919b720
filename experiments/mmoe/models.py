"""The models of the paper, by name, all with the same number of parameters."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from tfr_moe.layers import MULTITASK, dims_of_budget

Model = Literal[
    "single_task",
    "shared_bottom",
    "l2_constrained",
    "cross_stitch",
    "tensor_factorization",
    "omoe",
    "mmoe",
]


def parameter_count(name: str, input_width: int, num_tasks: int, **settings: Any) -> int:
    """Counts the trainable parameters of a model: kernels, biases, gates, stitches and factors.

    The sums of the paper (section 3.3) leave out biases, gates and the last layer of the towers:
    the 13,056 parameters of `shared_bottom` of width 113 and of 8 experts of width 16 are counted
    like that.

    Of the 14,818 parameters below, 8 x 101 x 16 are the experts', 2 x 100 x 8 the gates' and
    2 x (17 x 8 + 9) the towers'.

    Example:
        >>> settings = {"hidden_dims": [16], "tower_hidden_dims": [8], "num_experts": 8}
        >>> parameter_count("mmoe", 100, 2, **settings)
        14818
    """
    layer = MULTITASK[name](num_tasks, **settings)
    with tf.Graph().as_default():  # where variables take no memory
        layer(tf.zeros([1, input_width]))
        return sum(variable.shape.num_elements() for variable in layer.trainable_weights)


def match_budget(
    name: str, budget: int, input_width: int, num_tasks: int, **settings: Any
) -> dict[str, Any]:
    """Scales `hidden_dims` so that a model has about `budget` parameters.

    The towers, the number of experts and the ranks stay the same.

    Args:
        name: name of the model.
        budget: the number of parameters by `parameter_count` to come near to.
        input_width: width n of the input.
        num_tasks: number of tasks.
        **settings: arguments of its layer, with `hidden_dims`.

    Returns:
        The settings with other `hidden_dims`.

    Example:
        >>> match_budget("shared_bottom", 14818, 100, 2, hidden_dims=[16], tower_hidden_dims=[8])
        {'hidden_dims': (126,), 'tower_hidden_dims': [8]}
    """

    def parameters(dims: tuple[int, ...]) -> int:
        return parameter_count(name, input_width, num_tasks, **{**settings, "hidden_dims": dims})

    return {**settings, "hidden_dims": dims_of_budget(settings["hidden_dims"], budget, parameters)}


def create_training_variables(model: tf.keras.Model) -> None:
    """Creates the variables of a compiled model's optimizer and loss.

    A first step that creates variables is traced twice.
    """
    model.optimizer.build(model.trainable_variables)
    model.compiled_loss.build(model.output)
