"""The messages of Terraform's plugin protocol 6 that a provider of resources and data sources needs.

Names and numbers of the fields: tfplugin6.proto of Terraform's documentation. Built here from a table: the
packages that ship generated code pin an old protobuf.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tfplugin6"
SERVICE = f"{PACKAGE}.Provider"

FIELD_TYPES = {"bool": 8, "string": 9, "bytes": 12, "int64": 3}
"""Numbers of google.protobuf.FieldDescriptorProto.Type."""

MESSAGES = {
    # message: field name, number, type; "*" for repeated, "map:" for a map from strings
    "DynamicValue": "msgpack 1 bytes, json 2 bytes",
    "Step": "attribute_name 1 string, element_key_string 2 string, element_key_int 3 int64",
    "AttributePath": "steps 1 *Step",
    "Diagnostic": "severity 1 int64, summary 2 string, detail 3 string, attribute 4 AttributePath",
    "RawState": "json 1 bytes",
    "Attribute": "name 1 string, type 2 bytes, required 4 bool, optional 5 bool, computed 6 bool",
    "NestedBlock": "type_name 1 string, block 2 Block, nesting 3 int64, min_items 4 int64, max_items 5 int64",
    "Block": "version 1 int64, attributes 2 *Attribute, block_types 3 *NestedBlock",
    "Schema": "version 1 int64, block 2 Block",
    "Nothing": "",
    "Diagnostics": "diagnostics 1 *Diagnostic",
    "ProviderConfigDiagnostics": "diagnostics 2 *Diagnostic",
    "Schemas": "provider 1 Schema, resource_schemas 2 map:Schema, data_source_schemas 3 map:Schema",
    "ProviderConfig": "config 1 DynamicValue",
    "Configure": "terraform_version 1 string, config 2 DynamicValue",
    "Config": "type_name 1 string, config 2 DynamicValue",
    "Upgrade": "type_name 1 string, version 2 int64, raw_state 3 RawState",
    "Upgraded": "upgraded_state 1 DynamicValue, diagnostics 2 *Diagnostic",
    "Read": "type_name 1 string, current_state 2 DynamicValue, private 3 bytes",
    "ReadState": "new_state 1 DynamicValue, diagnostics 2 *Diagnostic, private 3 bytes",
    "Plan": "type_name 1 string, prior_state 2 DynamicValue, proposed_new_state 3 DynamicValue",
    "Planned": "planned_state 1 DynamicValue, diagnostics 4 *Diagnostic, legacy_type_system 5 bool",
    "Apply": "type_name 1 string, prior_state 2 DynamicValue, planned_state 3 DynamicValue",
    "Applied": "new_state 1 DynamicValue, diagnostics 3 *Diagnostic, legacy_type_system 4 bool",
    "DataState": "state 1 DynamicValue, diagnostics 2 *Diagnostic",
}
"""Enumerations are int64 here: both are varints on the wire."""

CALLS = {
    # call of the service: request, response
    "GetProviderSchema": ("Nothing", "Schemas"),
    "ValidateProviderConfig": ("ProviderConfig", "ProviderConfigDiagnostics"),
    "ConfigureProvider": ("Configure", "Diagnostics"),
    "ValidateResourceConfig": ("Config", "Diagnostics"),
    "ValidateDataResourceConfig": ("Config", "Diagnostics"),
    "UpgradeResourceState": ("Upgrade", "Upgraded"),
    "ReadResource": ("Read", "ReadState"),
    "PlanResourceChange": ("Plan", "Planned"),
    "ApplyResourceChange": ("Apply", "Applied"),
    "ReadDataSource": ("Config", "DataState"),
    "StopProvider": ("Nothing", "Nothing"),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tfplugin6.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in filter(None, fields.split(", ")):
            _add_field(message, *field.split())
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number), label=1)
    if kind.startswith("map:"):
        entry = message.nested_type.add(name="".join(map(str.title, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", "1", "string")
        _add_field(entry, "value", "2", kind.removeprefix("map:"))
        kind = f"*{message.name}.{entry.name}"
    if kind.startswith("*"):
        field.label, kind = 3, kind[1:]
    if kind in FIELD_TYPES:
        field.type = FIELD_TYPES[kind]
    else:
        field.type, field.type_name = 11, f".{PACKAGE}.{kind}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """Return the class of a message of the table."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
