from __future__ import annotations

import struct

import pytest
from tensorflow_serving.apis import input_pb2

from tfr_moe.elwc.wire import FloatBlock, ids_entry, list_record, varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 2**31, 2**40])
def test_a_varint_reads_back(number):
    value = 0
    for at, byte in enumerate(varint(number)):
        value |= (byte & 0x7F) << (7 * at)
    assert value == number
    assert [byte >> 7 for byte in varint(number)] == [1] * (len(varint(number)) - 1) + [0]


def test_a_float_feature_by_hand():
    # entry(10) of 12 bytes: key(10) "x", value(18): float_list(18): packed(10) of 4 bytes.
    expected = bytes([10, 13, 10, 1, ord("x"), 18, 8, 18, 6, 10, 4]) + struct.pack("<f", 1.5)
    assert FloatBlock([("x", 1)]).pack([1.5]) == expected


@pytest.mark.parametrize("length", [0, 1, 40, 127, 128, 5000, 20000])
def test_protobuf_reads_what_is_written_at_every_length(length):
    floats = FloatBlock([("price", 1), ("image", 2)]).pack([0.5, 1.0, -2.0])
    ids = ids_entry("brand", ["é" * length]) + ids_entry("tags", ["", "x" * length])
    items = [floats + ids] * 3
    proto = input_pb2.ExampleListWithContext.FromString(
        list_record(items, ids_entry("query", ["q"]))
    )
    assert proto.context.features.feature["query"].bytes_list.value[:] == [b"q"]
    assert len(proto.examples) == 3
    for example in proto.examples:
        stored = example.features.feature
        assert stored["price"].float_list.value[:] == [0.5]
        assert stored["image"].float_list.value[:] == [1.0, -2.0]
        assert stored["brand"].bytes_list.value[:] == [("é" * length).encode()]
        assert stored["tags"].bytes_list.value[:] == [b"", b"x" * length]


def test_values_and_offsets_of_a_block_are_those_that_were_packed():
    block = FloatBlock([("a", 3), ("b", 1), ("c", 1)])
    bodies = [block.pack([1, 2, 3, 4, 5]) + b"ids", block.pack([6, 7, 8, 9, 10])]
    assert block.values(bodies).tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    for column in range(5):
        assert struct.unpack("<f", bodies[0][block.bytes_of(column)]) == (column + 1,)
    assert block.size == len(bodies[1])


def test_a_list_without_items_or_features_is_a_message():
    proto = input_pb2.ExampleListWithContext.FromString(list_record([], b""))
    assert (len(proto.examples), len(proto.context.features.feature)) == (0, 0)
    assert FloatBlock([]).pack([]) == b""
