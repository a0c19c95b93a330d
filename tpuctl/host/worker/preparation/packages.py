"""Gives the script the packages that its header requires: those of the image, the others installed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from typing import IO, Callable, List, Mapping, Sequence

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
    pins: Sequence[str] = (), python: str = "", constraints: Sequence[str] = (), sources: Sequence[str] = (),
) -> str:  # fmt: skip
    """Install what is missing below `root` and return the folder for PYTHONPATH, or "" if all is present.

    A requirement counts as present when its distribution, or one with a module of its name, is installed in
    a version that it accepts: TPU images bring builds of TensorFlow under other distribution names. What is
    installed with it keeps to the versions of the image, unless the packages are the script's `own`: then
    everything that it requires is installed anew. The file `lock`, unless empty, is installed whole, and with
    it nothing else: a dependency that it does not have has to be present. Packages come from the
    folder `wheelhouse` alone, unless it is empty. Packages of `pins`, such as `numpy==1.26.4`, are present in
    this version only, and installed in no other; `constraints` hold for what is installed. Packages come from
    `sources`, too. Packages are for the interpreter `python`, by default
    this one. Tools write to `log`, and get no requirement that could be an option.

    Raises PackageError, and OSError for a disk without space.
    """
    required = _parsed(lambda: [requirements.parse(text) for text in dependencies])
    pinned = _versions(pins)
    missing = [requirement for requirement in required if is_own or not _is_present(requirement, pinned)]
    if lock:
        return _install_lock(lock, missing, root, log, wheelhouse, python)
    if not missing:
        return ""
    names = ", ".join(map(presence.described, missing))
    limits = _parsed(lambda: [requirements.parse(text) for text in constraints])
    order = _order(names, missing, is_own)._replace(
        wheelhouse=wheelhouse,
        pins=pinned,
        other_python=python,
        origins=_origins(sources),
        limits=[limit.text for limit in limits],
    )
    return _obtain(root, log, order)


def _origins(sources: Sequence[str]) -> Sequence[str]:
    """Return options for pip's requirements file; raises PackageError for any other."""
    for source in sources:
        if not requirements.SOURCE.fullmatch(source):
            raise PackageError("'%s' is no place of packages" % requirements.shown(source))
    return sources


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


def _install_lock(
    lock: str, missing: Sequence[Requirement], root: str, log: str, wheelhouse: str, python: str
) -> str:
    with open(lock, encoding="utf-8") as stream:
        locked = _parsed(lambda: requirements.parse_lock(stream.read()))
    names = {requirement.name for requirement in locked}
    unlocked = [presence.described(requirement) for requirement in missing if requirement.name not in names]
    if unlocked:
        raise PackageError(
            "%s is not on the host and not in %s" % (", ".join(unlocked), os.path.basename(lock))
        )
    lines = requirements.lock_text(locked).splitlines()
    order = installers.Order(
        os.path.basename(lock), lines, is_locked=True, wheelhouse=wheelhouse, other_python=python
    )
    return _obtain(root, log, order)


def _order(names: str, missing: Sequence[Requirement], is_own: bool) -> "installers.Order":
    """Return the order for what is missing: of the image the frameworks stay, but what the header names."""
    order = installers.Order(names, [requirement.text for requirement in missing])
    if is_own:
        return order
    anew = {requirement.name for requirement in missing}

    def stays(versions: "dict[str, str]") -> "dict[str, str]":
        return {name: version for name, version in versions.items() if name not in anew}

    return order._replace(
        image=stays(presence.image_versions()),
        held=stays(presence.framework_versions()),
        aliases=stays(presence.aliases()),
    )


def _obtain(root: str, log: str, order: "installers.Order") -> str:
    with open(log, "ab") as output:

        def say(text: str) -> None:
            output.write(("[tpuctl] %s\n" % text).encode())
            output.flush()

        def build(folder: str) -> None:
            say("installing %s" % order.names)
            if order.held:
                say("what the frameworks of the host's image need stays: %s" % _listed(order.held))
            older = installers.install(order, folder, output)
            for name, (version, newest) in sorted(older.items()):
                say("%s is %s and not %s, because of that" % (name, version, newest))

        try:
            return obtain(root, _key(order), build, lambda: say(_REUSED))
        except installers.InstallError as error:
            raise PackageError(str(error)) from None


_REUSED = "the packages of an earlier run with the same requirements are used"


def _listed(versions: "Mapping[str, str]") -> str:
    """Frameworks first, and the number of the others."""
    named = [name for name in sorted(versions) if presence.is_framework(name)]
    more = len(versions) - len(named)
    words = ["%s %s" % (name, versions[name]) for name in named] + (["%d more" % more] if more else [])
    return ", ".join(words)


def _key(order: "installers.Order") -> str:
    """Return a name for all that decides what is installed; the requirements may hold passwords."""
    wheels = _hashes(order.wheelhouse) if order.wheelhouse else []
    chosen = [order.lines, *map(dict, (order.image, order.held, order.aliases)), order.is_locked, wheels]
    chosen += [dict(order.pins), list(order.origins), list(order.limits)]
    content = json.dumps([chosen, sys.version, order.python, sys.prefix])
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


def obtain(root: str, key: str, build: Callable[[str], None], reused: Callable[[], None]) -> str:
    """Return the folder `key` below `root`, which `build` fills in another place if it does not exist.

    One that exists is told by `reused`.

    Of two processes at once one builds and the other waits; a folder has its name once it is complete.
    Whatever `build` raises is raised, and leaves no folder.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    folder = os.path.join(os.path.abspath(root), key)
    lock = _open_lock(folder)
    try:
        if not _is_built(lock, root, folder, build):
            os.utime(folder)
            reused()
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
