"""Finds the git repository of a folder and its commit by reading files; refuses one that leads elsewhere.

What git itself reads of it, it reads in a repository of its own that borrows the objects.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

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


DIFF_LIMIT = 1024 * 1024
"""Most characters of a diff in run.json."""
TIMEOUT = 30.0
"""Seconds for all that git does."""
BIG_FILE = 16 * 1024 * 1024
"""Bytes from which on a file is compared as a binary one."""
MOST_NAMES = 16 * 1024 * 1024
"""Bytes of the names of a commit's files: a few small trees, in each other, may stand for billions."""


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
            cwd="/",
            env=environment,
            capture_output=True,
            timeout=10,
            check=False,
        )
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


class Blob(NamedTuple):
    """A file of the commit."""

    hash: str
    size: int


class BorrowingGit:
    """git in a new repository that reads the objects of another."""

    def __init__(self, place: Path, repository: Repository) -> None:
        self._place = place
        self._commit = repository.commit
        self._until = time.monotonic() + TIMEOUT
        (place / "alternate").symlink_to(repository.objects)
        (place / "git/objects/info").mkdir(parents=True)
        (place / "git/refs").mkdir()
        (place / "git/objects/info/alternates").write_text("../../alternate\n")
        (place / "git/HEAD").write_text("ref: refs/heads/none\n")
        (place / "git/config").write_text(
            f"[core]\nrepositoryformatversion = 1\nbare = true\nbigFileThreshold = {BIG_FILE}\n"
            f"[extensions]\nobjectFormat = {repository.algorithm}\n"
        )

    def committed(self, paths: Sequence[str]) -> dict[str, Blob]:
        """Return those files that the commit has."""
        lines = [f"{self._commit}^{{commit}}", *(f"{self._commit}:{path}" for path in paths)]
        answer = self._run(
            "cat-file",
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
            stdin=os.fsencode("\n".join(lines) + "\n"),
        )
        commit, *files = os.fsdecode(answer).splitlines()
        if not commit.startswith("commit ") or len(files) != len(paths):
            raise UnreadError("git cannot read the commit")
        hashes = zip(paths, files, strict=True)
        blobs = {path: line.split() for path, line in hashes if line.startswith("blob ")}
        return {path: Blob(name, int(size)) for path, (_, name, size) in blobs.items()}

    def names(self, folder: str) -> list[str]:
        """Return the sorted paths below a folder of the commit, of files and submodules; "" for all."""
        commit = [str(self._commit), *([folder] if folder else [])]
        command = ["git", "--literal-pathspecs", "ls-tree", "-r", "-z", "--name-only", *commit]
        try:
            git = subprocess.Popen(
                command,
                cwd=self._place,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise UnreadError("git cannot be started") from error
        end = threading.Timer(max(0.0, self._until - time.monotonic()), git.kill)
        end.start()
        with git:
            answer = git.stdout.read(MOST_NAMES + 1) if git.stdout else b""
            if len(answer) > MOST_NAMES:
                git.kill()
        end.cancel()
        if git.returncode:
            raise UnreadError("git cannot list the files of the commit, or they are too many")
        return sorted(os.fsdecode(answer).rstrip("\0").split("\0"))

    def diff(self, changed: Mapping[str, tuple[str, bytes]]) -> str:
        """Return the difference of committed files, named by their hashes, and other bytes."""
        if not changed:
            return ""
        self._run("fast-import", "--quiet", stdin=b"".join(_two_commits(changed)))
        switches = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-cr-at-eol")
        answer = self._run("diff-tree", "-p", *switches, "refs/heads/old", "refs/heads/new")
        return answer[: 4 * DIFF_LIMIT].decode("utf-8", "replace")[:DIFF_LIMIT]

    def _run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        try:
            return subprocess.run(
                ["git", *arguments],  # noqa: S607  the git of the user's PATH
                input=stdin,
                cwd=self._place,
                env=self._environment(),
                capture_output=True,
                timeout=max(0.0, self._until - time.monotonic()),
                check=True,
            ).stdout
        except FileNotFoundError as error:
            raise UnreadError("git is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise UnreadError(f"git took longer than {TIMEOUT:.0f} s") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise UnreadError("git cannot read its objects") from error

    def _environment(self) -> dict[str, str]:
        """Return variables that keep git away from every configuration, the user's own too."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._place),
            "XDG_CONFIG_HOME": str(self._place),
            "GIT_DIR": str(self._place / "git"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }


def _two_commits(changed: Mapping[str, tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield the input of git-fast-import(1) that makes a branch `old` and a branch `new`."""
    author = b"committer tpuctl <tpuctl> 0 +0000\ndata 0\n"
    yield b"commit refs/heads/old\n" + author
    for path, (committed, _) in changed.items():
        yield b"M 100644 %s %s\n" % (committed.encode(), _quoted(path))
    yield b"\ncommit refs/heads/new\n" + author + b"from refs/heads/old\n"
    for path, (_, data) in changed.items():
        yield b"M 100644 inline %s\ndata %d\n" % (_quoted(path), len(data))
        yield data + b"\n"


def _quoted(path: str) -> bytes:
    return b'"%s"' % os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def committed_names(repository: Repository, folder: Path) -> list[str]:
    """Return what HEAD has below a folder, as sorted paths from the work tree's top; raises UnreadError."""
    if repository.commit is None:
        return []
    below = folder.relative_to(repository.top).as_posix()
    with tempfile.TemporaryDirectory(prefix="tpuctl-git-") as place:
        return BorrowingGit(Path(place), repository).names("" if below == "." else f"{below}/")
