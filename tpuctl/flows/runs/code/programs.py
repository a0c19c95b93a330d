"""Finds what a submission starts, such as a script or a module, and the project that it belongs to."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tpuctl import job_header
from tpuctl.config.files import FILE_NAME
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code import project_imports
from tpuctl.flows.runs.code.project_files import ProjectFiles, is_credential, read_source
from tpuctl.host.worker import requirements
from tpuctl.host.worker.records import COMMAND, MODULE, NOTEBOOK, SCRIPT, SHELL
from tpuctl.shells import quoted_path

MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
"""Files and folders that a project's first folder has."""
SETTINGS = "pyproject.toml"
"""The file in that folder whose table `[tool.tpuctl]` counts."""
_PROJECT = {
    "pyproject.toml": re.compile(rb"(?:project|build-system|tool\.(?:poetry|tpuctl|uv))[].]"),
    "setup.cfg": re.compile(rb"(?:metadata|options)\]"),
}
"""How a table begins that does more than to set linters, as a file in a folder of examples does."""
_TABLE = re.compile(rb"^[ \t]*\[+[ \t]*", re.MULTILINE)
_SHELL = re.compile(rb"#!\s*\S*[/ ](?:ba|da|z|k)?sh\b")
_TIMED = ("%%time", "%%capture")
"""Cells with these first lines are Python."""
_IPYTHON = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
_FLAGS = frozenset({
    "-q", "-U", "-qU", "-Uq", "-qq", "--quiet", "--upgrade", "--no-cache-dir", "--user", "--pre",
    "--force-reinstall",
})  # fmt: skip
"""Options of pip that no value follows, and that do not say what is installed."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Program:
    """What is to run, on this machine."""

    kind: str
    """SCRIPT, MODULE, SHELL, COMMAND or NOTEBOOK."""
    script: str
    """Path of the file below `root`; name of the module or of the command."""
    root: Path
    """The folder, without links, that names in the bundle start from."""
    directory: str = ""
    """Working folder below it; empty for itself."""
    is_project: bool = False
    """Whether all of `root` travels, or what the program needs of it, as far as that is seen."""
    file: Path | None = None
    """The script, the notebook or the module's file; None for a command, and for a module from elsewhere."""

    @property
    def here(self) -> Path:
        """The folder that becomes the working folder."""
        return self.root / self.directory

    def files(self, project: ProjectFiles) -> dict[str, Path]:
        """Return name and real path of each file that travels by itself."""
        files = dict(project.whole()) if self.is_project else {}
        if self.is_project and (self.file is None or self.file.relative_to(self.root).as_posix() in files):
            return files
        if self.file and self.kind != MODULE:  # also one that rules leave out: it is named
            files.update(project.below(self.file))
        for module in self._modules():
            files.update(project.below(module, is_package=True))
        return files

    def _modules(self) -> list[Path]:
        if self.file is None or self.kind == SHELL:
            return []
        if self.kind == SCRIPT:
            return project_imports.local_modules(self.file)
        names = [
            *project_imports.imported_names(self.source()),
            *([self.script] if self.kind == MODULE else []),
        ]
        modules = project_imports.local_modules(self.file, self.root, names) if names else []
        return [*modules, self.file] if self.kind == MODULE else modules

    def source(self) -> bytes:
        """Return the text of its file, of a notebook that of its code cells; empty without a file."""
        if self.file is None:
            return b""
        data = read_source(self.file)
        return script_of(cells(data, str(self.file))) if self.kind == NOTEBOOK else data


def header_names(kind: str, script: str, directory: str) -> Iterator[str]:
    """Yield the names in a bundle that the program's file, which may have a header, can have."""
    if kind == COMMAND:
        return
    if kind != MODULE:
        yield script
        return
    path = script.replace(".", "/")
    for folder in dict.fromkeys((directory, "", f"{directory}/src".lstrip("/"), "src")):
        start = f"{folder}/" if folder else ""
        yield from (f"{start}{path}.py", f"{start}{path}/__main__.py")


