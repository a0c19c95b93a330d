"""A plan of the real terraform as stanzas: each resource with its arguments, and the outputs.

A value that is known only after apply is recorded as the resources that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.terraform.plans.stanzas import Stanzas, flat
from tests.terraform.stand_in import LIKE_GOOGLE

LATER = "known after apply"
FAILING = "checks that do not hold"


def stanzas(plan: Mapping[str, Any]) -> Stanzas:
    """Return the stanzas of the output of `terraform show -json PLAN`."""
    blocks = dict(_blocks(plan["configuration"]["root_module"], ""))
    result: Stanzas = {}
    for change in plan["resource_changes"]:
        after, unknown = change["change"]["after"] or {}, change["change"]["after_unknown"]
        result[change["address"]] = _lines(change, blocks[without_keys(change["address"])], after, unknown)
    for resource in _read(plan.get("prior_state", {}).get("values", {}).get("root_module", {})):
        block = blocks[without_keys(resource["address"])]
        asked = {name: value for name, value in resource["values"].items() if name in block["expressions"]}
        result[resource["address"]] = _lines(resource, block, asked, {})
    for name, output in plan.get("output_changes", {}).items():
        sensitive = {"(sensitive)": True} if output["after_sensitive"] is not False else {}
        lines = _output(output.get("after"), output["after_unknown"])
        result[f"output {name}"] = {path or "value": value for path, value in lines} | sensitive
    failing = [
        check["address"]["to_display"] for check in plan.get("checks", ()) if check["status"] != "pass"
    ]
    return result | ({FAILING: {"checks": sorted(failing)}} if failing else {})


def _lines(resource: Mapping[str, Any], block: Mapping[str, Any], after: Any, unknown: Any) -> dict[str, Any]:
    asked = block.get("expressions", {})
    foreseen = LIKE_GOOGLE.get(resource["type"], {}).keys() - asked.keys()
    values = {name: value for name, value in after.items() if name not in foreseen}
    later = _unknown(unknown, asked, values)
    provider = resource["provider_name"].rpartition("/")[2]
    actions = resource.get("change", {}).get("actions", ["read"])
    usual = actions in (["create"], ["read"])
    return (
        ({} if provider == "google" else {"(provider)": provider})
        | ({} if usual else {"(actions)": actions})
        | flat(_merged(values, later))
    )


def _unknown(unknown: Any, asked: Any, values: Any) -> dict[str, Any]:
    """Return what is configured and unknown, with what it refers to, in the shape of the values."""
    result: dict[str, Any] = {}
    for name, inner in unknown.items():
        expression = asked.get(name) if isinstance(asked, dict) else None
        if inner is True and expression is not None:
            result[name] = {LATER: _sources(expression)}
        elif isinstance(inner, list) and isinstance(expression, list) and isinstance(values.get(name), list):
            elements = zip(inner, [*expression, *[{}] * len(inner)], values[name], strict=False)
            found = [_unknown(*each) if isinstance(each[0], dict) else {} for each in elements]
            result |= {name: found} if any(found) else {}
        elif isinstance(inner, list) and isinstance(expression, dict) and any(each is True for each in inner):
            result[name] = {LATER: _sources(expression)}
    return result


def _sources(expression: Any) -> list[str]:
    references = expression.get("references", ()) if isinstance(expression, dict) else ()
    full = [
        one for one in references if not any(other.startswith((f"{one}.", f"{one}[")) for other in references)
    ]
    return sorted(set(full))


def _output(value: Any, unknown: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if unknown is True:
        yield path, LATER
    elif isinstance(value, dict):
        later = unknown if isinstance(unknown, dict) else {}
        for name in sorted(value.keys() | later.keys()):
            place = f"{path}.{name}" if path else name
            yield from _output(value.get(name), later.get(name, False), place)
    else:
        yield path, value


def _merged(values: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for name, inner in later.items():
        if isinstance(inner, list):
            result[name] = [_merged(*pair) for pair in zip(values[name], inner, strict=True)]
        else:
            result[name] = inner
    return result


def _blocks(module: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for resource in module.get("resources", ()):
        yield prefix + resource["address"], resource
    for name, call in module.get("module_calls", {}).items():
        yield from _blocks(call["module"], f"{prefix}module.{name}.")


def _read(module: Mapping[str, Any]) -> Iterator[Any]:
    yield from (resource for resource in module.get("resources", ()) if resource["mode"] == "data")
    for child in module.get("child_modules", ()):
        yield from _read(child)


def without_keys(address: str) -> str:
    """Return an address without the keys of instances, which may hold dots and brackets in quotes."""
    result, quoted, depth = "", False, 0
    for character in address:
        quoted ^= character == '"'
        depth += (character == "[") - (character == "]") if not quoted else 0
        result += character if depth == 0 and character != "]" else ""
    return result
