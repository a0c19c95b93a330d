"""Writes a file that only this user can read, in one step: a killed simulator leaves no partial file."""

from __future__ import annotations

from pathlib import Path

from tpuctl.atomic_files import PRIVATE, replace_file


def write_private(path: Path, content: bytes) -> None:
    """Make `content` the content of `path`, mode 0600."""
    replace_file(path, [content], mode=PRIVATE)
