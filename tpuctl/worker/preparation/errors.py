"""What ends the preparation of a host."""

from __future__ import annotations


class PackageError(Exception):
    """The host does not have what the header requires, and it could not be installed."""