def cells(data: bytes, name: str) -> list[str]:
    """Return the code cells of a notebook, in order; raises UsageError for what is none.

    Format: https://nbformat.readthedocs.io/en/latest/format_description.html
    """
    try:
        notebook = json.loads(data)
        language = notebook["metadata"].get("kernelspec", {}).get("language", "python")
        found = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(source) for source in found]
        "".join(texts).encode()  # JSON can hold what no file of Python can
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{name} is no notebook of version 4.", hint="Open it in Jupyter, and save it."
        ) from error
    if language != "python":
        raise UsageError(f"The notebook {name} is in {language}, not in Python.", hint="Nothing was sent.")
    return texts


def script_of(texts: Sequence[str]) -> bytes:
    """Return the cells of a notebook as Python: without the lines and cells that only IPython runs."""
    plain = (text for text in texts if not text.startswith("%%") or text.startswith(_TIMED))
    return "\n".join(_IPYTHON.sub(r"\1pass", text) for text in plain).encode()


def installs(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what cells install by pip, as requirements, and the words of such lines that are none."""
    wanted, others = list[str](), list[str]()
    for words in filter(None, (_installed(line) for text in texts for line in text.splitlines())):
        before = ""
        for word in (each.strip("'\"") for each in words):
            is_value = before.startswith("-") and before not in _FLAGS and "=" not in before
            before = word
            if is_value or not _is_requirement(word):
                others += [] if word in _FLAGS else [word]
            else:
                wanted.append(word)
    return list(dict.fromkeys(wanted)), others


def installs_of_command(command: str) -> list[str]:
    """Return what a command for a shell installs by pip, as requirements."""
    return installs([f"!{part.strip()}" for part in re.split(r"&&|[;\n]", command)])[0]


def _installed(line: str) -> list[str]:
    """Return the words after `pip install` of a line such as `%pip install flax`."""
    text = line.lstrip()
    words = text[1:].split() if text[:1] in ("%", "!") else []
    words = words[2:] if words[1:2] == ["-m"] else words
    return words[2:] if words[:1] in (["pip"], ["pip3"]) and words[1:2] == ["install"] else []


def _is_requirement(text: str) -> bool:
    try:
        requirements.parse(text)
    except requirements.RequirementError:
        return False
    return True


def lone(script: Path) -> Program:
    """Return a script without a project: it travels with the modules beside it that it imports."""
    return Program(_kind(script), script.name, script.parent.resolve(), file=script)


def find(script: str | Path, kind: str, root: Path | None, here: Path) -> Program:
    """Return what `submit` is to start, and its project.

    `kind` is empty for a file, whose name or first line says what it is. `root` is the project's folder that
    the user names; without one the nearest folder with one of MARKS, above the current folder `here` where
    the file is below it, else above the file. The home folder is none. Raises UsageError for what is missing.
    """
    here = here.resolve()
    file = _file(script, here) if kind in ("", SCRIPT, SHELL, NOTEBOOK) else None
    root = _named_root(root) if root else _root(file.parent if file else here, here)
    if file is not None:
        kind = kind or _kind(file)
        if root is None:
            return lone(file) if kind == SCRIPT else Program(kind, file.name, file.parent, file=file)
        if not file.is_relative_to(root):
            raise UsageError(
                f"{file} is outside of the project {root}.", hint="Name a folder above it: --root DIR"
            )
        name = file.relative_to(root).as_posix()
    else:
        name = str(script)
    if kind == NOTEBOOK and file is not None:
        here = file.parent  # where Jupyter starts it
    directory = here.relative_to(root).as_posix() if root and here.is_relative_to(root) else "."
    program = Program(kind, name, root or here, directory if directory != "." else "", root is not None, file)
    return _with_module_file(program) if kind == MODULE else program


def _with_module_file(program: Program) -> Program:
    name = program.script
    if not _MODULE.fullmatch(name):
        path = name.removesuffix(".py").strip("./").replace("/", ".")
        hint = f"Write: -m {path}" if _MODULE.fullmatch(path) else "Write for instance -m package.train"
        raise UsageError(f"'{name}' is not the name of a module.", hint=hint)
    for place in header_names(MODULE, name, program.directory):
        if (program.root / place).is_file():
            return Program(
                MODULE, name, program.root, program.directory, program.is_project, program.root / place
            )
    first = name.partition(".")[0]
    folders = (program.here, program.root, program.here / "src", program.root / "src")
    if any((folder / first).is_dir() or (folder / f"{first}.py").is_file() for folder in folders):
        raise UsageError(
            f"There is no module {name} in {program.root}.",
            hint=f"python -m {name} needs a file {name.replace('.', '/')}.py, or a package with __main__.py.",
        )
    return program


def _file(script: str | Path, here: Path) -> Path:
    """Return the absolute path of a file, in which only the last part may be a link; raises UsageError."""
    path = here / script
    if path.is_dir():
        raise UsageError(
            f"{script} is a folder.",
            hint=f"Give a script in it; or a module: -m {Path(script).name}; or a command: -- COMMAND",
        )
    if not path.is_file():
        words = shlex.split(str(script)) if " " in str(script) else [str(script)]
        is_command = len(words) > 1 or str(script) in ("python", "python3", "bash", "sh", "torchrun")
        name = str(script)
        is_module = _MODULE.fullmatch(name) and "." in name
        hint = "Give the path of the training script."
        if is_command:
            hint = f"A command line goes after --: tpuctl submit -- {name}"
        elif is_module and any((here / part).is_file() for part in header_names(MODULE, name, "")):
            hint = f"A module goes after -m: tpuctl submit -m {name}"
        raise UsageError(f"There is no file {script}.", hint=hint)
    return path.parent.resolve() / path.name


def _kind(file: Path) -> str:
    if file.suffix == ".ipynb":
        return NOTEBOOK
    if file.suffix in (".sh", ".bash"):
        return SHELL
    if file.suffix == ".py" or not file.is_file():
        return SCRIPT
    with file.open("rb") as stream:
        return SHELL if _SHELL.match(stream.read(128)) else SCRIPT


def _named_root(folder: Path) -> Path:
    root = folder.resolve()
    if not root.is_dir():
        raise UsageError(f"There is no folder {folder}.", hint="Correct --root.")
    if not _may_be_root(root):
        raise UsageError(f"{root} is no project: it holds your home.", hint="Name a folder below: --root DIR")
    return root


def _root(folder: Path, here: Path) -> Path | None:
    """Return the first folder of the project around a folder; None without one."""
    starts = (here, folder) if folder.is_relative_to(here) else (folder,)
    return next(filter(None, map(_marked, starts)), None)


def _marked(folder: Path) -> Path | None:
    """Return the nearest folder with a project's mark, before one whose files only set tools."""
    places = itertools.takewhile(_may_be_root, (folder, *folder.parents))
    marked = [place for place in places if any(os.path.lexists(place / mark) for mark in MARKS)]
    return next(filter(_is_project, marked), marked[0] if marked else None)


def _is_project(folder: Path) -> bool:
    marks = (folder / mark for mark in MARKS if os.path.lexists(folder / mark))
    return any(mark.name not in _PROJECT or not mark.is_file() or _has_project(mark) for mark in marks)


def _has_project(file: Path) -> bool:
    data = read_source(file)
    ends = [table.end() for table in _TABLE.finditer(data)]
    return not ends or any(_PROJECT[file.name].match(data, end) for end in ends)


def _may_be_root(folder: Path) -> bool:
    """Return whether a folder is neither the user's home nor above it, as the whole disk is."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    return not home.is_relative_to(folder)


_PYTHON = re.compile(r"(?:.*/)?(?:python[0-9.]*|torchrun|ipython3?)")
_WITH_VALUE = frozenset(
    {"-W", "-X", "--nproc_per_node", "--nproc-per-node", "--master_port", "--master-port"}
)
_MOST_SCRIPTS = 5
"""Shell scripts that start each other are read as deep."""


def started(
    program: Program, words: Sequence[str], scripts: Mapping[str, str], depth: int = 0
) -> Iterator[Program]:
    """Yield the Python programs that a command line or a shell script starts, as far as it says it in words.

    `words` are the arguments of the program, `scripts` the console scripts of the project -> what they call.
    """
    if depth > _MOST_SCRIPTS:
        return
    if program.kind not in (SHELL, COMMAND):
        yield program
        return
    if program.kind == COMMAND:
        lines = [[program.script, *words]]
    else:
        lines = list(_commands(program.source().decode(errors="replace")))
    for line in lines:
        for kind, name in _pythons(line, scripts):
            try:
                found = _found(program, kind, name)
            except (UsageError, OSError, ValueError):
                continue
            if found:
                yield from started(found, (), scripts, depth + 1)


def _found(program: Program, kind: str, name: str) -> Program | None:
    if kind == MODULE:
        module = Program(MODULE, name, program.root, program.directory, program.is_project)
        return found if (found := _with_module_file(module)).file else None
    beside = [program.file.parent] if program.file else []
    for folder in (program.here, *beside, program.root):
        file = folder / name
        if file.is_file() and file.resolve().is_relative_to(program.root):
            path = file.resolve()
            script = path.relative_to(program.root).as_posix()
            return Program(kind, script, program.root, program.directory, program.is_project, path)
    return None


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each line of a shell script, those that end in a backslash joined."""
    for line in text.replace("\\\n", " ").splitlines():
        if "py" in line or "sh" in line or "run" in line:
            try:
                yield shlex.split(line[:10_000], comments=True)
            except ValueError:  # a quotation over several lines
                yield line[:10_000].split()


def _pythons(words: Sequence[str], scripts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield kind and name of what a command line starts: of Python, of a shell, of the project itself."""
    for at, word in enumerate(words):
        if word in scripts:
            yield MODULE, scripts[word].partition(":")[0]
        elif word.endswith((".sh", ".bash")):
            yield SHELL, word
        elif _PYTHON.fullmatch(word):
            rest = iter(words[at + 1 :])
            for option in rest:
                if option == "-m":
                    yield MODULE, next(rest, "")
                elif option in _WITH_VALUE:
                    next(rest, "")
                    continue
                elif option.startswith("-"):
                    continue
                elif option.endswith(".py"):
                    yield SCRIPT, option
                break


def roots(program: Program) -> list[Path]:
    """Return the folders that modules of the project are imported from, those of the program first."""
    file = program.file
    own = file.parent if file else program.here
    if file and program.kind == MODULE:
        depth = len(program.script.split(".")) - (0 if file.name == "__main__.py" else 1)
        own = file.parents[depth]
    near = (own, program.here, program.root, program.root / "src") if program.is_project else (own,)
    return [folder for folder in dict.fromkeys(near) if folder.is_dir()]


def named_files(program: Program, words: Sequence[str], shipped: set[str]) -> tuple[list[Path], list[str]]:
    """Return the files that words of the command line name and that are not shipped, and notes on others.

    A file of the project is meant, whatever rules say. Of a folder, of credentials, and of a file elsewhere,
    a note says that it does not travel.
    """
    files, notes = [], []
    for word in dict.fromkeys(part for text in words for part in (text, text.partition("=")[2])):
        path = _existing(program.here, word)
        if path is None:
            continue
        name = path.relative_to(program.root).as_posix() if path.is_relative_to(program.root) else ""
        is_link_out = path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(program.root)
        if not name and path.is_dir() and not _is_of_every_machine(path):
            way = "Data goes by 'tpuctl data upload' or a gs:// path."
            notes.append(f"{word} is named, and is a folder outside of {program.root}: it is not sent. {way}")
        elif name and os.path.isabs(word) and not path.is_dir():
            way = quoted_path(os.path.relpath(path, program.here))
            notes.append(f"{word} is named by its path on this machine: hosts have it as {way}.")
        elif (not name or is_link_out) and path.is_file():
            notes.append(f"{word} is named, and is outside of {program.root}: it is not sent.")
        elif name and path.is_file() and name not in shipped:
            if is_credential(name, path):
                notes.append(f"{word} is named, and holds credentials: it is not sent.")
            else:
                files.append(path)
        elif name and path.is_dir() and any(path.iterdir()) and not _holds_any(name, shipped):
            way = f"If the run reads it: --include {quoted_path(word)}"
            notes.append(f"{word} is named, and is not sent. {way}")
    return files, notes


def _is_of_every_machine(folder: Path) -> bool:
    """Return whether a folder is one that hosts have, too, or an empty one that a program fills."""
    temporary = map(Path, ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()))  # noqa: S108  on hosts
    is_top = len(folder.parts) <= 2  # such as /home
    return is_top or any(map(folder.is_relative_to, temporary)) or not any(folder.iterdir())


def _holds_any(folder: str, names: set[str]) -> bool:
    return any(name.startswith(f"{folder}/") for name in names)


def _existing(folder: Path, word: str) -> Path | None:
    """Return what a word names that is a path on this machine, and no name of every machine's files."""
    is_device = word.startswith("/dev/") and not word.startswith("/dev/shm/")  # noqa: S108  a folder, too
    if not word or len(word) > 4096 or "://" in word or "\0" in word or word.startswith("-") or is_device:
        return None
    path = Path(os.path.normpath(folder / word))
    try:
        if not path.exists() or path.is_relative_to("/usr") or path.is_relative_to("/bin"):
            return None
    except OSError:
        return None
    return path.parent.resolve() / path.name


def header_of(program: Program, defaults: Mapping[str, Any] = job_header.NONE) -> job_header.Header:
    """Return the settings of a program: of its header, else of the project's pyproject.toml, else `defaults`.

    Raises UsageError for a file that is none, and for wrong settings.
    """
    file, settings = program.file, program.root / SETTINGS
    base = _whole(settings, "settings are") if program.is_project and settings.is_file() else b""
    data = _whole(file, "script is") if file else b""
    if file and data.startswith((b"\x7fELF", b"MZ\x90", b"\xcf\xfa\xed\xfe")):
        raise UsageError(
            f"{file} is a binary, not a script.", hint="A command goes after --: submit -- COMMAND"
        )
    if file and program.kind == SCRIPT and data.lstrip()[:1] == b"{" and b'"nbformat"' in data:
        raise UsageError(f"{file} is a notebook, not a script.", hint=f"Rename it: {file.stem}.ipynb")
    name = file.relative_to(program.here) if file and file.is_relative_to(program.here) else file
    return read_settings(program.kind, data, str(name or program.script), base, defaults)


def _whole(file: Path, kind: str) -> bytes:
    data = read_source(file)
    if len(data) > job_header.LONGEST_SCRIPT:
        raise UsageError(
            f"{file} is larger than {job_header.LONGEST_SCRIPT >> 20} MiB: no {kind}.",
            hint="Give the path of a Python script; data travels by --include, or by 'tpuctl data upload'.",
        )
    return data


def read_settings(
    kind: str, data: bytes, name: str, project: bytes, defaults: Mapping[str, Any] = job_header.NONE
) -> job_header.Header:
    """Return the settings in the file of a program, and below these in its pyproject.toml.

    A notebook needs IPython, and what its cells install by pip.
    """
    base = job_header.project_settings(_text(project, SETTINGS), SETTINGS) if project else job_header.NONE
    texts = cells(data, name) if kind == NOTEBOOK else []
    text = _text(script_of(texts) if kind == NOTEBOOK else data, name)
    job_header.check_settings(defaults, f"The table [run] of {FILE_NAME}")
    header = job_header.parse(text, name, (FILE_NAME, defaults), (SETTINGS, base))
    if kind != NOTEBOOK:
        return header
    needed = (*header.dependencies, *installs(texts)[0], "ipython")
    return msgspec.structs.replace(header, dependencies=tuple(dict.fromkeys(needed)))


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not a text file.", hint="Give the path of a Python script.") from error
