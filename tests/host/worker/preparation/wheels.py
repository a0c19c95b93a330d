"""Wheels for the tests of what hosts install."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str = "1.0", requires: str = "", modules: str = "") -> Path:
    """Write a wheel with one module that says hello, and return its path."""
    info, path = f"{name}-{version}.dist-info", folder / f"{name}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "WORD = 'hello from the wheel'\n")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        if modules:
            archive.writestr(f"{info}/top_level.txt", modules)
    return path
