"""A job's header: PEP 723 inline metadata at the top of the script."""

from __future__ import annotations

import re

import msgspec

from tpuctl.errors import UsageError

FRAMEWORKS = ("tensorflow", "jax", "pytorch")

_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
"""The reference expression of PEP 723, with the type written out."""


class ToolTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[tool.tpuctl]` table."""

    accelerator: str | None = None
    dataset: str | None = None
    framework: str = "tensorflow"


class Header(msgspec.Struct, frozen=True):
    """What a script says about itself; an absent header says nothing."""

    requires_python: str = ""
    dependencies: tuple[str, ...] = ()
    tpuctl: ToolTable = ToolTable()


class _Tools(msgspec.Struct, frozen=True):
    tpuctl: ToolTable = ToolTable()


class _Block(msgspec.Struct, frozen=True, rename={"requires_python": "requires-python"}):
    requires_python: str = ""
    dependencies: tuple[str, ...] = ()
    tool: _Tools = _Tools()


def parse(text: str, path: str) -> Header:
    """Return the header of a script's text; raises UsageError that names `path` and what is wrong in it."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")  # Python reads such scripts, so we do
    blocks = [match.group("content") for match in _BLOCK.finditer(text)]
    if not blocks:
        return Header()
    if len(blocks) > 1:
        raise UsageError(f"{path} has {len(blocks)} '# /// script' blocks.", hint="PEP 723 allows one.")
    toml = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0].splitlines())
    try:
        block = msgspec.toml.decode(toml.encode(), type=_Block)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(
            f"The header of {path} is wrong: {error}.", hint="It is TOML behind '# ', as in PEP 723."
        ) from error
    if block.tool.tpuctl.framework not in FRAMEWORKS:
        raise UsageError(
            f"The header of {path} asks for the framework '{block.tool.tpuctl.framework}'.",
            hint=f"Known: {', '.join(FRAMEWORKS)}.",
        )
    return Header(block.requires_python, block.dependencies, block.tool.tpuctl)
