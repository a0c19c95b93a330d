"""Reads what a project itself lists as its packages: pyproject.toml, uv.lock, requirements.txt, setup.py.

Nothing of the project is executed. Where packages come from is trust: an index that a file names counts only
if the user has named it, too.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from tpuctl.config import files
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles, project_package
from tpuctl.flows.runs.code.project_package import Package
from tpuctl.host.worker import requirements
from tpuctl.host.worker.requirements import normalized
from tpuctl.job_header import Header

PYPROJECT, UV_LOCK, REQUIREMENTS = "pyproject.toml", "uv.lock", "requirements.txt"
CONDA = ("environment.yml", "environment.yaml", "conda.yaml")
_KNOWN = re.compile(
    r"https://pypi\.(?:python\.)?org/simple/?"
    r"|https://storage\.googleapis\.com/(?:jax|libtpu|libtpu-tf)-releases/[a-z_]+\.html"
)
"""PyPI, and Google's own pages for JAX and libtpu: where packages come from without a word of the user."""
MOST_FILES = 100
"""Files that a requirements.txt may include."""
MOST_DEPTH = 50
"""Packages of a project that require each other in a row."""
_OPTION = re.compile(r"(-r|-c|-f|-i|-e|--[a-z-]+)(?:[ \t]*=[ \t]*|[ \t]+|$)(.*)")
_LONG = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-f": "--find-links",
    "-i": "--index-url",
    "-e": "--editable",
}
_EGG = re.compile(r"\A(git\+https://[^ #]+)#egg=([A-Za-z0-9._-]+)\Z")
"""How pip named a distribution of a repository before PEP 508."""
_EGG_OF_URL = re.compile(r"#egg=[A-Za-z0-9._-]+\Z")
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
    editables: Mapping[str, bytes] = field(default_factory=dict)
    """Files that make the project's own packages installed ones, by their names in the bundle."""
    entry_points: Mapping[str, str] = field(default_factory=dict)
    """Console scripts of these -> what they call, such as `pkg.train:main`."""

    @property
    def own(self) -> set[str]:
        """Normalized names of the project's packages."""
        return {normalized(PurePosixPath(name).stem) for name in self.editables if name.endswith(".pth")}

    def with_nearer(self, nearer: ProjectLists) -> ProjectLists:
        """Return what both list: this package's list, and the requirements.txt in a folder below it.

        That of the `nearer` counts where both name a package, and none names this one, as with
        `pip install -e . -r requirements.txt` without the conflicts.
        """

        def rest(texts: Sequence[str]) -> list[str]:
            return [text for text in texts if requirements.parse(text).name not in named]

        named = {requirements.parse(text).name for text in nearer.requirements}
        wanted = [text for text in nearer.requirements if requirements.parse(text).name not in self.own]
        return replace(
            self,
            requirements=tuple(dict.fromkeys((*wanted, *rest(self.requirements)))),
            provenance=" and ".join(filter(None, (nearer.provenance, self.provenance))),
            pins={name: version for name, version in self.pins.items() if name not in named},
            constraints=(*nearer.constraints, *rest(self.constraints)),
            sources=tuple(dict.fromkeys((*nearer.sources, *self.sources))),
            notes=(*nearer.notes, *self.notes),
            editables={**self.editables, **nearer.editables},
            entry_points={**self.entry_points, **nearer.entry_points},
        )

    def overruled(self, header: Header, wanted: Sequence[str]) -> tuple[Header, ProjectLists]:
        """Return both with the versions that a set-up command installs, later than the lists."""
        texts = {read.name: read for read in map(requirements.parse, wanted) if read.specifier}
        listed = [requirements.parse(text) for text in header.dependencies]
        if not texts or not listed:
            return header, self
        needed = []
        for text, read in zip(header.dependencies, listed, strict=True):
            extras = f"[{','.join(read.extras)}]" if read.extras else ""
            is_named = read.name in texts
            needed.append(f"{read.name}{extras}{texts[read.name].specifier}" if is_named else text)
        others = texts.keys() - {read.name for read in listed}
        told = ", ".join(read.text for read in texts.values())
        return msgspec.structs.replace(header, dependencies=tuple(dict.fromkeys(needed))), replace(
            self,
            pins={name: version for name, version in self.pins.items() if name not in texts},
            constraints=(*self.constraints, *(texts[name].text for name in sorted(others))),
            notes=(*self.notes, f"Hosts install {told}, as the set-up command says, whatever is listed."),
        )

    def applied(self, header: Header) -> Header:
        """Return a header with these requirements, and the Python of the project unless it asks for one.

        The project's own packages are not among them: hosts have them as they are here.
        """
        if not self.provenance:
            return header
        named = [text for text in header.dependencies if requirements.parse(text).name not in self.own]
        python = header.requires_python or ("" if header.tpuctl.python else self.requires_python)
        needed = tuple(dict.fromkeys((*self.requirements, *named)))
        return msgspec.structs.replace(header, dependencies=needed, requires_python=python)


