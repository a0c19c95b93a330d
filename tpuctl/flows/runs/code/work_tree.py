"""Reads the commit and the uncommitted changes of a run's code; nothing of the repository is executed.

A repository may come from anywhere, and its configuration names programs: fsmonitor, hooks, filters,
textconv, external diffs. So git never opens the repository. It works in a new, empty one that borrows the
objects, and compares the bytes of the bundle: it reads no file of the work tree, no index, no configuration.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.code.repository import BIG_FILE, Blob, BorrowingGit, Repository, UnreadError, find
from tpuctl.runs import Git

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
        git = BorrowingGit(Path(place), repository)
        hashes = {
            prefix + member.name: repository.hash(member.size, stream)
            for member, stream in code.members()
            if "\n" not in prefix + member.name
        }
        committed = git.committed(list(hashes))
        changed = {path: blob for path, blob in committed.items() if blob.hash != hashes[path]}
        contents = _contents(code, prefix, changed)
        return git.diff({path: (changed[path].hash, data) for path, data in contents})


def _contents(code: Bundle, prefix: str, changed: Mapping[str, Blob]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of some files; for a big one, bytes that differ from it as from any text."""
    rest = MOST_DIFFERING
    for member, stream in code.members() if changed else ():
        path = prefix + member.name
        if path in changed:
            both = member.size + changed[path].size
            is_big = member.size > BIG_FILE or both > rest
            rest -= 0 if is_big else both
            yield path, b"\0big" if is_big else stream.read()
