"""TensorProtos without TensorFlow, held against TensorFlow's own reading and writing."""

from __future__ import annotations

import numpy as np
import pytest

from tfr_moe._compat import tf
from tfr_moe.serving.tensors import fill_tensor, to_array

ARRAYS = [
    np.array([[1.5, -2.0], [0.0, 3.0]], np.float32),
    np.array([3, -1, 7], np.int32),
    np.array([b"a", b""], object),
    np.zeros([2, 0], np.float32),
    np.array(4.0, np.float32),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_what_is_written_tensorflow_reads(array):
    proto = tf.make_tensor_proto(0.0).__class__()
    fill_tensor(proto, array)
    read = tf.make_ndarray(proto)
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert (read == array).all()


@pytest.mark.parametrize("array", ARRAYS)
def test_what_tensorflow_writes_is_read(array):
    proto = tf.make_tensor_proto(array)
    assert to_array(proto).tolist() == array.tolist()
    assert to_array(proto).dtype == array.dtype


def test_a_value_that_is_sent_once_stands_for_all_that_follow():
    proto = tf.make_tensor_proto(np.float32(0.0), shape=[2, 3])
    del proto.float_val[:]
    proto.float_val.extend([1.0, 2.0])
    proto.ClearField("tensor_content")
    assert to_array(proto).tolist() == [[1.0, 2.0, 2.0], [2.0, 2.0, 2.0]]


def test_other_types_are_refused_by_name():
    with pytest.raises(TypeError, match="float64"):
        fill_tensor(tf.make_tensor_proto(0.0), np.zeros(2))
