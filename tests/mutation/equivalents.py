"""Mistakes that change no behaviour, each with the reason: no test can catch them."""

from __future__ import annotations

from tests.mutation.mutants import Mutant

EQUIVALENTS: dict[tuple[str, str, str], str] = {
    # file, line as it was, line with the mistake: why both do the same
}


def reason(mutant: Mutant, source: str) -> str:
    """Return why a mistake changes no behaviour; empty if it may."""
    before, after = (text.splitlines()[mutant.line - 1].strip() for text in (source, mutant.applied(source)))
    return EQUIVALENTS.get((mutant.file, before, after), "")
