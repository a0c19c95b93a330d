"""Packs a program for the hosts as a zip that any python3 runs."""

from __future__ import annotations

import importlib.metadata
import io
import zipfile
from collections.abc import Iterable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from tpuctl import __version__

ENTRY = "import sys\nfrom tpuctl.host.{}.main import main\nsys.exit(main(sys.argv[1:]))\n"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The oldest time of a zip's member: the same source gives the same bytes."""


def program(name: str, libraries: Iterable[str] = ()) -> bytes:
    """Return the program `tpuctl/host/NAME/main.py` with its package; the same source gives the same bytes.

    With it go the modules of `tpuctl/host/`, which the programs share. `libraries` are installed packages in
    pure Python that run on the hosts' Python, which go with their licences.
    """
    host = resources.files("tpuctl").joinpath("host")
    shared = ((member.name, member) for member in host.iterdir() if member.name.endswith(".py"))
    modules = dict([*shared, *_modules(host.joinpath(name), name)])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "__main__.py", ENTRY.format(name).encode())
        _write(archive, "tpuctl/__init__.py", f'__version__ = "{__version__}"\n'.encode())
        for path, member in sorted(modules.items()):
            _write(archive, f"tpuctl/host/{path}", member.read_bytes())
        for library in libraries:
            for path, data in sorted(_library(library)):
                _write(archive, f"{library}/{path}", data)
    return buffer.getvalue()


def _library(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the modules of a package, without its subpackages, and its licences."""
    for member in resources.files(name).iterdir():
        if member.name.endswith(".py"):
            yield member.name, member.read_bytes()
    for path in importlib.metadata.files(name) or ():
        if path.name.startswith("LICENSE"):
            yield path.name, path.read_binary()


def _modules(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield a package's modules with their paths, those of its subpackages too."""
    for member in folder.iterdir():
        name = f"{path}/{member.name}"
        if member.name.endswith(".py"):
            yield name, member
        elif member.joinpath("__init__.py").is_file():
            yield from _modules(member, name)


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
