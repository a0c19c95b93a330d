"""Reads the commit and the uncommitted changes of a run's code; nothing of the repository is executed.

A repository may come from anywhere, and its configuration names programs: fsmonitor, hooks, filters,
textconv, external diffs. So git never opens the repository. It works in a new, empty one that borrows the
objects, and compares the bytes of the bundle: it reads no file of the work tree, no index, no configuration.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.code.repository import Repository, UnreadError, find
from tpuctl.runs import Git

DIFF_LIMIT = 1024 * 1024
"""Most characters of a diff in run.json."""
TIMEOUT = 30.0
"""Seconds for all that git does."""
BIG_FILE = 16 * 1024 * 1024
"""Bytes from which on a file is compared as a binary one."""
MOST_DIFFERING = 64 * 1024 * 1024
"""Bytes of all files that are compared as texts, and of those in the commit: a few can stand for many."""


@dataclass(frozen=True)
class GitState:
    """What git says about the code of a run."""

    git: Git | None
    """None outside of a work tree, and where the state cannot be read safely."""
    note: str = ""
    """A sentence that says why the state of a work tree is not recorded."""


def git_state(folder: Path, code: Bundle) -> GitState:
    """Return the commit of the work tree around `folder`, and how the bundle's files differ from it.

    `folder` is the one that the names in the bundle start from. Files that the commit lacks are left out.
    """
    try:
        repository = find(folder.resolve())
        if repository is None or repository.commit is None:
            return GitState(None)
        return GitState(Git(repository.commit, _diff(repository, folder.resolve(), code)))
    except UnreadError as error:
        return GitState(None, f"The git commit of {folder} is not recorded: {error}.")


def _diff(repository: Repository, folder: Path, code: Bundle) -> str:
    prefix = folder.relative_to(repository.top).as_posix()
    prefix = "" if prefix == "." else f"{prefix}/"
    with tempfile.TemporaryDirectory(prefix="tpuctl-git-") as place:
        git = _BorrowingGit(Path(place), repository)
        members = (member for member in code.members() if "\n" not in prefix + member[0])
        hashes = {prefix + name: repository.hash(size, stream) for name, size, stream in members}
        committed = git.committed(list(hashes))
        changed = {path: blob for path, blob in committed.items() if blob.hash != hashes[path]}
        contents = _contents(code, prefix, changed)
        return git.diff({path: (changed[path].hash, data) for path, data in contents})


class _Blob(NamedTuple):
    """A file of the commit."""

    hash: str
    size: int


def _contents(code: Bundle, prefix: str, changed: Mapping[str, _Blob]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of some files; for a big one, bytes that differ from it as from any text."""
    rest = MOST_DIFFERING
    for name, size, stream in code.members() if changed else ():
        if prefix + name in changed:
            both = size + changed[prefix + name].size
            is_big = size > BIG_FILE or both > rest
            rest -= 0 if is_big else both
            yield prefix + name, b"\0big" if is_big else stream.read()


class _BorrowingGit:
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

    def committed(self, paths: Sequence[str]) -> dict[str, _Blob]:
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
        return {path: _Blob(name, int(size)) for path, (_, name, size) in blobs.items()}

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
