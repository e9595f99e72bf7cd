"""The messages of HDFS's protocols have the numbers and types that Hadoop's jars have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from oracles import hadoop_messages

from peacefs.protocol.hadoop import attributes_pb2, datatransfer_pb2, hdfs_pb2, namenode_pb2, rpc_pb2

FILES = [module.DESCRIPTOR for module in (rpc_pb2, hdfs_pb2, namenode_pb2, attributes_pb2, datatransfer_pb2)]


def messages() -> Iterator[Descriptor]:
    todo = [message for file in FILES for message in file.message_types_by_name.values()]
    while todo:
        message = todo.pop()
        yield message
        todo.extend(message.nested_types)


def enumerations() -> Iterator[EnumDescriptor]:
    for file in FILES:
        yield from file.enum_types_by_name.values()
    for message in messages():
        yield from message.enum_types


def name_of(described: Descriptor | EnumDescriptor) -> str:
    return described.full_name.removeprefix("peacefs.hadoop.")


def told(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    type_name = (
        kind.name if kind is not None else FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    )
    label = "required" if field.is_required else "repeated" if field.is_repeated else "optional"
    if not field.has_default_value:
        return f"{label} {type_name}"
    default = field.default_value
    if field.enum_type is not None:
        default = field.enum_type.values_by_number[default].name
    elif isinstance(default, bool):
        default = str(default).lower()
    return f"{label} {type_name} {default}"


@pytest.mark.parametrize("message", list(messages()), ids=name_of)
def test_fields_of_a_message_are_hadoops(message: Descriptor) -> None:
    expected = hadoop_messages.fields_of(name_of(message))
    ours = {field.number: told(field) for field in message.fields}
    assert ours == {number: expected[number] for number in ours}
    # Whatever must be there is known, so that no message of ours is refused.
    assert {number for number, what in expected.items() if what.startswith("required")} <= set(ours)


@pytest.mark.parametrize("enumeration", list(enumerations()), ids=name_of)
def test_numbers_of_an_enumeration_are_hadoops(enumeration: EnumDescriptor) -> None:
    ours = {value.name: value.number for value in enumeration.values}
    assert ours == hadoop_messages.values_of(name_of(enumeration))
