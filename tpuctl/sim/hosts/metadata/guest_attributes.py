"""Stores guest attributes: facts that a host publishes, readable through the Cloud TPU API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tpuctl.sim.records import GuestAttribute
from tpuctl.sim.state.private_file import write_private


class GuestAttributes:
    """The attributes of one host, two levels deep, in a JSON file: `{namespace: {key: value}}`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tree(self) -> dict[str, dict[str, str]]:
        """Return all attributes by namespace and key."""
        try:
            tree: dict[str, dict[str, str]] = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        return tree

    def items(self) -> list[GuestAttribute]:
        """Return all attributes in the order in which they were written."""
        return [
            GuestAttribute(namespace, key, value)
            for namespace, values in self.tree().items()
            for key, value in values.items()
        ]

    def put(self, namespace: str, key: str, value: str) -> None:
        """Write one attribute."""
        tree = self.tree()
        tree.setdefault(namespace, {})[key] = value
        self._write(tree)

    def publish(self, attributes: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the content of these namespaces."""
        self._write({**self.tree(), **{name: dict(values) for name, values in attributes.items()}})

    def delete(self, namespace: str, key: str) -> bool:
        """Delete one attribute; returns whether it existed."""
        tree = self.tree()
        if tree.get(namespace, {}).pop(key, None) is None:
            return False
        self._write({name: values for name, values in tree.items() if values})
        return True

    def _write(self, tree: dict[str, dict[str, str]]) -> None:
        write_private(self._path, json.dumps(tree, indent=1).encode())
