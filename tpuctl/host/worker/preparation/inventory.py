"""Lists the packages that the script can import, by the names of files: their metadata is not parsed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Dict, List, Mapping, Sequence, Tuple

from tpuctl.host.worker.preparation.steps import Prepared
from tpuctl.host.worker.requirements import normalized

MOST = 5000
"""Packages of a kind that are listed."""
_LARGEST = 4096
"""Bytes that are read of a file of metadata."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}")
"""Of a package: anything else is left over from an installation."""
_VERSION = re.compile(rb"^Version: *([^\r\n]{1,200})", re.MULTILINE)


def record(prepared: Prepared, variables: Mapping[str, str]) -> bytes:
    """Return environment.json of a script with these variables.

    A folder is searched before those after it, as Python does: of two versions the first counts.
    """
    host, installed = os.uname(), prepared.packages
    python, implementation, inherited = _python(prepared.python, variables)
    own: Dict[str, str] = {}
    image: Dict[str, str] = {}
    urls: Dict[str, str] = {}
    for path in _path(installed, variables, inherited):
        found, places = _packages(path)
        target = own if installed and path == installed else image
        for name, version in found.items():
            if name not in own and name not in image and len(target) < MOST:
                target[name] = version
                if name in places:
                    urls[name] = places[name]
    content = {
        "python": python, "implementation": implementation,
        "system": host.sysname, "release": host.release, "processor": host.machine,
        "installed": own, "image": image, "urls": urls, "schema": 1,
    }  # fmt: skip
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"


_QUESTION = (
    "import json, sys; print(json.dumps([sys.version.split()[0], sys.implementation.name, sys.path[1:]]))"
)


def _python(python: str, variables: Mapping[str, str]) -> "Tuple[str, str, List[str]]":
    """Version, implementation and search path of the script's interpreter."""
    if python:
        command, environment = [python, "-c", _QUESTION], dict(variables)
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, cwd="/", check=False)
        try:
            version, implementation, path = json.loads(answer.stdout)
        except ValueError:  # a sitecustomize of the user's that prints
            return "", "", []
        return version, implementation, path
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [path for path in sys.path if path not in own]
    return sys.version.split()[0], sys.implementation.name, path


def _path(installed: str, variables: Mapping[str, str], inherited: Sequence[str]) -> List[str]:
    """The folders that the script imports from, those of this program excepted."""
    given = variables.get("PYTHONPATH", "").split(os.pathsep)
    paths = [path for path in [installed, *given, *inherited] if path]
    return list(dict.fromkeys(path for path in paths if os.path.isdir(path)))


def _packages(folder: str) -> "Tuple[Dict[str, str], Dict[str, str]]":
    """Return name -> version, and name -> address of those that come from no index."""
    found: Dict[str, str] = {}
    places: Dict[str, str] = {}
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return found, places
    for entry in entries:
        stem, extension = os.path.splitext(entry)
        if extension not in (".dist-info", ".egg-info"):
            continue
        path = os.path.join(folder, entry)
        is_wheel = extension == ".dist-info"
        name, version = _parsed(stem) if is_wheel else (stem.partition("-")[0], _version_in(path))
        if _NAME.fullmatch(name) and _RELEASE.fullmatch(version):
            name = normalized(name)
            found.setdefault(name, version)
            address = _address(path) if is_wheel else ""
            if address:
                places[name] = address
    return found, places


def _parsed(stem: str) -> "Tuple[str, str]":
    """Name and version of a folder of metadata: a version has no dash (PEP 427)."""
    name, _, version = stem.rpartition("-")
    return name, version


def _version_in(path: str) -> str:
    """The version of an egg, which is a file or a folder of metadata; empty for none."""
    file = os.path.join(path, "PKG-INFO") if os.path.isdir(path) else path
    match = _VERSION.search(_read(file))
    return match.group(1).decode("utf-8", "replace").strip() if match else ""


def _address(path: str) -> str:
    """Where a package is from (PEP 610), without user, password and query; empty for one of an index."""
    file = os.path.join(path, "direct_url.json")
    if not os.path.exists(file):
        return ""
    try:
        content = json.loads(_read(file))
        address, source = str(content["url"]), content.get("vcs_info") or {}
        commit = "@%s" % source["commit_id"] if source.get("commit_id") else ""
        prefix = "%s+" % source["vcs"] if source.get("vcs") else ""
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return ""
    address = re.sub("//[^/@]*@", "//", re.sub("[?#].*", "", address))
    return (prefix + address + commit)[:_LARGEST].encode("utf-8", "replace").decode()


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(_LARGEST)
    except OSError:
        return b""
