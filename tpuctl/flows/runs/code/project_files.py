"""Lists and reads the files of a script's folder or project; no symbolic link out of it is followed."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import tarfile
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.repository import Repository, UnreadError, committed_names, find
from tpuctl.job_header import LONGEST_SCRIPT
from tpuctl.local.confined_folder import ConfinedFolder, NotAFileError
from tpuctl.masking import COPY_SUFFIXES, KEY_SUFFIXES, credential_kind

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
        self.repository = _repository(root)
        """That around the project; None outside of one, and where it cannot be read safely."""
        self._top = self.repository.top if self.repository else root
        self._prefix = root.relative_to(self._top)
        self._specs: dict[tuple[Path, str], GitIgnoreSpec | None] = {}
        self._committed: dict[Path, list[str]] = {}

    def is_ignored(self, place: Path, *, is_folder: bool, is_needed: bool = False) -> bool:
        """Return whether rules leave out a path below the project's folder; the folder around it travels.

        One that `is_needed`, as generated modules of a package are, stays at home by OWN rules only. Raises
        UsageError for a file of rules that cannot be read as such.
        """
        path = self._prefix / place
        own = self._verdict(OWN, path, is_folder)
        if own is not None:
            return own
        return not is_needed and bool(self._verdict(GIT, path, is_folder)) and not self._is_committed(path)

    def is_submodule(self, place: Path) -> bool:
        """Return whether HEAD has a folder below the project's, and nothing below that."""
        path = self._prefix / place
        return self._is_committed(path) and not self._has(path, "/")

    def _is_committed(self, path: Path) -> bool:
        """Return whether HEAD of the work tree around a path has it, or something below it."""
        return self._has(path, "") or self._has(path, "/")

    def _has(self, path: Path, end: str) -> bool:
        """Return whether it has the path, or with '/' as its end something below."""
        top = next((folder for folder in path.parents if self._is_top(folder)), Path())
        if top not in self._committed:
            self._committed[top] = self._read_commit(top)
        names, text = self._committed[top], path.relative_to(top).as_posix() + end
        at = bisect_left(names, text)
        return at < len(names) and (names[at].startswith(text) if end else names[at] == text)

    def _read_commit(self, top: Path) -> list[str]:
        """Return the sorted names in HEAD of a work tree, of what is below the project's folder."""
        try:
            repository = find(self._top / top) if top.parts else self.repository
            return committed_names(repository, repository.top / self._below(top)) if repository else []
        except UnreadError:
            return []

    def _below(self, top: Path) -> Path:
        return self._prefix if not top.parts else Path()

    def _is_top(self, folder: Path) -> bool:
        """Return whether a folder below the top is the first one of a work tree: of a submodule."""
        return bool(folder.parts) and os.path.lexists(self._top / folder / ".git")

    def _verdict(self, kind: str, path: Path, is_folder: bool) -> bool | None:
        """Return what the lowest rule says that matches; None if none does."""
        for folder in path.parents:
            spec = self._spec(folder, kind)
            name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
            verdict = spec.check_file(name).include if spec else None
            if verdict is not None:
                return verdict
            if kind == GIT and self._is_top(folder):
                return None  # a submodule has rules of its own
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


def _repository(root: Path) -> Repository | None:
    try:
        return find(root)
    except UnreadError:
        return None


SKIPPED = frozenset({
    "__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints",
    ".tox", ".nox", "node_modules",
})  # fmt: skip
"""Folders that never travel, also where a link leads into one."""
_ENVIRONMENT = "pyvenv.cfg"
"""The file that makes a folder a virtual environment (PEP 405)."""
_PULLED = ("run.json", "attempts")
"""What a folder of 'tpuctl pull' holds."""
_LARGEST_KEY = 1024 * 1024
"""Bytes of a file that may hold a key."""
MOST_FILES = 50_000
"""Files and folders that are listed for one run."""
MOST_DEPTH = 100
"""Folders in each other; links can nest them without end."""
_IN_MEMORY = 4 * 1024 * 1024
"""Bytes of a file up to which it is read at once."""
_TRIES = 3
"""Of reading a file that another program writes to."""
_OUTSIDE = "Copy it into the folder: code is taken from the script's folder only."


@dataclass
class Left:
    """Names of what was left out of a folder that travels."""

    ignored: list[str] = field(default_factory=list)
    """By rules; a folder stands for all below it."""
    links: list[str] = field(default_factory=list)
    """Symbolic links that lead out of the project."""
    credentials: list[str] = field(default_factory=list)
    submodules: list[str] = field(default_factory=list)
    """Those that nobody has fetched."""