def find(
    folder: Path,
    root: Path,
    header: Header,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    allowed: Collection[str] | None = (),
) -> ProjectLists:
    """Return what the project of a program in `folder` lists, where its header lists nothing itself.

    The nearest folder that lists something counts, from that folder up to the project's `root`; never your
    home or one above it. A requirements.txt of no package counts besides the package above it. Raises
    UsageError.
    """
    lists_own = header.lists_dependencies or bool(header.tpuctl.requirements)
    if lists_own and (extras or groups):
        raise UsageError(
            "The script's header lists its dependencies: no extra or group of pyproject.toml counts.",
            hint="Leave out --extra and --group, or dependencies in the header.",
        )
    found, home = ProjectLists(), Path.home()
    for place in (folder, *folder.parents):
        if home.is_relative_to(place):
            break
        is_rest = bool(found.provenance)
        lists = own(place, root) if lists_own else read(place, extras, groups, allowed, root, is_rest=is_rest)
        named = [one for one in map(requirements.parse, header.dependencies) if one.name in lists.own]
        if not lists_own and any(one.extras for one in named):  # of a notebook: %pip install mine[train]
            more = [extra for one in named for extra in one.extras]
            lists = read(place, (*extras, *more), groups, allowed, root, is_rest=is_rest)
        if is_rest and lists.editables:
            found = lists.with_nearer(found)
        elif not is_rest and (lists.provenance or (lists.editables and not found.editables)):
            found = lists if lists.editables else replace(lists, editables=found.editables)
        if place == root or (found.provenance and (found.editables or found.provenance != REQUIREMENTS)):
            break
    if (extras or groups) and not found.provenance:
        raise UsageError(f"No pyproject.toml of {root} has a [project] table.", hint="Leave out --extra.")
    return found


def own(folder: Path, root: Path) -> ProjectLists:
    """Return the package in one folder, without what it requires; raises UsageError as `read` does."""
    reader = _Reader(folder.resolve(), root.resolve(), set())
    reader.add_editable(reader.package(reader.pyproject()))
    return ProjectLists(editables=reader.editables, entry_points=reader.entry_points)


def read(
    folder: Path, extras: Sequence[str] = (), groups: Sequence[str] = (),
    allowed: Collection[str] | None = (), root: Path | None = None, *, is_rest: bool = False,
) -> ProjectLists:  # fmt: skip
    """Return what the files of one folder list, and its package; `root` is what names in a bundle start from.

    What pyproject.toml lists counts before requirements.txt, and that before setup.py and setup.cfg. What
    `is_rest`, as a requirements.txt in a folder below counts, is the package alone.
    `allowed` are the indexes that the user trusts besides PyPI; None where hosts ask no index. Raises
    UsageError for a file that cannot be read or lists what no host can install, for an unknown extra or
    group, and for an index that is not `allowed`.
    """
    reader = _Reader(folder.resolve(), (root or folder).resolve(), set())
    content = reader.pyproject()
    package = reader.package(content)
    reader.add_editable(package)
    is_of_pyproject = package.place.startswith(PYPROJECT)
    if is_of_pyproject or ((extras or groups) and package.name):
        reader.read_package(content, package, extras, groups)
    elif not is_rest and not extras and not groups and (folder / REQUIREMENTS).is_file():
        reader.places.append(REQUIREMENTS)
        reader.read_requirements(reader.folder / REQUIREMENTS, reader.requirements)
    elif package.place:
        reader.read_package(content, package, (), ())
    elif not is_rest and (conda := next((name for name in CONDA if (folder / name).is_file()), "")):
        raise UsageError(
            f"{folder / conda} is for conda, which hosts do not have.",
            hint="Write what the program needs into requirements.txt beside it, or into the program's header:"
            " dependencies = [...], also an empty list.",
        )
    if allowed is None:
        reader.sources.clear()
    elif reader.places:
        reader.check_sources(allowed)
    return ProjectLists(
        requirements=tuple(dict.fromkeys(reader.requirements)),
        provenance=", ".join(reader.places),
        requires_python=reader.requires_python,
        pins=reader.pins,
        constraints=tuple(dict.fromkeys(reader.constraints)),
        sources=tuple(dict.fromkeys(reader.sources)),
        notes=tuple(dict.fromkeys(reader.notes)),
        editables=reader.editables,
        entry_points=reader.entry_points,
    )


