"""Installs the packages that the script's header requires, unless the host has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence

from tpuctl.worker import requirements
from tpuctl.worker.preparation import versions
from tpuctl.worker.requirements import Requirement

if TYPE_CHECKING:
    from importlib import metadata

LOCK_FILE = "requirements.lock"
"""The lock file as pip gets it, beside the folder of packages."""
_EXTRA = re.compile(r"""extra[ \t]*==[ \t]*["']([^"']+)["']""")
_DEEPEST = 5
"""Extras that require extras are followed this far."""
_WRONG_HASH = b"DO NOT MATCH THE HASHES"
"""pip's message for a file of another content; it has no exit code of its own for that."""


class PackageError(Exception):
    """The host does not have what the header requires, and pip could not install it."""


def ensure(dependencies: Sequence[str], lock: str, folder: str, log: str) -> str:
    """Install what is missing into `folder` and return the folder for PYTHONPATH, or "" if all is present.

    A requirement counts as present when its distribution, or one with a module of its name, is installed in
    a version that it accepts: TPU images bring builds of TensorFlow under other distribution names. The file
    `lock`, unless empty, is installed whole, and with it nothing else: a dependency that it does not have
    has to be present. pip writes to `log`, and gets no requirement that could be an option.

    Raises PackageError.
    """
    required = _parsed(lambda: [requirements.parse(text) for text in dependencies])
    missing = [requirement for requirement in required if not _is_present(requirement)]
    if lock:
        return _install_lock(lock, missing, folder, log)
    if not missing:
        return ""
    names = ", ".join(map(_named, missing))
    command = ["--target", folder, "--", *(requirement.text for requirement in missing)]
    _install(command, names, log)
    return os.path.abspath(folder)


def _install_lock(lock: str, missing: Sequence[Requirement], folder: str, log: str) -> str:
    with open(lock, encoding="utf-8") as stream:
        locked = _parsed(lambda: requirements.parse_lock(stream.read()))
    names = {requirement.name for requirement in locked}
    unlocked = [_named(requirement) for requirement in missing if requirement.name not in names]
    if unlocked:
        raise PackageError(
            "%s is not on the host and not in %s" % (", ".join(unlocked), os.path.basename(lock))
        )
    path = os.path.join(os.path.dirname(os.path.abspath(folder)), LOCK_FILE)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(requirements.lock_text(locked))
    _install(["--target", folder, "--require-hashes", "-r", path], os.path.basename(lock), log)
    return os.path.abspath(folder)


def _parsed(read: Callable[[], Sequence[Requirement]]) -> Sequence[Requirement]:
    try:
        return read()
    except ValueError as error:
        raise PackageError(str(error)) from None


def _install(arguments: Sequence[str], names: str, log: str) -> None:
    with open(log, "ab") as stream:
        stream.write(("[tpuctl] installing %s\n" % names).encode())
        stream.flush()
        start = stream.tell()
        command = [sys.executable, "-m", "pip", "install", "--no-input", *arguments]
        code = subprocess.call(command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
    if not code:
        return
    with open(log, "rb") as stream:
        stream.seek(start)
        if _WRONG_HASH in stream.read():
            raise PackageError(
                "a file for %s does not have the hash that it should have (see the log)" % names
            )
    raise PackageError("pip could not install %s (exit code %d, see the log)" % (names, code))


def _is_present(requirement: Requirement, depth: int = 0) -> bool:
    if requirement.url or depth > _DEEPEST:
        return False  # pip decides
    version = _installed_version(requirement.name)
    if version is None:
        return not requirement.specifier and not requirement.extras and _has_module(requirement.name)
    extras = (_parsed_extra(requirement.name, extra) for extra in requirement.extras)
    return versions.accepts(requirement.specifier, version) and all(
        child is not None and _is_present(child, depth + 1) for children in extras for child in children
    )


def _named(requirement: Requirement) -> str:
    """A requirement for a message, with the version that does not fulfil it."""
    version = _installed_version(requirement.name)
    if requirement.url or version is None or versions.accepts(requirement.specifier, version):
        return requirement.masked
    return "%s (the host has %s)" % (requirement.masked, version)


def _installed_version(name: str) -> Optional[str]:
    """The version of a distribution, or of another distribution that has the module of this name."""
    distributions = _distributions()
    if name in distributions:
        return distributions[name].version
    module = _module(name)
    for distribution in distributions.values():
        if module in _modules(distribution):
            return distribution.version
    return None


@lru_cache(maxsize=1)
def _distributions() -> Dict[str, metadata.Distribution]:
    """Distributions by their normalized names, the first of each name: it is the one that is imported."""
    from importlib import metadata  # noqa: PLC0415  slow, and most scripts require nothing

    result: Dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a folder that an installation left behind has none
            result.setdefault(requirements.normalized(name), distribution)
    return result


def _modules(distribution: metadata.Distribution) -> Sequence[str]:
    return (distribution.read_text("top_level.txt") or "").split()


def _parsed_extra(name: str, extra: str) -> List[Optional[Requirement]]:
    """What an extra of an installed distribution requires; None for a requirement that cannot be read."""
    distribution = _distributions().get(name)
    children: List[Optional[Requirement]] = []
    for text in (distribution.requires if distribution else None) or ():
        match = _EXTRA.search(text)
        if match and requirements.normalized(match.group(1)) == extra:
            children.append(_readable(text))
    return children


def _readable(text: str) -> Optional[Requirement]:
    try:
        return requirements.parse(text)
    except requirements.RequirementError:
        return None


def _has_module(name: str) -> bool:
    import importlib.util  # noqa: PLC0415  as above

    return importlib.util.find_spec(_module(name)) is not None


def _module(name: str) -> str:
    return name.replace("-", "_")
