"""The fields of a node that requests may set: checked on create, and replaced by an update's mask."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence

from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.resources import NodeFields, node_fields

MOST_LABELS = 64
MOST_CHARACTERS = 63
MOST_BYTES = 128
LETTERS = frozenset({"Ll", "Lo"})
"""Unicode categories: small letters, and those of scripts without capitals."""
CHARACTERS = LETTERS | {"Nd", "Nl", "No"}
UPDATABLE: dict[str, Callable[[NodeFields], NodeFields]] = {
    "description": lambda sent: {"description": sent.get("description", "")},
    "labels": lambda sent: {"labels": sent.get("labels", {})},
    "metadata": lambda sent: {"metadata": sent.get("metadata", {})},
    "tags": lambda sent: {"tags": sent.get("tags", [])},
    "data_disks": lambda sent: {"dataDisks": sent.get("dataDisks", [])},
    "network_config.enable_external_ips": lambda sent: {
        "networkConfig": {"enableExternalIps": sent.get("networkConfig", {}).get("enableExternalIps", False)}
    },
}
"""Path that an update's mask may name -> the new value, a default when the request leaves it out."""

MAX_DESCRIPTION = 512


def checked(zone: str, sent: Mapping[str, object]) -> NodeFields:
    """Return the fields of a node as sent, its accelerator filled in; raises INVALID_ARGUMENT."""
    spec = node_fields(sent)
    accelerator = availability.requested_accelerator(zone, spec)
    _check(spec, accelerator.hosts)
    availability.require_runtime_version(spec.get("runtimeVersion", ""))
    return {
        **spec,
        "acceleratorType": accelerator.type,
        "acceleratorConfig": {
            "type": availability.CONFIG_TYPES[accelerator.generation],
            "topology": accelerator.topology,
        },
    }


def changes(sent: Mapping[str, object], mask: Sequence[str], *, hosts: int) -> NodeFields:
    """Return the new values of the fields in an update's mask; raises INVALID_ARGUMENT."""
    unknown = [path for path in mask if path not in UPDATABLE]
    if unknown or not mask:
        paths = ", ".join(unknown) or "it is empty"
        raise api_error("bad_mask", paths=paths, updatable=", ".join(UPDATABLE))
    changed: NodeFields = {}
    for path in mask:
        changed.update(UPDATABLE[path](node_fields(sent)))
    _check(changed, hosts)
    return changed


def without_external_ips(fields: NodeFields) -> NodeFields:
    """Return fields that ask for no external addresses, whatever they asked for."""
    inside: NodeFields = {**fields}
    if "networkConfig" in fields:
        inside["networkConfig"] = {**fields["networkConfig"], "enableExternalIps": False}
    if "networkConfigs" in fields:
        inside["networkConfigs"] = [
            {**network, "enableExternalIps": False} for network in fields["networkConfigs"]
        ]
    return inside


def _check(spec: NodeFields, hosts: int) -> None:
    check(spec.get("labels", {}))
    if len(spec.get("description", "")) > MAX_DESCRIPTION:
        raise api_error("bad_field", reason=f"description has more than {MAX_DESCRIPTION} characters")
    if spec.get("networkConfig") and spec.get("networkConfigs"):
        raise api_error("bad_field", reason="network_config and network_configs are mutually exclusive")
    if len(spec.get("networkConfigs", [])) > 1:
        raise api_error("unimplemented", feature="nodes with several networks")
    if hosts > 1 and any(disk.get("mode") == "READ_WRITE" for disk in spec.get("dataDisks", [])):
        raise api_error("bad_field", reason="a data disk of a slice of several hosts is read-only")


# Checks labels as Google Cloud does: https://cloud.google.com/compute/docs/labeling-resources#requirements.


def check(labels: Mapping[str, str]) -> None:
    """Raise INVALID_ARGUMENT for labels that no resource of Google Cloud can have."""
    if len(labels) > MOST_LABELS:
        raise api_error("many_labels", count=len(labels), most=MOST_LABELS)
    for key, value in labels.items():
        problem = _problem_of_key(key)
        if problem:
            raise api_error("label_key", key=_quoted(key), problem=problem)
        problem = _problem(value)
        if problem:
            raise api_error("label_value", key=_quoted(key), value=_quoted(value), problem=problem)


def _problem_of_key(key: str) -> str:
    if not key:
        return "cannot be empty"
    is_letter = unicodedata.category(key[0]) in LETTERS
    return _problem(key) or ("" if is_letter else "must start with a lowercase letter")


def _problem(text: str) -> str:
    """Return what is wrong with a key or value, '' if nothing is."""
    for index, letter in enumerate(text):
        if unicodedata.category(letter) not in CHARACTERS and letter not in "_-":
            return f"contains invalid character '{letter}' at index {index}"
    if len(text) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS} characters"
    return f"is longer than {MOST_BYTES} bytes" if len(text.encode()) > MOST_BYTES else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