class _Project(msgspec.Struct, rename="kebab"):
    name: str = ""
    version: str = ""
    dependencies: tuple[str, ...] | None = None
    scripts: dict[str, str] = {}
    entry_points: dict[str, dict[str, str]] = {}
    dynamic: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    requires_python: str = ""


class _Workspace(msgspec.Struct):
    members: tuple[str, ...] = ()


class _Uv(msgspec.Struct):
    sources: dict[str, Any] = {}
    index: tuple[dict[str, Any], ...] = ()
    workspace: _Workspace = msgspec.field(default_factory=_Workspace)


class _Files(msgspec.Struct):
    file: str | tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.file,) if isinstance(self.file, str) else self.file


class _Dynamic(msgspec.Struct):
    dependencies: _Files = msgspec.field(default_factory=_Files)
    extras: dict[str, _Files] = msgspec.field(default_factory=dict, name="optional-dependencies")


class _Setuptools(msgspec.Struct, rename="kebab"):
    package_dir: dict[str, str] = {}
    dynamic: _Dynamic = msgspec.field(default_factory=_Dynamic)


class _Hook(msgspec.Struct, rename="kebab"):
    files: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}


class _Hooks(msgspec.Struct):
    requirements_txt: _Hook = msgspec.field(default_factory=_Hook)


class _Metadata(msgspec.Struct):
    hooks: _Hooks = msgspec.field(default_factory=_Hooks)


