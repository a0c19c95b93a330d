"""Makes classes of protobuf messages from tables of their fields, without generated code.

In pools of their own: TensorFlow has the same file names in the default one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Messages = Mapping[str, tuple[tuple[str, int, bool, str], ...]]
"""Message -> fields: name, number, whether it is repeated, and a scalar type or a message of the table.

`Outer.Inner` is the entry of a map in `Outer`, which comes before it.
"""


def message_class(
    messages: Messages, name: str, *, syntax: str = "proto3", oneofs: Mapping[str, str] | None = None
) -> Any:
    """Return the class of one message; `oneofs` names the oneof that has all fields of a message.

    With the syntax `proto2` each field that is not repeated says whether it was sent.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow/messages.proto", package="tensorflow", syntax=syntax
    )
    known: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in messages.items():
        parent, _, own = path.rpartition(".")
        message = known[parent].nested_type.add(name=own) if parent else file.message_type.add(name=own)
        known[path] = message
        message.options.map_entry = bool(parent)
        oneof = (oneofs or {}).get(path)
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field in fields:
            _add_field(message, messages, *field, in_oneof=bool(oneof))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))


def _add_field(
    message: descriptor_pb2.DescriptorProto, messages: Messages, name: str, number: int, repeated: bool,
    kind: str, *, in_oneof: bool,
) -> None:  # fmt: skip
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in messages:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".tensorflow.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    if in_oneof:
        field.oneof_index = 0
