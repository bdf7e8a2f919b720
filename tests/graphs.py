"""Whether TensorFlow forgets graphs."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

from tfr_moe._compat import tf


def outlives_its_function(compute: Callable[[Any], Any], values: Any) -> bool:
    """Whether the graph of a function and of its gradient stays after the function is gone."""

    def slope() -> Any:
        return tf.gradients(compute(values), values)

    graph = weakref.ref(tf.function(slope, autograph=False).get_concrete_function().graph)
    gc.collect()
    return graph() is not None
