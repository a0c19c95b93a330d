"""Gives the script the packages that its header requires: those of the image, the others installed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from typing import IO, Callable, List, Sequence

from tpuctl.host import timing
from tpuctl.host.worker import requirements
from tpuctl.host.worker.preparation import installers, presence
from tpuctl.host.worker.requirements import Requirement


class PackageError(Exception):
    """The host does not have what the header requires, and it could not be installed."""


FOLDER = "packages"
"""Beside the folder of all runs."""


def root_of(attempt_folder: str) -> str:
    """Return the folder of all installed packages, which runs on this host share."""
    return os.path.normpath(os.path.join(attempt_folder, "..", "..", "..", FOLDER))


def ensure(
    dependencies: Sequence[str], lock: str, root: str, log: str, is_own: bool = False, wheelhouse: str = "",
    pins: Sequence[str] = (), find_links: Sequence[str] = (),
) -> str:  # fmt: skip
    """Install what is missing below `root` and return the folder for PYTHONPATH, or "" if all is present.

    A requirement counts as present when its distribution, or one with a module of its name, is installed in
    a version that it accepts: TPU images bring builds of TensorFlow under other distribution names. What is
    installed with it keeps to the versions of the image, unless the packages are the script's `own`: then
    everything that it requires is installed anew. The file `lock`, unless empty, is installed whole, and with
    it nothing else: a dependency that it does not have has to be present. Packages come from the
    folder `wheelhouse` alone, unless it is empty. Packages of `pins`, such as `numpy==1.26.4`, are present in
    this version only, and installed in no other. `find_links` are pages that have packages, too. Tools
    write to `log`, and get no requirement that could be an option.

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
    return _obtain(root, log, names, lines, kept, wheelhouse=wheelhouse, pins=pinned, find_links=find_links)


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
    wheelhouse: str = "", pins: "dict[str, str] | None" = None, find_links: Sequence[str] = (),
) -> str:  # fmt: skip
    order = installers.Order(
        names,
        lines,
        *kept,
        is_locked=is_locked,
        wheelhouse=wheelhouse,
        pins=pins or {},
        find_links=find_links,
    )
    with open(log, "ab") as output:

        def say(text: str) -> None:
            output.write(("[tpuctl] %s\n" % text).encode())
            output.flush()

        def build(folder: str) -> None:
            say("installing %s" % names)
            installers.install(order, folder, output)

        try:
            return obtain(root, _key(order), build, say)
        except installers.InstallError as error:
            raise PackageError(str(error)) from None


def _key(order: "installers.Order") -> str:
    """Return a name for all that decides what is installed; the requirements may hold passwords."""
    wheels = _hashes(order.wheelhouse) if order.wheelhouse else []
    chosen = [order.lines, order.image, order.aliases, order.is_locked, wheels]
    chosen += [each for each in (order.pins, list(order.find_links)) if each]
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


KEPT = 4
"""Folders that stay, the last used first; those that a run uses always do."""
_held: List[IO[bytes]] = []
"""Locks of the folders that this process uses; they end with it."""


def obtain(root: str, key: str, build: Callable[[str], None], say: Callable[[str], None]) -> str:
    """Return the folder `key` below `root`, which `build` fills in another place if it does not exist.

    Of two processes at once one builds and the other waits; a folder has its name once it is complete.
    Whatever `build` raises is raised, and leaves no folder.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    folder = os.path.join(os.path.abspath(root), key)
    lock = _open_lock(folder)
    try:
        if not _is_built(lock, root, folder, build):
            os.utime(folder)
            say("the packages of an earlier run with the same requirements are used")
    except BaseException:
        lock.close()
        raise
    _held.append(lock)
    remove_unused(root)
    return folder


def _is_built(lock: IO[bytes], root: str, folder: str, build: Callable[[str], None]) -> bool:
    """Return with a shared lock on a complete folder, and whether this process has built it."""
    is_built = False
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)  # waits for who builds
        if os.path.isdir(folder):
            return is_built
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another looks at the same time, and one of both builds
            timing.pause()
            continue
        if not os.path.isdir(folder):
            _remove_unfinished(root, os.path.basename(folder))
            _build(root, folder, build)
            is_built = True


def remove_unused(root: str) -> None:
    """Delete all but the last KEPT folders, and what builds that were killed left; none that is in use."""
    names = [name for name in os.listdir(root) if not name.endswith(_LOCK)]
    complete = sorted((name for name in names if _NEW not in name), key=lambda name: _age(root, name))
    for name in [*complete[KEPT:], *(name for name in names if _NEW in name)]:
        folder = os.path.join(root, name)
        with _open_lock(os.path.join(root, name.split(_NEW)[0])) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            gone = tempfile.mktemp(prefix=name.split(_NEW)[0] + _NEW, dir=root)  # noqa: S306  under its lock
            try:
                os.rename(folder, gone)
            except FileNotFoundError:  # another run has deleted it
                continue
            shutil.rmtree(gone, ignore_errors=True)


_LOCK, _NEW = ".lock", ".new-"


def _open_lock(folder: str) -> IO[bytes]:
    return open(folder + _LOCK, "ab")  # stays: a lock file that is deleted locks nobody out


def _build(root: str, folder: str, build: Callable[[str], None]) -> None:
    place = tempfile.mkdtemp(prefix=os.path.basename(folder) + _NEW, dir=root)
    try:
        complete = os.path.join(place, "packages")
        build(complete)
        os.rename(complete, folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _remove_unfinished(root: str, key: str) -> None:
    for name in os.listdir(root):
        if name.startswith(key + _NEW):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _age(root: str, name: str) -> float:
    """A number that is smaller the later a folder was used."""
    try:
        return -os.stat(os.path.join(root, name)).st_mtime
    except FileNotFoundError:
        return 0.0
