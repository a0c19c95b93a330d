"""A mistake that is planted into a copy of terraform/."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.terraform.workbench import Workbench


class Gone(Exception):
    """The text that a mistake replaces is no longer in its file, so that nothing was planted or checked."""


@dataclass(frozen=True)
class Mistake:
    """A mistake: in `file`, `old` is replaced by `new`; with an empty `old`, `new` is added at the end."""

    name: str
    file: str
    old: str
    new: str
    check: str
    """A key of checks.CHECKS."""
    message: str
    """A part of what the check says; one of several, divided by `|`."""
    version: str = "8.7.0"
    """Version of the providers."""
    asserted: tuple[str, str] = ("", "")
    """The file of terraform/tests whose assertion names it too, and a part of that message."""


def added(name: str, file: str, text: str, check: str, message: str) -> Mistake:
    """Return a mistake that adds a block to a file."""
    return Mistake(name, file, "", text, check, message)


def is_gone(mistake: Mistake, text: str) -> str:
    """Return why a mistake cannot be planted into the text of its file; empty if it can."""
    if mistake.old not in text:
        return (
            f"{mistake.name!r} was not planted: {mistake.file} has no {mistake.old!r} any more. Nothing says "
            "whether the mistake is caught; write its row for the text of now, or delete the row"
        )
    return f"{mistake.name!r} changes nothing" if mistake.old == mistake.new else ""


@contextmanager
def planted(bench: Workbench, mistake: Mistake) -> Iterator[None]:
    """Plant a mistake, and take it away at the end; raise Gone if its text is not there."""
    path = bench.folder / mistake.file
    text = path.read_text()
    if problem := is_gone(mistake, text):
        raise Gone(problem)
    path.write_text(text.replace(mistake.old, mistake.new, 1) if mistake.old else f"{text}\n{mistake.new}\n")
    try:
        yield
    finally:
        path.write_text(text)