class ProjectFiles:
    """The folder of a script, or of its project."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        """Without links; a script that is a link belongs to the folder that the link is in."""
        self.left = Left()
        self._listed = 0
        self._empty: list[Path] = []
        self._rules = IgnoreRules(self.root)

    def whole(self) -> Iterator[tuple[str, Path]]:
        """Yield name and real path of each file that HEAD has, or that no ignore rule leaves out.

        Of a submodule its own HEAD and rules count; of a package .gitignore leaves out no module. Links out
        of the folder and credentials stay: `left` has their names. So do virtual environments, and folders of
        'tpuctl pull'.
        """
        for place, file in self._walk(self.root, self.root, (), self._stays):
            yield place.relative_to(self.root).as_posix(), file
        named = [path for path in _submodules(self.root) if (self.root / path).is_relative_to(self.root)]
        for place in self._empty:
            name = place.relative_to(self.root).as_posix()
            if name in named or self._rules.is_submodule(place.relative_to(self.root)):
                self.left.submodules.append(name)

    def _stays(self, place: Path, path: Path) -> bool:
        name = place.relative_to(self.root).as_posix()
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(self.root):
            if not self._is_ignored(place, path):
                self.left.links.append(name)
            return True
        if _is_made(path):
            return True
        is_module = path.suffix == ".py" and (path.parent / "__init__.py").is_file()
        is_ignored = self._is_ignored(place, path, ".py" if is_module else None)
        if is_ignored:
            is_secret = (
                credential_kind(name, b"") and path.is_file() and not self._is_ignored(place, path, "")
            )
            (self.left.credentials if is_secret else self.left.ignored).append(name)
        elif is_credential(name, path):
            self.left.credentials.append(name)
            return True
        return is_ignored

    def below(
        self, path: Path, *, is_package: bool = False, is_whole: bool = False
    ) -> Iterator[tuple[str, Path]]:
        """Yield name and real path of a file, or of each file in a folder that no ignore rule leaves out.

        The path itself is meant, whatever rules say: with a folder that they leave out, all of its files.
        Of a package .gitignore leaves out no module, of a folder `is_whole` nothing. The name is the path
        from the script's folder, through links. Links to nothing, pipes and devices are skipped. Raises
        UsageError for a link that leads out of the folder, and for another path outside.
        """
        own = self._without_links_above(path)
        if not os.path.lexists(own):
            raise UsageError(f"There is no file or folder {path}.", hint="Correct --include.")
        if not own.is_relative_to(self.root):
            raise UsageError(f"{own} is outside the script's folder {self.root}.", hint=_OUTSIDE)
        real = self._target(own)
        if real is None or not (real.is_file() or real.is_dir()):
            raise UsageError(f"{path} is neither a file nor a folder.", hint="Correct --include.")
        is_meant = own != self.root and self._is_ignored(own, real)
        needed = ".py" if is_package else "" if is_whole and own != self.root else None
        skips = _nothing if is_meant else partial(self._is_left, needed=needed)
        for place, file in self._walk(own, real, (), skips):
            yield place.relative_to(self.root).as_posix(), file

    def size(self, file: Path) -> int:
        """Return the bytes of a file that `below` yielded; raises UsageError."""
        try:
            return file.lstat().st_size
        except OSError as error:
            _raise_unreadable(file, error)

    def add(self, archive: tarfile.TarFile, name: str, file: Path) -> None:
        """Add a file that `below` yielded to an archive; of its mode, whether its owner may execute it.

        What is read is what was opened, and no link is followed any more. Raises UsageError for a file that
        cannot be read, or changes meanwhile: a small one, during each try.
        """
        try:
            with ConfinedFolder(self.root) as folder:
                for _ in range(_TRIES):
                    with folder.open(file.relative_to(self.root).parts) as stream:
                        before = os.fstat(stream.fileno())
                        if before.st_size > _IN_MEMORY:
                            _add(archive, name, before, stream)
                            is_same = before.st_mtime_ns == os.fstat(stream.fileno()).st_mtime_ns
                            break
                        data, after = stream.read(), os.fstat(stream.fileno())
                        is_same = (before.st_size, before.st_mtime_ns) == (len(data), after.st_mtime_ns)
                    if is_same:
                        _add(archive, name, before, io.BytesIO(data))
                        break
        except (NotAFileError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # of the archive
            _raise_unreadable(file, error)
        if not is_same:
            raise UsageError(f"{file} changes while it is read.", hint="Wait for the program that writes it.")

    def _without_links_above(self, path: Path) -> Path:
        """Return an absolute path in which only the last part may be a link."""
        return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()

    def _walk(
        self, place: Path, real: Path, above: tuple[Path, ...], skips: Callable[[Path, Path], bool]
    ) -> Iterator[tuple[Path, Path]]:
        """Yield place and real path of each file; a folder that holds itself through a link is read once."""
        self._listed += 1
        if self._listed > MOST_FILES or len(above) > MOST_DEPTH:
            raise _too_many(place)
        try:
            mode = real.stat().st_mode
            if stat.S_ISREG(mode):
                yield place, real
            if not stat.S_ISDIR(mode) or real in above:
                return
            names = sorted(os.listdir(real))
        except OSError as error:
            _raise_unreadable(real, error)
        if not names:
            self._empty.append(place)
        for name in names:
            if name in SKIPPED or skips(place / name, real / name):
                continue
            target = self._target(real / name)
            if target:
                yield from self._walk(place / name, target, (*above, real), skips)

    def _is_left(self, place: Path, path: Path, *, needed: str | None) -> bool:
        is_ignored = self._is_ignored(place, path, needed)
        if is_ignored and needed is None:
            self.left.ignored.append(place.relative_to(self.root).as_posix())
        return is_ignored

    def _is_ignored(self, place: Path, path: Path, needed: str | None = None) -> bool:
        """Return whether rules leave out a path; .gitignore not if its name ends with what is `needed`."""
        is_folder = path.is_dir() and not path.is_symlink()  # to git a link is a file
        is_needed = needed is not None and place.name.endswith(needed)
        return self._rules.is_ignored(place.relative_to(self.root), is_folder=is_folder, is_needed=is_needed)

    def _target(self, path: Path) -> Path | None:
        """Return what a path is without links, or None for a link to nothing or into a skipped folder."""
        if not path.is_symlink():
            return path
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(self.root):
            raise UsageError(
                f"{path} is a symbolic link to {target}, which is outside the script's folder {self.root}.",
                hint=_OUTSIDE,
                link=str(path),
                target=str(target),
            )
        is_skipped = SKIPPED.intersection(target.relative_to(self.root).parts)
        return None if is_skipped or not target.exists() else target


def _submodules(root: Path) -> list[str]:
    """Return the folders that .gitmodules names."""
    try:
        with ConfinedFolder(root) as folder, folder.open([".gitmodules"]) as stream:
            text = stream.read(MOST_BYTES).decode("utf-8", "replace")
    except (NotAFileError, OSError):
        return []
    pairs = (line.partition("=") for line in text.splitlines())
    return [value.strip() for key, _, value in pairs if key.strip() == "path" and ".." not in value]


def _is_made(path: Path) -> bool:
    """Return whether a folder is a virtual environment, or one of 'tpuctl pull'."""
    if not path.is_dir():
        return False
    return (path / _ENVIRONMENT).is_file() or all((path / name).exists() for name in _PULLED)


def is_credential(name: str, path: Path) -> bool:
    """Return whether a file holds credentials, by its name and its first bytes."""
    if credential_kind(name, b""):
        return path.is_file()
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in KEY_SUFFIXES | COPY_SUFFIXES or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return bool(credential_kind(name, stream.read(_LARGEST_KEY)))
    except OSError:
        return False  # who packs it says why


def _nothing(_place: Path, _path: Path) -> bool:
    return False


def _add(archive: tarfile.TarFile, name: str, status: os.stat_result, stream: BinaryIO) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = status.st_size
    entry.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    archive.addfile(entry, stream)


def read_source(file: Path) -> bytes:
    """Return the content of a file, and nothing of a pipe or a device; raises UsageError.

    Of a long one, the first LONGEST_SCRIPT bytes and one more.
    """
    try:
        with ConfinedFolder(file.resolve().parent) as folder, folder.open([file.resolve().name]) as stream:
            return stream.read(LONGEST_SCRIPT + 1)
    except (NotAFileError, OSError) as error:
        _raise_unreadable(file, error)


def _raise_unreadable(file: Path, error: Exception) -> NoReturn:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else f"it {error}"
    raise UsageError(f"{file} cannot be read: {reason}.", hint="Nothing was sent.", file=str(file)) from error


def _too_many(path: Path) -> UsageError:
    return UsageError(
        f"{path} holds too much: {MOST_FILES:,} files, {MOST_DEPTH} folders deep, are the most.",
        hint="Leave out by .tpuctlignore what the script does not need, or name a smaller project by --root;"
        " data is uploaded with 'tpuctl data upload'.",
    )