class _Hatch(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Tools(msgspec.Struct):
    uv: _Uv = msgspec.field(default_factory=_Uv)
    poetry: dict[str, Any] = {}
    setuptools: _Setuptools = msgspec.field(default_factory=_Setuptools)
    hatch: _Hatch = msgspec.field(default_factory=_Hatch)


class _PyProject(msgspec.Struct, rename="kebab"):
    project: _Project | None = None
    dependency_groups: dict[str, tuple[str | dict[str, str], ...]] = {}
    tool: _Tools = msgspec.field(default_factory=_Tools)


class _Package(msgspec.Struct, rename="kebab"):
    name: str
    version: str = ""
    source: dict[str, Any] = {}
    resolution_markers: tuple[str, ...] = ()


class _Lock(msgspec.Struct):
    package: tuple[_Package, ...] = ()


def _groups_in(item: str | dict[str, str]) -> Sequence[str]:
    return () if isinstance(item, str) else (item.get("include-group", ""),)


class _Reader:
    """Reads files below one folder."""

    def __init__(self, folder: Path, root: Path, seen: set[Path], depth: int = 0) -> None:
        self.folder = folder
        self.root = root
        self.places: list[str] = []
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.sources: list[str] = []
        self.pins: dict[str, str] = {}
        self.notes: list[str] = []
        self.requires_python = ""
        self.editables: dict[str, bytes] = {}
        self.entry_points: dict[str, str] = {}
        self._seen = seen
        """Folders whose packages are read."""
        self._files: set[Path] = set()
        self._depth = depth
        self._of_workspace: dict[str, str] | None = None

    def pyproject(self) -> _PyProject:
        """Return pyproject.toml; an empty one where there is none."""
        is_there = (self.folder / PYPROJECT).is_file()
        content: _PyProject = self._toml(PYPROJECT, _PyProject) if is_there else _PyProject()
        return content

    def package(self, content: _PyProject) -> Package:
        """Return what the metadata of the folder's package says, whatever tool it is for."""
        self._seen.add(self.folder)
        project, tools, setup = content.project, content.tool, project_package.of_setup(self.folder)
        poetry = Package()
        if tools.poetry:
            poetry = self._of_poetry(tools.poetry)
        if project is None:
            return poetry if tools.poetry else setup
        modules = project_package.modules_of(self.folder, tools.setuptools.package_dir)
        listed = Package(
            name=project.name,
            version=project.version or project_package.version_in(self.folder, modules, project.name),
            modules=modules or setup.modules or poetry.modules,
            entry_points={project_package.SCRIPTS: project.scripts, **project.entry_points},
            extras=project.optional_dependencies,
            requires_python=project.requires_python,
        )
        if project.dependencies is not None:
            return replace(listed, dependencies=project.dependencies, place=PYPROJECT)
        if poetry.place:
            return replace(
                listed,
                dependencies=poetry.dependencies,
                place=poetry.place,
                extras={**poetry.extras, **listed.extras},
            )
        if "dependencies" in project.dynamic and not self._dynamic_files(content):
            return replace(listed, dependencies=setup.dependencies, place=setup.place)
        return replace(listed, place=PYPROJECT if self._dynamic_files(content) else "")

    def _of_poetry(self, table: dict[str, Any]) -> Package:
        try:
            return project_package.of_poetry(table, self.folder, PYPROJECT)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise UsageError(
                f"{self.folder / PYPROJECT} is wrong: its table [tool.poetry] is not as Poetry has it.",
                hint="List what the program needs in its header: dependencies = [...]",
            ) from error

    def add_editable(self, package: Package) -> None:
        """Take a package of this folder as one that hosts have installed."""
        if self.folder.is_relative_to(self.root):
            self.editables |= package.files(PurePosixPath(self.folder.relative_to(self.root).as_posix()))
            self.entry_points |= package.entry_points.get(project_package.SCRIPTS, {})

    def read_package(
        self, content: _PyProject, package: Package, extras: Sequence[str], groups: Sequence[str]
    ) -> None:
        """Read what a package requires, with its extras and groups, and the versions of its lock."""
        file = (package.place or PYPROJECT).partition(",")[0]
        self.places.append(package.place or file)
        self.requires_python = package.requires_python
        try:
            requirements.accepts(self.requires_python, "3.11")
        except ValueError as error:
            raise UsageError(
                f"{self.folder / file}: requires-python is"
                f" '{requirements.shown(self.requires_python[:100])}'.",
                hint='Write for instance requires-python = ">=3.10"',
            ) from error
        listed = [*package.dependencies]
        files = [*self._dynamic_files(content)]
        of_extras = {
            **{name: table.names for name, table in content.tool.setuptools.dynamic.extras.items()},
            **content.tool.hatch.metadata.hooks.requirements_txt.optional_dependencies,
        }
        for extra in extras:
            self.places.append(f"extra {extra}")
            if extra in of_extras:
                files += of_extras[extra]
            else:
                own = partial(self._extras_in, normalized(package.name))
                listed += self._listed(package.extras, extra, "extra", own)
        for group in groups:
            self.places.append(f"group {group}")
            of_poetry = package.extras.get(f"group {group}")
            own_groups = self._listed(content.dependency_groups, group, "group", _groups_in)
            listed += own_groups if of_poetry is None else of_poetry
        for name in files:
            self.read_requirements(self.folder / name, self.requirements)
        if not listed and not files and of_extras:
            self.notes.append(f"{PYPROJECT} lists packages in extras only: --extra {' or '.join(of_extras)}")
        git = self._read_lock() if (self.folder / UV_LOCK).is_file() else {}
        sources = {normalized(name): source for name, source in content.tool.uv.sources.items()}
        for text in listed:
            self._add(text, file, sources, git, content.tool.uv.workspace.members)
        for index in content.tool.uv.index:
            url = str(index.get("url", ""))
            if not _KNOWN.fullmatch(url):
                self.sources.append(f"--extra-index-url {url}")

    def _dynamic_files(self, content: _PyProject) -> Sequence[str]:
        """Return the files that setuptools, or the hook hatch-requirements-txt, takes dependencies from."""
        of_hook = content.tool.hatch.metadata.hooks.requirements_txt.files
        return [*content.tool.setuptools.dynamic.dependencies.names, *of_hook]

    def _listed(
        self,
        known: Mapping[str, Sequence[Any]],
        first: str,
        kind: str,
        included: Callable[[Any], Sequence[str]],
    ) -> Iterator[str]:
        """Yield what an extra or a group lists, and what those list that it includes."""
        items = {normalized(name): listed for name, listed in known.items()}
        seen, pending = set[str](), [first]
        for name in pending:  # grows
            if normalized(name) not in items:
                names = ", ".join(known) or "none"
                raise UsageError(
                    f"{self.folder / PYPROJECT} has no {kind} '{name}'.", hint=f"It has {names}."
                )
            if normalized(name) in seen:
                continue
            seen.add(normalized(name))
            for item in items[normalized(name)]:
                others = included(item)
                pending += others
                if not others:
                    yield str(item)

    def _extras_in(self, own: str, text: str) -> Sequence[str]:
        """Return the extras of the project `own` that a requirement names: `all = ["mine[train,data]"]`."""
        read = self._parsed(text, PYPROJECT)
        return read.extras if read.name == own else ()

    def _add(
        self, text: str, file: str, sources: dict[str, Any], git: dict[str, str], members: Sequence[str]
    ) -> None:
        if text.startswith(("./", "../")):
            self._add_folder(text, self.folder, file, self.requirements)
            return
        read = self._parsed(_EGG_OF_URL.sub("", text), file)
        source = sources.get(read.name)
        if isinstance(source, dict) and ({"path", "workspace"} & source.keys()):
            path = source.get("path") or self._members(members).get(read.name)
            self._add_folder(str(path or read.name), self.folder, file, self.requirements)
        elif read.name in git and not read.url:
            extras = f"[{','.join(read.extras)}]" if read.extras else ""
            marker = f" ; {read.marker}" if read.marker else ""
            text = f"{read.name}{extras} @ {git[read.name]}{marker}"
            self.requirements.append(self._parsed(text, UV_LOCK).text)
        elif isinstance(source, dict) and {"git", "url"} & source.keys():
            raise UsageError(
                f"{self.folder / file} takes {read.name} from a URL in [tool.uv.sources].",
                hint=f"Lock it (uv lock), or write '{read.name} @ https://...' into dependencies.",
            )
        else:
            self.requirements.append(read.text)

    def _members(self, patterns: Sequence[str]) -> dict[str, str]:
        """Return the packages of a workspace by their names, and their folders from this one."""
        if self._of_workspace is None:
            self._of_workspace = {}
            for folder in sorted(set[Path]().union(*map(self._matching, patterns))):
                if (folder / PYPROJECT).is_file():
                    of_folder = _Reader(folder, self.root, set())
                    name = normalized(of_folder.package(of_folder.pyproject()).name)
                    self._of_workspace.setdefault(name, os.path.relpath(folder, self.folder))
        return self._of_workspace

    def _matching(self, pattern: str) -> set[Path]:
        """Return the folders of the project that a pattern names, each once however many ways lead to it."""
        found = {self.folder}
        for part in pattern.split("/"):
            if part == "**":
                pending = [*found]
                while pending:
                    new = self._folders(pending.pop()) - found
                    found |= new
                    pending += new
            elif part == "..":
                found = {folder.parent for folder in found if folder != self.root}
            elif part not in ("", "."):
                found = set[Path]().union(*(self._folders(folder, part) for folder in found))
        return found

    def _folders(self, above: Path, pattern: str = "*") -> set[Path]:
        """Return the folders in a folder whose names match; links count that stay in the project."""
        try:
            names = os.listdir(above)
        except OSError:
            return set()
        paths = (os.path.realpath(above / name) for name in fnmatch.filter(names, pattern))
        found = {Path(path) for path in paths if os.path.isdir(path)}
        return {path for path in found if path.is_relative_to(self.root)}

    def _add_folder(self, text: str, above: Path, file: str, target: list[str]) -> None:
        """Take the package in a folder of the project as installed, and read what it requires."""
        path, _, extras = text.partition("[")
        folder = self._real(above / path.removeprefix("file:"))
        if not folder.is_relative_to(self.root) or not os.path.isdir(folder):
            self.notes.append(f"Hosts do not install '{text}' of {file}: it is no folder of the project.")
            return
        other = _Reader(folder, self.root, self._seen, self._depth + 1)
        if other._depth > MOST_DEPTH:
            raise UsageError(f"{folder} is required through more than {MOST_DEPTH} packages.", hint="")
        is_read = folder in self._seen and folder != self.folder
        content = other.pyproject()
        package = other.package(content)
        other.add_editable(package)
        if not is_read and package.place:
            other.read_package(content, package, [name for name in extras.rstrip("]").split(",") if name], ())
        target += other.requirements
        self.constraints += other.constraints
        self.sources += other.sources
        self.notes += other.notes
        self.editables |= other.editables
        self.entry_points |= other.entry_points

    def _read_lock(self) -> dict[str, str]:
        """Read the versions of uv.lock, and return name -> URL of what it takes from git."""
        lock: _Lock = self._toml(UV_LOCK, _Lock)
        self.places.append(f"versions of {UV_LOCK}")
        self.notes.append(
            f"The hashes in {UV_LOCK} are not checked: 'uv export --no-emit-project -o requirements.lock',"
            " named as requirements in [tool.tpuctl], has hosts check them."
        )
        git, versions = dict[str, str](), dict[str, list[_Package]]()
        for package in lock.package:
            if "git" in package.source:
                url, _, commit = str(package.source["git"]).partition("#")
                git[normalized(package.name)] = f"git+{url.partition('?')[0]}@{commit}"
            if "registry" in package.source and package.version:
                versions.setdefault(normalized(package.name), []).append(package)
                url = str(package.source["registry"])
                if not _KNOWN.fullmatch(url):
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
        if not self._real(path).is_relative_to(self.folder):
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
                if line.startswith((".", "/", "file:")) and not words[0].endswith(".whl"):
                    self._add_folder(words[0], path.parent, file, target)
                    continue
                text = _EGG.sub(r"\2 @ \1", " ".join(words))
                target.append(self._parsed(text, f"{file}, line {number}").text)
                continue
            name, value = _LONG.get(option[1], option[1]), option[2].strip()
            if name in ("--requirement", "--constraint"):
                into = self.constraints if name == "--constraint" else target
                self.read_requirements(path.parent / value, into)
            elif name in _SOURCES:
                self._source(name, value, file)
            elif name == "--editable" and value.startswith("git+"):
                target.append(self._parsed(_EGG.sub(r"\2 @ \1", value), f"{file}, line {number}").text)
            elif name == "--editable":
                if "://" in value and not value.startswith("file:"):
                    text = _EGG.sub(r"\2 @ \1", value)
                    target.append(self._parsed(text, f"{file}, line {number}").text)
                else:
                    self._add_folder(value, path.parent, file, target)
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
        if not _KNOWN.fullmatch(value) or name == "--find-links":
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
                    " one with a password.",
                    hint="Give hosts credentials by their own pip.conf.",
                )
            unknown += [] if url.rstrip("/") in known or _KNOWN.fullmatch(url) else [url]
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

    def _real(self, path: Path) -> Path:
        try:
            return Path(os.path.realpath(path))
        except ValueError as error:
            raise UsageError(
                f"{self.folder} names {os.fspath(path)!r}, which is no path.", hint=""
            ) from error

    def _toml(self, file: str, kind: Any) -> Any:
        try:
            return files.decode(self._text(self.folder / file), kind)
        except files.TomlError as error:
            raise UsageError(f"{self.folder / file} is wrong: {error}.", hint="") from None

    def _text(self, path: Path) -> str:
        return bundles.text(path, "file")
