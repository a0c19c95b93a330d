"""Reads what the metadata of a project's own package says, and makes it one that hosts have installed.

A host runs no build backend: that of an image is too old for editables (PEP 660), others would come from an
index. What an editable gives is written beside the code in place of it: a path of modules and the folder
`dist-info` with the entry points, from which hosts make the console scripts. Nothing of the project is
executed: of setup.py, what stands in the call of `setup` as it is, or in names bound at its top, counts.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.project_imports import is_parsed, parsed
from tpuctl.host.worker.records import INSTALLED
from tpuctl.host.worker.requirements import normalized

SETUP, SETUP_CFG = "setup.py", "setup.cfg"
SCRIPTS = "console_scripts"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+]*")
_ENTRY = re.compile(r"[\w.-]+"), re.compile(r"[\w.]+(?::[\w.]+)?")
_DUNDER = re.compile(r"""^__version__(?:: ?\w+)? = ["']([^"'\n]+)["']""", re.MULTILINE)
_DEEPEST, _LONGEST = 50, 10_000
"""Expressions in each other, and characters or items, that are put together."""
_CARET = re.compile(r"(\^|~)\s*(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Package:
    """The metadata of one package, as far as it is known without a build."""

    name: str = ""
    version: str = ""
    modules: str = ""
    """Folder that its modules are imported from, below its own; empty for its own."""
    entry_points: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Group -> name -> object, such as `pkg.train:main`."""
    place: str = ""
    """The file with its dependencies; empty where none has any."""
    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires_python: str = ""

    def files(self, folder: PurePosixPath) -> Iterator[tuple[str, bytes]]:
        """Yield names in a bundle, and contents, of an editable of the package in a `folder` of it."""
        if not _NAME.fullmatch(self.name):
            return
        version = self.version if _VERSION.fullmatch(self.version) else "0"
        name = normalized(self.name).replace("-", "_")
        info = f"{INSTALLED}/{name}-{version}.dist-info"
        yield f"{INSTALLED}/{name}.pth", f"{(folder / self.modules).as_posix()}\n".encode()
        yield f"{info}/INSTALLER", b"tpuctl\n"
        yield f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {version}\n".encode()
        lines = list[str]()
        for group, entries in self.entry_points.items():
            known = {key: value.partition("[")[0].replace(" ", "") for key, value in entries.items()}
            if _ENTRY[0].fullmatch(group):
                lines.append(f"[{group}]")
                lines += [
                    f"{key} = {value}"
                    for key, value in known.items()
                    if _ENTRY[0].fullmatch(key) and _ENTRY[1].fullmatch(value)
                ]
        if lines:
            yield f"{info}/entry_points.txt", "".join(f"{line}\n" for line in lines).encode()


def of_setup(folder: Path) -> Package:
    """Return what setup.cfg and setup.py say; raises UsageError for a file that cannot be read."""
    config = _config(folder)
    called = _called(folder)
    dependencies = called.get("install_requires", config.get("install_requires"))
    has_any = isinstance(dependencies, list) and bool(dependencies)
    package_dir = called.get("package_dir", config.get("package_dir"))
    entry_points = called.get("entry_points", config.get("entry_points")) or {}
    extras = called.get("extras_require", config.get("extras_require")) or {}
    return Package(
        name=str(called.get("name") or config.get("name") or ""),
        version=str(called.get("version") or config.get("version") or ""),
        modules=modules_of(folder, package_dir if isinstance(package_dir, dict) else {}),
        entry_points=_entries(entry_points),
        place=(SETUP if "install_requires" in called else SETUP_CFG) if has_any else "",
        dependencies=tuple(dependencies) if isinstance(dependencies, list) else (),
        extras=extras if isinstance(extras, dict) else {},
        requires_python=str(called.get("python_requires") or config.get("python_requires") or ""),
    )


def modules_of(folder: Path, package_dir: Mapping[str, Any]) -> str:
    """Return the folder of modules, of a mapping as setuptools has it; by default `src` where it is used."""
    named = str(package_dir.get("", "")).strip("./")
    if named and ".." not in named and os.path.isdir(folder / named):
        return named
    return "src" if any((folder / "src").glob("*/*.py")) else ""


