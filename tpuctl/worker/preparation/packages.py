"""Gives the script the packages that its header requires: those of the image, the others installed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Callable, Sequence

from tpuctl.worker import requirements
from tpuctl.worker.preparation import installers, package_folders, presence
from tpuctl.worker.preparation.errors import PackageError
from tpuctl.worker.requirements import Requirement

FOLDER = "packages"
"""Beside the folder of all runs."""


def root_of(attempt_folder: str) -> str:
    """Return the folder of all installed packages, which runs on this host share."""
    return os.path.normpath(os.path.join(attempt_folder, "..", "..", "..", FOLDER))


def ensure(
    dependencies: Sequence[str], lock: str, root: str, log: str, is_own: bool = False, wheelhouse: str = "",
    pins: Sequence[str] = (),
) -> str:  # fmt: skip
    """Install what is missing below `root` and return the folder for PYTHONPATH, or "" if all is present.

    A requirement counts as present when its distribution, or one with a module of its name, is installed in
    a version that it accepts: TPU images bring builds of TensorFlow under other distribution names. What is
    installed with it keeps to the versions of the image, unless the packages are the script's `own`: then
    everything that it requires is installed anew. The file `lock`, unless empty, is installed whole, and with
    it nothing else: a dependency that it does not have has to be present. Packages come from the
    folder `wheelhouse` alone, unless it is empty. Packages of `pins`, such as `numpy==1.26.4`, are present in
    this version only, and installed in no other. Tools write to `log`, and get no
    requirement that could be an option.

    Raises PackageError, and OSError for a disk without space.
    """
    required = _parsed(lambda: [requirements.parse(text) for text in dependencies])
    pinned = _versions(pins)
    missing = [requirement for requirement in required if is_own or not _is_present(requirement, pinned)]
    if lock:
        return _install_lock(lock, missing, root, log, wheelhouse)
    if not missing:
        return ""
    names = ", ".join(map(presence.described, missing))
    lines, kept = [requirement.text for requirement in missing], _kept(missing, is_own)
    return _obtain(root, log, names, lines, kept, wheelhouse=wheelhouse, pins=pinned)


def _versions(pins: Sequence[str]) -> "dict[str, str]":
    """Name -> version of pins; raises PackageError."""
    pinned = {}
    for requirement in _parsed(lambda: [requirements.parse(text) for text in pins]):
        if not requirement.specifier.startswith("=="):
            raise PackageError("'%s' does not pin a version" % requirement.masked)
        pinned[requirement.name] = requirement.specifier.lstrip("= ")
    return pinned


def _is_present(requirement: Requirement, pinned: "dict[str, str]") -> bool:
    """Whether the image fulfils a requirement, in the version that it is pinned to."""
    version = pinned.get(requirement.name)
    is_other = version is not None and presence.installed_version(requirement.name) != version
    return not is_other and presence.is_present(requirement)


def _install_lock(lock: str, missing: Sequence[Requirement], root: str, log: str, wheelhouse: str) -> str:
    with open(lock, encoding="utf-8") as stream:
        locked = _parsed(lambda: requirements.parse_lock(stream.read()))
    names = {requirement.name for requirement in locked}
    unlocked = [presence.described(requirement) for requirement in missing if requirement.name not in names]
    if unlocked:
        raise PackageError(
            "%s is not on the host and not in %s" % (", ".join(unlocked), os.path.basename(lock))
        )
    lines = requirements.lock_text(locked).splitlines()
    return _obtain(root, log, os.path.basename(lock), lines, ({}, {}), is_locked=True, wheelhouse=wheelhouse)


def _kept(missing: Sequence[Requirement], is_own: bool) -> "tuple[dict[str, str], dict[str, str]]":
    """Return the versions that stay, of the image and of aliases; not what the header asks for itself."""
    if is_own:
        return {}, {}
    anew = {requirement.name for requirement in missing}
    image, aliases = presence.image_versions(), presence.aliases()
    return (
        {name: version for name, version in image.items() if name not in anew},
        {name: version for name, version in aliases.items() if name not in anew},
    )


def _obtain(
    root: str, log: str, names: str, lines: Sequence[str],
    kept: "tuple[dict[str, str], dict[str, str]]", is_locked: bool = False,
    wheelhouse: str = "", pins: "dict[str, str] | None" = None,
) -> str:  # fmt: skip
    order = installers.Order(names, lines, *kept, is_locked=is_locked, wheelhouse=wheelhouse, pins=pins or {})
    with open(log, "ab") as output:

        def say(text: str) -> None:
            output.write(("[tpuctl] %s\n" % text).encode())
            output.flush()

        def build(folder: str) -> None:
            say("installing %s" % names)
            installers.install(order, folder, output)

        try:
            return package_folders.obtain(root, _key(order), build, say)
        except installers.InstallError as error:
            raise PackageError(str(error)) from None


def _key(order: "installers.Order") -> str:
    """Return a name for all that decides what is installed; the requirements may hold passwords."""
    wheels = _hashes(order.wheelhouse) if order.wheelhouse else []
    chosen = [order.lines, order.image, order.aliases, order.is_locked, wheels]
    chosen += [order.pins] if order.pins else []
    content = json.dumps([chosen, sys.version, sys.executable, sys.prefix])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _hashes(wheelhouse: str) -> "list[tuple[str, str]]":
    """Name and hash of each file of a folder; the folder itself is another one in each run."""
    hashes = []
    for name in sorted(os.listdir(wheelhouse)):
        digest = hashlib.sha256()
        with open(os.path.join(wheelhouse, name), "rb") as stream:
            for part in iter(lambda: stream.read(1 << 20), b""):
                digest.update(part)
        hashes.append((name, digest.hexdigest()))
    return hashes


def _parsed(read: Callable[[], Sequence[Requirement]]) -> Sequence[Requirement]:
    try:
        return read()
    except ValueError as error:
        raise PackageError(str(error)) from None
