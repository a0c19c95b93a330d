"""A provider's schema as `terraform providers schema -json` prints it; messages of the plugin protocol.

Names and numbers of the fields: tfplugin6.proto of Terraform's documentation. Built here from a table: the
packages that ship generated code pin an old protobuf.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
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


FOLDER = pathlib.Path(__file__).with_name("schema")
VERSIONS = ("6.50.0", "8.7.0")
"""The ends of the range in terraform/versions.tf; one file a provider and version in `schema/`."""

UNKNOWN = msgspec.msgpack.Ext(0, b"\0")
"""Terraform's encoding of a value that is known only after apply."""

NESTING = {"single": 1, "list": 2, "set": 3, "map": 4, "group": 5}
DYNAMIC = message("DynamicValue")

Block = dict[str, Any]
Path = tuple[str | int, ...]
"""The place of a value: names, and the index of a nested block in a list."""


@dataclass(frozen=True)
class ProviderSchema:
    """The schema of one provider."""

    source: str
    """Its address in the registry."""
    provider: Block
    resources: dict[str, Block]
    data_sources: dict[str, Block]
    allowed: dict[str, dict[str, list[str]]]
    """`resource.TYPE` or `data.TYPE` -> dotted name of an attribute -> the values documented for it."""


def load(provider: str, version: str) -> ProviderSchema:
    """Read the schema of `google` or `google-beta`."""
    content = json.loads((FOLDER / f"{provider}-{version}.json").read_text())
    ((source, schemas),) = content["provider_schemas"].items()
    return ProviderSchema(
        source,
        schemas["provider"]["block"],
        {name: schema["block"] for name, schema in schemas["resource_schemas"].items()},
        {name: schema["block"] for name, schema in schemas["data_source_schemas"].items()},
        content["allowed_values"],
    )


def schema_message(block: Block) -> Any:
    """Return a block as the protocol's Schema."""
    return message("Schema")(block=_block_message(block))


def _block_message(block: Block) -> Any:
    attributes = [
        message("Attribute")(
            name=name,
            type=json.dumps(attribute["type"]).encode(),
            **{flag: bool(attribute.get(flag)) for flag in ("required", "optional", "computed")},
        )
        for name, attribute in block.get("attributes", {}).items()
    ]
    nested = [
        message("NestedBlock")(
            type_name=name,
            block=_block_message(inner["block"]),
            nesting=NESTING[inner["nesting_mode"]],
            min_items=inner.get("min_items", 0),
            max_items=inner.get("max_items", 0),
        )
        for name, inner in block.get("block_types", {}).items()
    ]
    return message("Block")(attributes=attributes, block_types=nested)


def decode(value: Any) -> Any:
    """Return a DynamicValue as plain data, unknown values as UNKNOWN."""
    if value.msgpack:
        return msgspec.msgpack.decode(value.msgpack, strict=False)
    return json.loads(value.json) if value.json else None


def encode(value: Any) -> Any:
    """Return plain data as a DynamicValue."""
    return DYNAMIC(msgpack=msgspec.msgpack.encode(value))


def is_unknown(value: Any) -> bool:
    """Return whether a value is known only after apply."""
    return isinstance(value, msgspec.msgpack.Ext)


def filled(block: Block, value: Any, make: Callable[[str, Any], Any]) -> Any:
    """Return a resource's value with `make(name, type)` for each attribute that the provider computes."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, attribute in block.get("attributes", {}).items():
        if is_unknown(result.get(name)) or (attribute.get("computed") and result.get(name) is None):
            result[name] = make(name, attribute["type"])
    for name, nested in block.get("block_types", {}).items():
        inner = result.get(name)
        if isinstance(inner, list):
            result[name] = [filled(nested["block"], element, make) for element in inner]
        else:
            result[name] = filled(nested["block"], inner, make)
    return result


def invented(name: str, kind: Any) -> Any:
    """Return a value of a type for the attribute `name`."""
    plain = {"string": f"invented-{name}", "number": 0, "bool": False}
    if isinstance(kind, str):
        return plain[kind]
    constructor, inner = kind
    if constructor == "object":
        return {key: invented(key, element) for key, element in inner.items()}
    if isinstance(inner, list) and inner[0] == "object":
        return [invented(name, inner)]  # one element, so that expressions over it are evaluated
    return {} if constructor == "map" else []


def set_attributes(
    block: Block, value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Block, Any]]:
    """Yield path, schema and value of each attribute that is set and known, in nested blocks too."""
    for name, attribute in block.get("attributes", {}).items():
        if value.get(name) is not None and not is_unknown(value[name]):
            yield (*path, name), attribute, value[name]
    for name, nested in block.get("block_types", {}).items():
        inner = value.get(name)
        if is_unknown(inner) or inner is None:
            continue
        listed = isinstance(inner, list)
        for index, element in enumerate(inner if listed else [inner]):
            place = (*path, name, index) if listed and nested["nesting_mode"] == "list" else (*path, name)
            yield from set_attributes(nested["block"], element, place)


def dotted(path: Path) -> str:
    """Return the names of a path, joined by dots."""
    return ".".join(step for step in path if isinstance(step, str))
