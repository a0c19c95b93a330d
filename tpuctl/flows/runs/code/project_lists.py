"""Reads what a project itself lists as its packages: pyproject.toml, uv.lock, requirements.txt.

Nothing of the project is executed. Where packages come from is trust: an index that a file names counts only
if the user has named it, too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tpuctl.config import files
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.host.worker import requirements
from tpuctl.host.worker.requirements import normalized
from tpuctl.job_header import Header

PYPROJECT, UV_LOCK, REQUIREMENTS = "pyproject.toml", "uv.lock", "requirements.txt"
PYPI = ("https://pypi.org/simple", "https://pypi.python.org/simple")
MOST_FILES = 100
"""Files that a requirements.txt may include."""
_OPTION = re.compile(r"(-r|-c|-f|-i|-e|--[a-z-]+)(?:[ \t]*=[ \t]*|[ \t]+|$)(.*)")
_LONG = {
    "-r": "--requirement", "-c": "--constraint", "-f": "--find-links", "-i": "--index-url", "-e": "--editable"
}  # fmt: skip
_EGG = re.compile(r"\A(git\+https://[^ #]+)#egg=([A-Za-z0-9._-]+)\Z")
"""How pip named a distribution of a repository before PEP 508."""
_SOURCES = ("--find-links", "--index-url", "--extra-index-url")
_WITHOUT_EFFECT = ("--prefer-binary", "--require-hashes")


@dataclass(frozen=True)
class ProjectLists:
    """What the files of a project's folder list."""

    requirements: tuple[str, ...] = ()
    """As in PEP 508."""
    provenance: str = ""
    """Where they stand, such as `pyproject.toml, extra train`; empty where no file lists any."""
    requires_python: str = ""
    pins: dict[str, str] = field(default_factory=dict)
    """Versions that a lock file has."""
    constraints: tuple[str, ...] = ()
    """As in PEP 508: what holds for packages if they are installed."""
    sources: tuple[str, ...] = ()
    """Options of pip that say where packages come from besides PyPI; the user trusts them."""
    notes: tuple[str, ...] = ()
    """Sentences for the user: what is not installed."""

    def applied(self, header: Header) -> Header:
        """Return a header with these requirements, and the Python of the project unless it asks for one."""
        if not self.provenance:
            return header
        python = header.requires_python or ("" if header.tpuctl.python else self.requires_python)
        needed = tuple(dict.fromkeys((*self.requirements, *header.dependencies)))
        return msgspec.structs.replace(header, dependencies=needed, requires_python=python)


def find(
    folder: Path, root: Path, header: Header, extras: Sequence[str] = (), groups: Sequence[str] = (),
    allowed: Collection[str] | None = (),
) -> ProjectLists:  # fmt: skip
    """Return what the project of a program in `folder` lists, where its header lists nothing itself.

    The nearest folder that lists something counts, from that folder up to the project's `root`; never your
    home or one above it. Raises UsageError.
    """
    if header.lists_dependencies or header.tpuctl.requirements:
        if extras or groups:
            raise UsageError(
                "The script's header lists its dependencies: no extra or group of pyproject.toml counts.",
                hint="Leave out --extra and --group, or dependencies in the header.",
            )
        return ProjectLists()
    home = Path.home()
    for place in (folder, *folder.parents):
        if home.is_relative_to(place):
            break
        lists = read(place, extras, groups, allowed)
        if lists.provenance:
            return lists
        if place == root:
            break
    if extras or groups:
        raise UsageError(f"No pyproject.toml of {root} has a [project] table.", hint="Leave out --extra.")
    return ProjectLists()


def read(
    folder: Path, extras: Sequence[str] = (), groups: Sequence[str] = (), allowed: Collection[str] | None = ()
) -> ProjectLists:
    """Return what the files of one folder list: a [project] table with its lock, else requirements.txt.

    `allowed` are the indexes that the user trusts besides PyPI; None where hosts ask no index. Raises
    UsageError for a file that cannot be read or lists what no host can install, for an unknown extra or
    group, and for an index that is not `allowed`.
    """
    reader = _Reader(folder.resolve())
    if (folder / PYPROJECT).is_file():
        reader.read_pyproject(extras, groups)
    if not reader.places and not extras and not groups and (folder / REQUIREMENTS).is_file():
        reader.places.append(REQUIREMENTS)
        reader.read_requirements(reader.folder / REQUIREMENTS, reader.requirements)
    if not reader.places:
        return ProjectLists()
    if allowed is None:
        reader.sources.clear()
    else:
        reader.check_sources(allowed)
    return ProjectLists(
        requirements=tuple(dict.fromkeys(reader.requirements)),
        provenance=", ".join(reader.places),
        requires_python=reader.requires_python,
        pins=reader.pins,
        constraints=tuple(dict.fromkeys(reader.constraints)),
        sources=tuple(dict.fromkeys(reader.sources)),
        notes=tuple(dict.fromkeys(reader.notes)),
    )