def version_in(folder: Path, modules: str, name: str) -> str:
    """Return the text that a package binds to `__version__`, empty where nobody can see it."""
    package = folder / modules / name.replace("-", "_")
    for file in (package / "__init__.py", package / "version.py", package / "_version.py"):
        if os.path.isfile(file) and (match := _DUNDER.search(bundles.text(file, "file"))):
            return match[1]
    return ""


def _config(folder: Path) -> dict[str, Any]:
    if not (folder / SETUP_CFG).is_file():
        return {}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(bundles.text(folder / SETUP_CFG, "file"))
    except configparser.Error as error:
        line = str(error).replace("\n", " ")
        raise UsageError(f"{folder / SETUP_CFG} is wrong: {line}.", hint="") from None
    found: dict[str, Any] = {}
    for section in ("metadata", "options"):
        found |= dict(parser[section]) if parser.has_section(section) else {}
    if "install_requires" in found:
        found["install_requires"] = _lines(found["install_requires"])
    if "package_dir" in found:
        pairs = (line.partition("=") for line in _lines(found["package_dir"]))
        found["package_dir"] = {key.strip(): value.strip() for key, _, value in pairs}
    if parser.has_section("options.entry_points"):
        found["entry_points"] = {key: _lines(value) for key, value in parser["options.entry_points"].items()}
    if parser.has_section("options.extras_require"):
        extras = parser["options.extras_require"].items()
        found["extras_require"] = {key: _lines(value) for key, value in extras}
    is_read = ":" in str(found.get("version", ""))  # `attr: pkg.__version__`
    return {key: value for key, value in found.items() if key != "version" or not is_read}


def _lines(text: str) -> list[str]:
    lines = (line.partition(" #")[0].strip() for line in re.split(r"[\n]", text))
    return [line for line in lines if line and not line.startswith(("#", "file:"))]


def _called(folder: Path) -> dict[str, Any]:
    """Return the arguments of the call of `setup` that are texts, lists and mappings of these."""
    if not (folder / SETUP).is_file():
        return {}
    text = bundles.text(folder / SETUP, "file")
    tree = parsed(text.encode()) if is_parsed(text.encode()) else None
    if tree is None:
        return {}
    bound = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        function = getattr(node, "func", None)
        if getattr(function, "id", getattr(function, "attr", "")) == "setup" and isinstance(node, ast.Call):
            literals = _Literals(bound)
            values = {word.arg: literals.value(word.value) for word in node.keywords if word.arg}
            return {key: value for key, value in values.items() if value is not None}
    return {}


class _Literals:
    """Expressions that say what they are: texts, lists and mappings of these, and names bound to such."""

    def __init__(self, bound: Mapping[str, ast.expr]) -> None:
        self._bound = bound
        self._known: dict[str, Any] = {}

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return what an expression is, of a list its known items; None for what only a run could tell."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            return self._of_name(node.id, depth)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            inner = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            return self._joined([self.value(part, depth + 1) for part in inner], str)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [item for each in node.elts if (item := self.value(each, depth + 1)) is not None]
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            known = {
                self.value(key, depth + 1): value for key, value in pairs if isinstance(key, ast.Constant)
            }
            return {key: self.value(value, depth + 1) for key, value in known.items() if key is not None}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [self.value(part, depth + 1) for part in (node.left, node.right)]
            return self._joined(parts, type(parts[0]))
        return None

    def _of_name(self, name: str, depth: int) -> Any:
        if name not in self._known:
            self._known[name] = None  # one that is bound to itself
            found = self.value(self._bound[name], depth + 1) if name in self._bound else None
            self._known[name] = found
        return self._known[name]

    def _joined(self, parts: Sequence[Any], kind: type) -> Any:
        """Return texts or lists put together, unless they are of another kind or together very long."""
        is_known = kind in (str, list) and all(isinstance(part, kind) for part in parts)
        if not is_known or sum(map(len, parts)) > _LONGEST:
            return None
        return "".join(parts) if kind is str else [item for part in parts for item in part]


