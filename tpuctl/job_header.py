"""Parses a job's header, PEP 723 inline metadata in the script, and the settings of its project."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec

from tpuctl.config import files
from tpuctl.errors import UsageError
from tpuctl.host.worker import requirements
from tpuctl.images import FRAMEWORKS

_BEGIN, _END = "# /// script", "# ///"
LONGEST = 1 << 15
"""Characters of a header."""
MOST_RESTARTS = 9999
"""As `--restarts` takes them: a number has four digits."""
PYTHON = r"\A(3\.[0-9]{1,2}(\.[0-9]{1,2})?)?\Z"
LONGEST_SCRIPT = 16 << 20
"""Bytes of a script whose header is read."""


class ToolTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[tool.tpuctl]` table."""

    accelerator: str | tuple[str, ...] | None = None
    """Type to run on; several, also with commas between them, in the order in which they are preferred."""
    dataset: str | None = None
    framework: str = ""
    """Empty where the header does not say it."""
    env: dict[str, str] = {}
    """Environment variables of the script."""
    requirements: str = ""
    """A lock file in the script's folder, in pip's format with hashes: hosts install it and nothing else."""
    packages: Literal["image", "own"] = "image"
    """Whether scripts see the packages of the image, and what hosts install keeps to its frameworks."""
    python: Annotated[str, msgspec.Meta(pattern=PYTHON)] = ""
    """Version of Python that runs the script, such as `3.12`; empty for any that it requires."""
    setup: str = ""
    """Command for sh that hosts run before the script."""
    restarts: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESTARTS)] | Literal["unlimited"] | None = None
    """How often it is started again after a preemption, a maintenance or a lost host."""
    restarts_on_failure: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESTARTS)] | None = None
    """How often it is started again after a failure of its own."""

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Names of the types to run on, the preferred one first; none for any."""
        names = (self.accelerator,) if isinstance(self.accelerator, str) else self.accelerator or ()
        parts = (part.strip() for name in names for part in name.split(","))
        return tuple(dict.fromkeys(filter(None, parts)))


class Header(msgspec.Struct, frozen=True):
    """A script's header; one without a header has these defaults."""

    requires_python: str = ""
    """Versions of Python as in PEP 440; empty for any."""
    dependencies: tuple[str, ...] = ()
    """Requirements as in PEP 508."""
    tpuctl: ToolTable = ToolTable()
    lists_dependencies: bool = False
    """Whether it says what it requires, if only that it requires nothing."""
    origins: dict[str, str] = {}
    """Names of settings in `tpuctl` that are not its own, `env.NAME` of variables -> the file with them."""

    def accepts_python(self, version: str) -> bool:
        """Return whether the script runs on this version of Python."""
        return requirements.accepts_python(self.tpuctl.python, self.requires_python, version)

    @property
    def asked_python(self) -> str:
        """What it asks for, for a sentence; empty for any."""
        return self.tpuctl.python or self.requires_python

    def with_python(self, python: str, place: str) -> Header:
        """Return it with a version of Python that `place` asks for; raises UsageError for none it allows."""
        python = python or self.tpuctl.python
        if not re.fullmatch(PYTHON, python):
            raise UsageError(f"'{python}' ({place}) is no version of Python.", hint="Write for instance 3.12")
        if python and not any(
            requirements.accepts(self.requires_python, version) for version in (python, f"{python}.99")
        ):
            raise UsageError(
                f"Python {python} ({place}) is none that the script allows: requires-python is"
                f" '{self.requires_python}'.",
                hint="Change one of them.",
            )
        return msgspec.structs.replace(self, tpuctl=msgspec.structs.replace(self.tpuctl, python=python))


class _Tools(msgspec.Struct, frozen=True):
    tpuctl: ToolTable = ToolTable()


class _Project(msgspec.Struct, frozen=True):
    tool: _Tools = _Tools()


class _Block(msgspec.Struct, frozen=True, rename={"requires_python": "requires-python"}):
    requires_python: str = ""
    dependencies: tuple[str, ...] | None = None
    tool: _Tools = _Tools()


NONE: Mapping[str, Any] = {}
"""No settings."""


def project_settings(text: str, path: str) -> Mapping[str, Any]:
    """Return the table `[tool.tpuctl]` of a pyproject.toml; raises UsageError as `parse` does."""
    try:
        table = files.decode(text, _Project).tool.tpuctl
        settings: Mapping[str, Any] = files.decode(text).get("tool", {}).get("tpuctl", NONE)
    except files.TomlError as error:
        raise UsageError(f"{path} is wrong: {error}.", hint="See its table [tool.tpuctl].") from None
    _check_table(table, path)
    return settings