class _Project(msgspec.Struct, rename="kebab"):
    name: str = ""
    dependencies: tuple[str, ...] | None = None
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    requires_python: str = ""


class _Uv(msgspec.Struct):
    sources: dict[str, Any] = {}
    index: tuple[dict[str, Any], ...] = ()


class _UvTool(msgspec.Struct):
    uv: _Uv = msgspec.field(default_factory=_Uv)


class _PyProject(msgspec.Struct, rename="kebab"):
    project: _Project | None = None
    dependency_groups: dict[str, tuple[str | dict[str, str], ...]] = {}
    tool: _UvTool = msgspec.field(default_factory=_UvTool)


class _Package(msgspec.Struct, rename="kebab"):
    name: str
    version: str = ""
    source: dict[str, Any] = {}
    resolution_markers: tuple[str, ...] = ()


class _Lock(msgspec.Struct):
    package: tuple[_Package, ...] = ()


class _Reader:
    """Reads files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: list[str] = []
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.sources: list[str] = []
        self.pins: dict[str, str] = {}
        self.notes: list[str] = []
        self.requires_python = ""
        self._files: set[Path] = set()

    def read_pyproject(self, extras: Sequence[str], groups: Sequence[str]) -> None:
        """Read a [project] table; nothing where there is none, or where another tool has its dependencies."""
        content: _PyProject = self._toml(PYPROJECT, _PyProject)
        project = content.project
        if project is None or (project.dependencies is None and not extras and not groups):
            return
        self.places.append(PYPROJECT)
        self.requires_python = project.requires_python
        listed = [*(project.dependencies or ())]
        for extra in extras:
            self.places.append(f"extra {extra}")
            listed += self._of_extra(project, extra, set())
        for group in groups:
            self.places.append(f"group {group}")
            listed += self._of_group(content, group, set())
        git = self._read_lock() if (self.folder / UV_LOCK).is_file() else {}
        for text in listed:
            self._add(text, PYPROJECT, content.tool.uv.sources, git)
        for index in content.tool.uv.index:
            url = str(index.get("url", ""))
            if url.rstrip("/") not in PYPI:
                self.sources.append(f"--extra-index-url {url}")

    def _of_extra(self, project: _Project, extra: str, above: set[str]) -> Iterator[str]:
        known = {normalized(name): listed for name, listed in project.optional_dependencies.items()}
        for text in self._named(known, extra, "extra", above):
            read = self._parsed(str(text), PYPROJECT)
            if read.name == normalized(project.name) and read.extras:  # `all = ["mine[train,data]"]`
                for other in read.extras:
                    yield from self._of_extra(project, other, above)
            else:
                yield str(text)

    def _of_group(self, content: _PyProject, group: str, above: set[str]) -> Iterator[str]:
        known = {normalized(name): listed for name, listed in content.dependency_groups.items()}
        for item in self._named(known, group, "group", above):
            if isinstance(item, str):
                yield item
            else:
                yield from self._of_group(content, item.get("include-group", ""), above)

    def _named(self, known: dict[str, Any], name: str, kind: str, above: set[str]) -> Sequence[Any]:
        if normalized(name) not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"{self.folder / PYPROJECT} has no {kind} '{name}'.", hint=f"It has {names}.")
        if normalized(name) in above:
            return ()
        above.add(normalized(name))
        listed: Sequence[Any] = known[normalized(name)]
        return listed

    def _add(self, text: str, file: str, uv: dict[str, Any], git: dict[str, str]) -> None:
        read = self._parsed(text, file)
        sources = {normalized(name): source for name, source in uv.items()}
        source = sources.get(read.name)
        if isinstance(source, dict) and ({"path", "workspace"} & source.keys()):
            self.notes.append(f"Hosts do not install {read.name}: {file} takes it from a folder.")
        elif read.name in git and not read.url:
            extras = f"[{','.join(read.extras)}]" if read.extras else ""
            marker = f" ; {read.marker}" if read.marker else ""
            self.requirements.append(f"{read.name}{extras} @ {git[read.name]}{marker}")
        elif isinstance(source, dict) and {"git", "url"} & source.keys():
            raise UsageError(
                f"{self.folder / file} takes {read.name} from a URL in [tool.uv.sources].",
                hint=f"Lock it (uv lock), or write '{read.name} @ https://...' into dependencies.",
            )
        else:
            self.requirements.append(read.text)

    def _read_lock(self) -> dict[str, str]:
        """Read the versions of uv.lock, and return name -> URL of what it takes from git."""
        lock: _Lock = self._toml(UV_LOCK, _Lock)
        self.places.append(f"versions of {UV_LOCK}")
        git, versions = dict[str, str](), dict[str, list[_Package]]()
        for package in lock.package:
            if "git" in package.source:
                url, _, commit = str(package.source["git"]).partition("#")
                git[normalized(package.name)] = f"git+{url.partition('?')[0]}@{commit}"
            if "registry" in package.source and package.version:
                versions.setdefault(normalized(package.name), []).append(package)
                url = str(package.source["registry"])
                if url.rstrip("/") not in PYPI:
                    self.sources.append(f"--extra-index-url {url}")
        for name, packages in versions.items():
            if len(packages) == 1:
                self.pins[name] = self._parsed(f"{name}=={packages[0].version}", UV_LOCK).specifier[2:]
                continue
            for package in packages:
                marker = " or ".join(f"({one})" for one in package.resolution_markers)
                text = f"{name}=={package.version}" + (f" ; {marker}" if marker else "")
                self.constraints.append(self._parsed(text, UV_LOCK).text)
        return git

    def read_requirements(self, path: Path, target: list[str]) -> None:
        """Read a file in pip's format, and those that it includes, into `target`."""
        path = Path(os.path.normpath(path))
        if not Path(os.path.realpath(path)).is_relative_to(self.folder):
            raise UsageError(f"{path} is outside of the project {self.folder}.", hint="Move it there.")
        if path in self._files:
            return
        self._files.add(path)
        if len(self._files) > MOST_FILES:
            raise UsageError(f"{self.folder / REQUIREMENTS} includes more than {MOST_FILES} files.", hint="")
        file = path.relative_to(self.folder).as_posix()
        for number, line in requirements.logical_lines(self._text(path)):
            option = _OPTION.fullmatch(line)
            if option is None:
                words = [word for word in line.split() if not word.startswith("--hash=")]
                if len(words) < len(line.split()):
                    self.notes.append(
                        f"The hashes in {file} are not checked: name it as requirements in a header."
                    )
                text = _EGG.sub(r"\2 @ \1", " ".join(words))
                target.append(self._parsed(text, f"{file}, line {number}").text)
                continue
            name, value = _LONG.get(option[1], option[1]), option[2].strip()
            if name in ("--requirement", "--constraint"):
                into = self.constraints if name == "--constraint" else target
                self.read_requirements(path.parent / value, into)
            elif name in _SOURCES:
                self._source(name, value, file)
            elif name == "--editable":
                self.notes.append(f"Hosts do not install '{line}' of {file}: it is a folder.")
            elif name not in _WITHOUT_EFFECT:
                raise UsageError(
                    f"{self.folder / file}, line {number}: hosts do not know the option {name}.",
                    hint="List what the script needs in its header: dependencies = [...]",
                )

    def _source(self, name: str, value: str, file: str) -> None:
        if "://" not in value:
            raise UsageError(
                f"{self.folder / file}: {name} {value} is a folder of this machine.",
                hint="Wheels travel with --wheelhouse FOLDER.",
            )
        if value.rstrip("/") not in PYPI:
            self.sources.append(f"{name} {value}")

    def check_sources(self, allowed: Collection[str]) -> None:
        """Raise UsageError for places of packages that the user has not named."""
        known = {url.rstrip("/") for url in allowed}
        unknown = []
        for source in self.sources:
            url = source.partition(" ")[2]
            if not requirements.SOURCE.fullmatch(source):
                shown = requirements.shown(re.sub("//[^/]*@", "//***@", url))
                raise UsageError(
                    f"{self.folder} takes packages from '{shown}', which is no https:// URL, or"
                    " one with a password.", hint="Give hosts credentials by their own pip.conf.",
                )  # fmt: skip
            unknown += [] if url.rstrip("/") in known else [url]
        if unknown:
            flags = " ".join(f"--allow-index {shlex.quote(url)}" for url in dict.fromkeys(unknown))
            raise UsageError(
                f"{self.folder} takes packages from {', '.join(dict.fromkeys(unknown))}, besides PyPI.",
                hint=f"Who answers there decides what hosts run. If you trust that: {flags}",
            )

    def _parsed(self, text: str, place: str) -> requirements.Requirement:
        try:
            return requirements.parse(text)
        except requirements.RequirementError as error:
            raise UsageError(
                f"{self.folder / place}: {error}.",
                hint="List what the script needs in its header: dependencies = [...]",
            ) from error

    def _toml(self, file: str, kind: Any) -> Any:
        try:
            return files.decode(self._text(self.folder / file), kind)
        except files.TomlError as error:
            raise UsageError(f"{self.folder / file} is wrong: {error}.", hint="") from None

    def _text(self, path: Path) -> str:
        return bundles.text(path, "file")
