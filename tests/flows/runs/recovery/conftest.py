"""Fixtures: worlds in which watchers crash."""

from tests.crashes.conftest import world, worlds

__all__ = ["world", "worlds"]