def check_settings(settings: Mapping[str, Any], where: str) -> None:
    """Raise UsageError unless these are settings as a header has them."""
    try:
        _check_table(msgspec.convert(settings, ToolTable), where)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where} is wrong: {error}.", hint="It has what [tool.tpuctl] has.") from None


def parse(text: str, path: str, *bases: tuple[str, Mapping[str, Any]]) -> Header:
    """Return the header of a script's text, over the settings of files with their names, the weakest first.

    Raises UsageError that names `path` and the error in it.
    """
    content = _toml(text, path) or ""
    try:
        block: _Block = files.decode(content, _Block)
    except files.TomlError as error:
        raise UsageError(
            f"The header of {path} is wrong: {error}.", hint="It is TOML behind '# ', as in PEP 723."
        ) from None  # a traceback would show the names in it as they are
    _check_requirements(block, path)
    _check_table(block.tool.tpuctl, f"The header of {path}")
    listed = block.dependencies
    header = Header(block.requires_python, listed or (), block.tool.tpuctl, listed is not None)
    if not any(settings for _, settings in bases):
        return header
    own = files.decode(content).get("tool", {}).get("tpuctl", NONE)
    merged: dict[str, Any] = {}
    for settings in (*(settings for _, settings in bases), own):
        merged = {**merged, **settings, "env": {**merged.get("env", {}), **settings.get("env", {})}}
    origins = {name: file for file, settings in bases for name in settings if name not in own}
    origins |= {
        f"env.{name}": file
        for file, settings in bases
        for name in settings.get("env", NONE)
        if name not in own.get("env", NONE)
    }
    return msgspec.structs.replace(header, tpuctl=msgspec.convert(merged, ToolTable), origins=origins)


def _check_table(table: ToolTable, where: str) -> None:
    _check_lock_path(table.requirements, where)
    if table.framework not in ("", *FRAMEWORKS):
        raise UsageError(
            f"{where} asks for the framework '{table.framework}'.", hint=f"Known: {', '.join(FRAMEWORKS)}."
        )
    for name in table.env:
        if not name.isidentifier():
            raise UsageError(
                f"{where} is wrong: '{name}' is not the name of a variable.",
                hint='Write for instance env = { TF_CPP_MIN_LOG_LEVEL = "0" }',
            )


def _toml(text: str, path: str) -> str | None:
    """Return the TOML inside a script's comment block, or None without a block."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")  # Python reads such scripts, too
    blocks = list(_blocks(text, path))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise UsageError(f"{path} has {len(blocks)} '# /// script' blocks.", hint="PEP 723 allows one.")
    return "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0])


def _blocks(text: str, path: str) -> Iterator[list[str]]:
    """Yield the lines of each block, up to the last end among the comments that follow its beginning.

    As the reference expression of PEP 723 has it, but in linear time. Raises UsageError for a long one.
    """
    block: list[str] | None = None  # comments since its beginning, of which the first `whole` are it
    size = whole = 0
    for line in _lines(text, max(text.find(_BEGIN), 0)):
        if block is None:
            if line == _BEGIN:
                block, size, whole = [], 0, 0
            continue
        if line != "#" and not line.startswith("# "):
            if whole:
                yield block[:whole]
            block = None
            continue
        if line == _END and block:
            whole = len(block)
        block.append(line)
        size += len(line) + 1
        if size > LONGEST:
            raise UsageError(
                f"The header of {path} is longer than {LONGEST} characters.", hint="End it by a line '# ///'."
            )


def _lines(text: str, start: int) -> Iterator[str]:
    """Yield the lines from the one that holds a place on, and an empty one."""
    at = text.rfind("\n", 0, start) + 1
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield from (text[at:], "")


def _check_requirements(block: _Block, path: str) -> None:
    try:
        requirements.accepts(block.requires_python, "3.11")
    except ValueError as error:  # also for a number of thousands of digits
        raise UsageError(
            f"The header of {path} is wrong: requires-python is '{block.requires_python[:100]}'.",
            hint='Write for instance requires-python = ">=3.10"',
        ) from error
    try:
        for dependency in block.dependencies or ():
            requirements.parse(dependency)
    except requirements.RequirementError as error:
        raise UsageError(
            f"The header of {path} is wrong: {error}.",
            hint='Write for instance dependencies = ["numpy>=1.26"]; or "NAME @ https://..."',
        ) from error


def _check_lock_path(name: str, where: str) -> None:
    parts = PurePosixPath(name)
    if name and (parts.is_absolute() or ".." in parts.parts or not name.isprintable() or "\\" in name):
        raise UsageError(
            f"{where} is wrong: '{name}' is not a file in the script's folder.",
            hint='Write for instance requirements = "requirements.lock"',
        )
