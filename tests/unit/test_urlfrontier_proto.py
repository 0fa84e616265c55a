"""What `make urlfrontier` has made belongs to the .proto as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc
from tests.harness.sources import PROJECT

TEXT = re.sub(
    r"//.*", "", (PROJECT / "crawler/urlfrontier/urlfrontier.proto").read_text(encoding="utf-8")
)
TYPE_NAMES = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def declared_fields() -> set[str]:
    """`Message.name = number: type` of each line of a field."""
    found, message = set(), ""
    for line in TEXT.splitlines():
        if begun := re.match(r"message (\w+)", line):
            message = begun[1]
        elif field := re.match(r"\s+(\S.*) (\w+) = (\d+);", line):
            found.add(f"{message}.{field[2]} = {field[3]}: {field[1]}")
    return found


def type_of(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (type_of(message.fields_by_name[name]) for name in ("key", "value"))
        return f"map<{key}, {value}>"
    named, oneof = message or field.enum_type, field.containing_oneof
    kind = TYPE_NAMES[field.type] if named is None else named.full_name
    for prefix in ("urlfrontier.", f"{field.containing_type.name}."):
        kind = kind.removeprefix(prefix)
    if field.is_repeated:
        return f"repeated {kind}"
    return f"optional {kind}" if oneof and oneof.name == f"_{field.name}" else kind


def generated_fields(messages: Iterator[Descriptor]) -> set[str]:
    return {
        f"{message.name}.{field.name} = {field.number}: {type_of(field)}"
        for message in messages
        for field in message.fields
    }


def test_messages_are_those_of_the_proto() -> None:
    messages = pb.DESCRIPTOR.message_types_by_name
    assert generated_fields(iter(messages.values())) == declared_fields()
    assert set(messages) == set(re.findall(r"^message (\w+)", TEXT, re.M))


def test_values_of_enums_are_those_of_the_proto() -> None:
    declared = {
        (name, value, int(number))
        for name, body in re.findall(r"enum (\w+) \{(.*?)\}", TEXT, re.S)
        for value, number in re.findall(r"(\w+) = (\d+);", body)
    }
    assert declared == {
        (enum.name, value.name, value.number)
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for enum in message.enum_types
        for value in enum.values
    }


def test_calls_are_those_of_the_proto() -> None:
    asked = re.findall(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)", TEXT)
    service = pb.DESCRIPTOR.services_by_name["URLFrontier"]
    given = [
        (
            each.name,
            "stream " * each.client_streaming,
            each.input_type.name,
            "stream " * each.server_streaming,
            each.output_type.name,
        )
        for each in service.methods
    ]
    assert given == asked
    assert all(hasattr(rpc.URLFrontierServicer, name) for name, *_ in asked) and len(asked) == 19