def _entries(groups: Any) -> dict[str, dict[str, str]]:
    """Return entry points of setuptools, whose lines are `name = object`."""
    found = {}
    for group, listed in groups.items() if isinstance(groups, dict) else ():
        lines = listed if isinstance(listed, list) else str(listed or "").splitlines()
        pairs = [str(line).partition("=")[::2] for line in lines]
        found[group] = {name.strip(): value.strip() for name, value in pairs if value}
    return found


def of_poetry(table: Mapping[str, Any], folder: Path, place: str) -> Package:
    """Return what the table [tool.poetry] says; raises UsageError for what has no equivalent in PEP 508."""
    listed = dict(table.get("dependencies", {}))
    python = listed.pop("python", "")
    texts = {name: list(_of_poetry(name, value, place)) for name, value in listed.items()}
    optional = {name for name, value in listed.items() if isinstance(value, dict) and value.get("optional")}
    extras = {
        extra: [text for name in names for text in texts.get(name, ())]
        for extra, names in dict(table.get("extras", {})).items()
    }
    for group, content in dict(table.get("group", {})).items():
        more = dict(content.get("dependencies", {})).items()
        extras[f"group {group}"] = [text for name, value in more for text in _of_poetry(name, value, place)]
    included = [one.get("from", "") for one in table.get("packages", ()) if isinstance(one, dict)]
    return Package(
        name=str(table.get("name", "")),
        version=str(table.get("version", "")),
        modules=modules_of(folder, {"": included[0]} if included else {}),
        entry_points={SCRIPTS: {key: str(value) for key, value in dict(table.get("scripts", {})).items()}},
        place=f"{place}, [tool.poetry]" if listed else "",
        dependencies=tuple(text for name in texts if name not in optional for text in texts[name]),
        extras=extras,
        requires_python=_specifier(str(python), "python", place) if python else "",
    )


def _of_poetry(name: str, value: Any, place: str) -> Iterator[str]:
    """Yield requirements of PEP 508: https://python-poetry.org/docs/dependency-specification/."""
    if isinstance(value, list):
        for each in value:
            yield from _of_poetry(name, each, place)
        return
    table = value if isinstance(value, dict) else {"version": value}
    extras = f"[{','.join(map(str, table.get('extras', ())))}]" if table.get("extras") else ""
    marker = f" ; {table['markers']}" if table.get("markers") else ""
    if "path" in table:
        yield f"./{table['path']}"
    elif "git" in table:
        at = table.get("rev") or table.get("tag") or table.get("branch")
        url = re.sub(r"^git@([^:]+):", r"https://\1/", str(table["git"]))
        yield f"{name}{extras} @ git+{url}{f'@{at}' if at else ''}{marker}"
    elif "url" in table:
        yield f"{name}{extras} @ {table['url']}{marker}"
    else:
        yield f"{name}{extras}{_specifier(str(table.get('version', '*')), name, place)}{marker}"


def _specifier(text: str, name: str, place: str) -> str:
    """Return a constraint of Poetry as PEP 440 has it."""
    if "||" in text or " | " in text:
        raise UsageError(
            f"{place}: {name} = '{text}' has alternatives, which pip does not know.",
            hint="List what the program needs in requirements.txt, or in its header: dependencies = [...]",
        )
    clauses = [clause.strip() for clause in re.split(r",|(?<!\s)\s+(?=[<>=!~^])", text) if clause.strip(" *")]
    return ",".join(map(_clause, clauses))


def _clause(text: str) -> str:
    match = _CARET.match(text)
    if not match:
        return text if text[0] in "<>=!" else f"=={text}"
    numbers = [int(part) for part in match[2].split(".")]
    if match[1] == "~":
        kept = min(len(numbers), 2) - 1
    else:
        kept = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
    upper = [*numbers[:kept], numbers[kept] + 1]
    return f">={match[2]},<{'.'.join(map(str, upper))}"
