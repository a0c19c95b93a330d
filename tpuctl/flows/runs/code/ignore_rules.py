"""Decides which files stay at home: rules of .gitignore as git reads them, and of .tpuctlignore on top.

`pathspec` matches the patterns; git itself is not asked, as the configuration of a repository from elsewhere
names programs.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.repository import UnreadError, find
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

GIT, OWN = ".gitignore", ".tpuctlignore"
"""The files of rules; in each folder the lower ones decide first, and those of OWN before all of GIT."""
MOST_BYTES = 1024 * 1024
"""Of a file of rules."""
MOST_RULES = 5000
"""In such a file: each path is compared with each of them."""
_STAR, _FOLDERS = "[^/]*", ".+"
"""What pathspec makes of `*` and of `**`; a rule without a slash begins with the latter, too."""
_MOST_FOLDERS = 4
"""How often the latter may occur: paths have up to a hundred folders, which each is tried with."""


class IgnoreRules:
    """The rules of a project and of the git work tree around it."""

    def __init__(self, root: Path) -> None:
        self._top = _work_tree(root)
        self._prefix = root.relative_to(self._top)
        self._specs: dict[tuple[Path, str], GitIgnoreSpec | None] = {}

    def is_ignored(self, place: Path, *, is_folder: bool, is_needed: bool = False) -> bool:
        """Return whether rules leave out a path below the project's folder; the folder around it travels.

        One that `is_needed`, as generated modules of a package are, stays at home by OWN rules only. Raises
        UsageError for a file of rules that cannot be read as such.
        """
        path = self._prefix / place
        own = self._verdict(OWN, path, is_folder)
        if own is not None:
            return own
        return not is_needed and bool(self._verdict(GIT, path, is_folder))

    def _verdict(self, kind: str, path: Path, is_folder: bool) -> bool | None:
        """Return what the lowest rule says that matches; None if none does."""
        for folder in path.parents:
            spec = self._spec(folder, kind)
            name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
            verdict = spec.check_file(name).include if spec else None
            if verdict is not None:
                return verdict
        return None

    def _spec(self, folder: Path, kind: str) -> GitIgnoreSpec | None:
        if (folder, kind) not in self._specs:
            self._specs[folder, kind] = self._read(folder / kind)
        return self._specs[folder, kind]

    def _read(self, file: Path) -> GitIgnoreSpec | None:
        """Return the rules of a file; none where a link or nothing is in its place, as git does."""
        try:
            with ConfinedFolder(self._top) as top, top.open(PurePosixPath(file.as_posix()).parts) as stream:
                text = stream.read(MOST_BYTES + 1)
        except (NotAFileError, OSError):
            return None
        if len(text) > MOST_BYTES:
            raise UsageError(f"{self._top / file} is larger than 1 MiB.", hint="Write shorter rules.")
        from pathspec import GitIgnoreSpec  # noqa: PLC0415  slow, and many projects have no rules

        lines = text.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")
        if sum(1 for line in lines if line and line[0] != "#") > MOST_RULES:
            raise UsageError(
                f"{self._top / file} has more than {MOST_RULES} rules.", hint="Write fewer ones."
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a pattern such as `[[]`, which is right
                patterns = GitIgnoreSpec.from_lines(lines).patterns
                for pattern in patterns:
                    pattern.regex = _linear(pattern.regex) if pattern.regex else None
            return GitIgnoreSpec(patterns)
        except ValueError as error:
            raise UsageError(
                f"{self._top / file} has a wrong pattern: {error}.", hint="Correct it."
            ) from error


def _linear(regex: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern's expression so that it matches in a time that does not explode with its stars.

    What follows a star is looked for at its first place alone, unless it ends the part of a path: if the rest
    does not match behind that, it matches behind no later one. Raises ValueError for too many `**`.
    """
    if regex.pattern.count(_FOLDERS) > _MOST_FOLDERS:
        raise ValueError(f"it has '**' more than {_MOST_FOLDERS - 1} times")
    source = re.sub(r"(?<!\\)\[\^(?!/)", "[^/", regex.pattern)  # in git, `[!a]` does not match a slash
    first, *between = re.split(r"(?:\[\^/\]\*)+", source)
    if not between:
        return re.compile(source, regex.flags)
    *inner, last = between
    parts = [f"(?>{_STAR}?{text})" if _is_in_part(text) else f"{_STAR}{text}" for text in inner]
    return re.compile("".join([first, *parts, _STAR, last]), regex.flags)


def _is_in_part(text: str) -> bool:
    """Tell whether an expression matches single characters alone, none of them a slash."""
    return not set("/()|").intersection(re.sub(r"\\.", "", text.replace("[^/", "[")))


def _work_tree(root: Path) -> Path:
    """Return the first folder of the git work tree around a project, or the project's own."""
    try:
        repository = find(root)
    except UnreadError:
        repository = None
    return repository.top if repository else root
