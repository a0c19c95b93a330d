"""Finds the git repository of a folder and its commit by reading files; refuses one that leads elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError

_REFERENCE = re.compile(r"ref: (refs/[^\0-\x20\x7f~^:?*\[\\]+)\s*")
_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_LONGEST = 16 * 1024
"""Bytes of a file with one reference or path."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of packed-refs; a repository with a million branches has as many."""
_PART = 1024 * 1024
"""Bytes of a file that are read at once."""
_MOST_REFERENCES = 5
"""References that name each other, as git counts them."""


class UnreadError(Exception):
    """The state of a repository is not recorded; the text is the reason."""


@dataclass(frozen=True)
class Repository:
    """A repository of this user, all of whose objects are its own."""

    top: Path
    """The work tree's first folder."""
    objects: Path
    commit: str | None
    """The hash of the commit that the work tree is at, None before the first one."""

    @property
    def algorithm(self) -> str:
        """The hash function of the repository's names, as git calls it."""
        return "sha256" if len(self.commit or "") == 64 else "sha1"

    def hash(self, size: int, stream: BinaryIO) -> str:
        """Return the name of a file's content of `size` bytes."""
        digest = hashlib.new(self.algorithm, b"blob %d\0" % size, usedforsecurity=False)
        while part := stream.read(_PART):
            digest.update(part)
        return digest.hexdigest()


def find(folder: Path) -> Repository | None:
    """Return the repository whose work tree `folder` is in, or None outside of one.

    Raises UnreadError for a repository of another user and for one that reads the files of another.
    """
    try:
        return next(filter(None, map(_repository, (folder, *folder.parents))), None)
    except OSError as error:
        raise UnreadError(f"{error.filename} cannot be read") from error
    except ValueError as error:  # a null byte in a path
        raise UnreadError("a path in it is not valid") from error


def _repository(top: Path) -> Repository | None:
    mark = top / ".git"
    if mark.is_symlink():
        raise UnreadError(f"{mark} is a symbolic link")
    if mark.is_file():
        own, common = _linked(mark)
    elif (mark / "HEAD").is_file():
        own, common = mark, mark
    else:
        return None
    _check_owner(top, mark, own, common)
    _check_objects(common / "objects")
    return Repository(top, common / "objects", _commit(own, common))


def _linked(mark: Path) -> tuple[Path, Path]:
    """Return the repository that a file `.git` names, and the one that it shares objects and branches with.

    Both must name this work tree, too, or the file could name any repository of the user. Format of worktrees
    and submodules: gitrepository-layout(5).
    """
    text = _read(mark.parent, mark.name).removeprefix("gitdir: ").strip()
    own = (mark.parent / text).resolve()
    if own.parent.name == "worktrees" and (own / "gitdir").is_file():
        back = (own / _read(own, "gitdir").strip()).resolve()
        if back == mark.resolve():
            return own, own.parent.parent
    elif (own / "config").is_file() and _work_tree_of(own) == mark.parent.resolve():
        return own, own
    raise UnreadError(f"{mark} names the repository {own}, which does not name this folder")


def _work_tree_of(repository: Path) -> Path | None:
    """Return the folder that a submodule's configuration names; git only parses the file."""
    answer = _git_config("--file", str(repository / "config"), "--no-includes", "--get", "core.worktree")
    return (repository / answer[0]).resolve() if answer else None


def _check_owner(*places: Path) -> None:
    """Raise UnreadError for another user's repository, as git itself refuses it (CVE-2022-24765)."""
    users = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        users.add(int(os.environ["SUDO_UID"]))
    strange = [place for place in places if place.lstat().st_uid not in users]
    if strange and not {"*", str(places[0])}.intersection(_safe_folders()):
        raise UnreadError(f"{strange[0]} belongs to another user")


def _safe_folders() -> list[str]:
    """Return the folders that the user's own configuration declares safe."""
    return _git_config("--global", "--get-all", "safe.directory")


def _git_config(*arguments: str) -> list[str]:
    """Return the lines that `git config` prints outside of every repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.run(
            ["git", "config", *arguments],  # noqa: S607  the git of the user's PATH
            cwd="/", env=environment, capture_output=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return os.fsdecode(process.stdout).splitlines()


def _check_objects(objects: Path) -> None:
    """Raise UnreadError if objects come from elsewhere, as those of a private repository, or from a pipe."""
    if objects.is_symlink():
        raise UnreadError(f"{objects} is a symbolic link")
    if (objects / "info/alternates").exists():
        raise UnreadError("it borrows objects of another repository")
    folders = [objects]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise UnreadError(f"{entry.path} is a symbolic link")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    raise UnreadError(f"{entry.path} is no file")


def _commit(own: Path, common: Path) -> str | None:
    """Return the hash that HEAD leads to, None for a branch without a commit."""
    text = _read(own, "HEAD")
    for _ in range(_MOST_REFERENCES):
        if _HASH.fullmatch(text.strip()):
            return text.strip()
        reference = _REFERENCE.fullmatch(text)
        if not reference or ".." in reference[1] or "//" in reference[1]:
            break
        name = reference[1]
        loose = [place for place in (own, common) if os.path.lexists(place / name)]
        packed = "" if loose else _packed(common, name)
        if not loose and not packed:
            if (common / "reftable").exists():
                break
            return None
        text = _read(loose[0], name) if loose else packed
    raise UnreadError("the format of its references is not known")


def _packed(common: Path, name: str) -> str:
    """Return the hash of a reference in packed-refs, or nothing."""
    if not os.path.lexists(common / "packed-refs"):
        return ""
    lines = _read(common, "packed-refs", _MOST_BYTES).splitlines()
    return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == name), "")


def _read(folder: Path, name: str, most: int = _LONGEST) -> str:
    """Return the text of a small file below a folder; no link below it is followed."""
    try:
        with ConfinedFolder(folder) as confined, confined.open(name.split("/")) as stream:
            data = stream.read(most + 1)
        if len(data) > most:
            raise UnreadError(f"{folder / name} is larger than such a file is")
        return os.fsdecode(data)
    except (NotAFileError, OSError) as error:
        raise UnreadError(f"{folder / name} cannot be read safely") from error
