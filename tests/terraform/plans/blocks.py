"""What a plan does not show, read from the files: dependencies, lifecycles, versions, providers, variables.

No terraform runs for these stanzas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.terraform.plans.stanzas import Lines, Stanzas

TARGET = re.compile(r"(?<![\w.\-])((?:data\.)?google_\w+\.\w+|module\.\w+|local\.\w+)")
OF_RESOURCE = ("provider", "depends_on", "lifecycle", "provisioner", "connection")
OF_VARIABLE = ("type", "default", "nullable", "sensitive", "ephemeral")
OF_OUTPUT = ("sensitive", "ephemeral", "depends_on", "precondition")
OF_MODULE = ("source", "version", "providers", "depends_on")
NO_CONTENT = ("__is_block__", "__comments__", "__inline_comments__")
UNORDERED = ("depends_on", "ignore_changes", "replace_triggered_by")


def stanzas(folder: Path) -> Stanzas:
    """Return the stanzas of the files of a module's folder."""
    parsed = [_parsed(path.read_text()) for path in sorted(folder.glob("*.tf"))]
    local_values = {
        name: value for file in parsed for block in file.get("locals", ()) for name, value in block.items()
    }
    result: Stanzas = {f"file {path.name}": {} for path in sorted(folder.glob("*.tf.json"))}
    for file in parsed:
        for kind, blocks in file.items():
            for block in blocks if kind not in ("locals", *NO_CONTENT) else ():
                for name, lines in _stanzas(kind, block, local_values):
                    result[name] = result.get(name, {}) | lines
    return result


def _stanzas(
    kind: str, block: Mapping[str, Any], local_values: Mapping[str, Any]
) -> Iterator[tuple[str, Lines]]:
    if kind in ("resource", "data"):
        for name, every in _named(block):
            for inner, content in _named(every):
                after = sorted(_resources(content, local_values))
                yield (
                    f"{kind} {name}.{inner}",
                    ({"after": after} if after else {}) | _chosen(content, OF_RESOURCE),
                )
    elif kind in ("variable", "output", "module"):
        keys = {"variable": OF_VARIABLE, "output": OF_OUTPUT, "module": OF_MODULE}[kind]
        for name, content in _named(block):
            yield f"{kind} {name}", _chosen(content, keys)
    elif kind in ("provider", "check"):
        for name, content in _named(block):
            alias = f".{_plain(content['alias'])}" if "alias" in content else ""
            yield f"{kind} {name}{alias}", _chosen(content, sorted(content))
    elif kind == "terraform":
        yield kind, _chosen(block, sorted(block))
    else:  # moved, removed, import, and what a later terraform has
        plain = _plain(block)
        yield f"{kind} {plain.get('to', plain.get('from', ''))}", {"block": plain}


def _chosen(content: Mapping[str, Any], names: Iterable[str]) -> Lines:
    return {name: _plain(content[name], name) for name in names if name in content and name not in NO_CONTENT}


def _named(block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name.strip('"'), inner) for name, inner in block.items() if name not in NO_CONTENT)


def _resources(value: Any, local_values: Mapping[str, Any], seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the resources that an expression reads, in locals too."""
    result: set[str] = set()
    for text in _texts(value):
        for target in TARGET.findall(text):
            if not target.startswith("local."):
                result.add(target)
            elif target not in seen and target[6:] in local_values:
                result |= _resources(local_values[target[6:]], local_values, seen | {target})
    return result


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in NO_CONTENT:
                yield name
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _plain(value: Any, name: str = "") -> Any:
    """Return a value of the parser without its marks: quotes of literals, `${` of expressions, comments."""
    if isinstance(value, Mapping):
        kept = {key: inner for key, inner in value.items() if key not in (*NO_CONTENT, "error_message")}
        return {str(_plain(key)): _plain(inner, key) for key, inner in kept.items()}
    if isinstance(value, list):
        inner = [_plain(element) for element in value]
        blocks = bool(value) and all(
            isinstance(element, Mapping) and "__is_block__" in element for element in value
        )
        return inner[0] if blocks and len(inner) == 1 else sorted(inner) if name in UNORDERED else inner
    if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
        return " ".join(value[2:-1].split())
    return (
        value[1:-1].replace('\\"', '"')
        if isinstance(value, str) and value[:1] == value[-1:] == '"'
        else value
    )


@cache
def _parsed(text: str) -> Any:
    import hcl2  # takes half a second

    return hcl2.loads(text)
