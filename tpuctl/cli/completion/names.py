"""Stores the names that commands list, for the completion, by target and by project or bucket."""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.config import Config
from tpuctl.config.files import state_folder
from tpuctl.local.name_cache import NameCache


class ListedNames:
    """The names of nodes, runs and datasets that commands have listed in the last minutes."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = NameCache(state_folder() / "completion" / "names.json")

    def names(self, kind: str) -> list[str]:
        """Return the names of a kind."""
        return self._cache.names(self._scope(kind))

    def replace(self, kind: str, names: Iterable[str]) -> None:
        """Take all names of a kind."""
        self._cache.replace(self._scope(kind), names)

    def add(self, kind: str, name: str) -> None:
        """Take a new name."""
        self._cache.add(self._scope(kind), name)

    def remove(self, kind: str, names: Iterable[str]) -> None:
        """Drop names that no longer exist."""
        self._cache.remove(self._scope(kind), names)

    def _scope(self, kind: str) -> str:
        bucket = self._config.get("data_bucket") if kind == "datasets" else None
        place = self._config.get("project") if kind == "nodes" else bucket or self._config.get("bucket")
        return f"{kind} {self._config.target} {place}"
