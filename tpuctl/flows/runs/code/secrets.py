"""Finds secrets in the files of a bundle: credentials that came along with a folder are refused."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.masking.diffs import is_settings_file
from tpuctl.masking.files import credential_kind
from tpuctl.masking.text import secrets_in

LONGEST = 1024 * 1024
"""Most bytes of a file that is read: longer ones are data."""
MOST_PLACES = 3
"""Places that are named; the others are counted."""
ADVICE = "Pass secrets in variables instead: --secret NAME."


def check_bundle(code: Bundle, include: Collection[Path], root: Path) -> list[str]:
    """Return warnings about secrets in a bundle's files, which everybody sees who can read the bucket.

    `root` is the script's folder. Raises UsageError for a file with credentials that is in the bundle with
    its folder; a file that `include` names itself is meant.
    """
    named = {_name(path, root) for path in include if path.is_file()}
    warnings: list[str] = []
    places: list[str] = []
    for name, _, stream in code.members():
        content = stream.read(LONGEST + 1)
        kind = "" if name == code.script else credential_kind(name, content[:LONGEST])
        if kind and name not in named:
            raise UsageError(
                f"{name} holds {kind}, and would be stored in the bucket with its folder.",
                hint=f"Move it elsewhere. {ADVICE} Or name the file itself: --include {shlex.quote(name)}",
            )
        if kind:
            warnings.append(f"Warning: {name} holds {kind}, and is stored in the bucket. {ADVICE}")
        else:
            places += _places(name, content)
    return warnings + _warning_of(places)


def _name(file: Path, root: Path) -> str:
    """Return a file's name in the bundle: links in it keep their names."""
    return (file.parent.resolve() / file.name).relative_to(root.resolve()).as_posix()


def _places(name: str, content: bytes) -> Iterator[str]:
    if len(content) > LONGEST or b"\0" in content:
        return
    text = content.decode(errors="replace")
    for secret in secrets_in(text, is_code=not is_settings_file(name)):
        line = text.count("\n", 0, secret.start) + 1
        yield f"{name}, line {line}, which looks like {secret.kind}"


def _warning_of(places: list[str]) -> list[str]:
    if not places:
        return []
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    listed = "; ".join(places[:MOST_PLACES])
    return [f"Warning: the bucket gets secrets in the script's files: {listed}{more}. {ADVICE}"]
