"""Reads the JSON of requests as Google's front does, which is laxer than proto3's JSON."""

from __future__ import annotations

import re

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tpuctl.sim.json_values import JsonObject, JsonValue
from tpuctl.sim.world import api_error

UNKNOWN = re.compile(r'has no field named "(?P<name>[^"]*)" at "[^".]*\.?(?P<place>[^"]*)"')
FAILED = re.compile(r"Failed to parse (\w+) field")


def parse(fields: JsonObject, message: type[Message]) -> Message:
    """Return the message of a JSON object; raises INVALID_ARGUMENT.

    A repeated field may be a single value, as `node_spec` is in Google's own examples:
    https://cloud.google.com/tpu/docs/queued-resources.
    """
    descriptor: Descriptor = message.DESCRIPTOR  # type: ignore[assignment]  # two classes for one
    try:
        return json_format.ParseDict(_listed(fields, descriptor), message())
    except json_format.ParseError as error:
        raise api_error("bad_json", reason=_reason(str(error))) from None


def _listed(fields: JsonObject, message: Descriptor) -> JsonObject:
    """Return an object with single values of repeated fields in lists, at every level."""
    by_name = {name: field for field in message.fields for name in (field.name, field.json_name)}
    return {
        name: _value(value, by_name[name]) if name in by_name else value for name, value in fields.items()
    }


def _value(value: JsonValue, field: FieldDescriptor) -> JsonValue:
    inner = field.message_type
    if inner is None or inner.GetOptions().map_entry or inner.full_name.startswith("google.protobuf."):
        return value
    if isinstance(value, dict):
        return [_listed(value, inner)] if field.is_repeated else _listed(value, inner)
    if isinstance(value, list):
        return [_listed(item, inner) if isinstance(item, dict) else item for item in value]
    return value


def _reason(text: str) -> str:
    """Return Google's words for an error of the parser, without Python's."""
    unknown, failed = UNKNOWN.search(text), FAILED.findall(text)
    if unknown:
        place = f" at '{unknown['place']}'" if unknown["place"] else ""
        return f'Unknown name "{unknown["name"]}"{place}: Cannot find field.'
    return f"Invalid value at '{'.'.join(failed)}'." if failed else text.partition("\n")[0]
