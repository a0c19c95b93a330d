"""A provider's schema, as `terraform providers schema -json` prints it, and values of its blocks."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.terraform.plugin_messages import message

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
