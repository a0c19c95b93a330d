"""Compares the code of two runs, file by file, in bounded time and memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tpuctl.flows.runs.code.bundles import PART, Bundle

LONGEST = 1 << 20
"""Bytes of a file that is compared line by line."""
MOST_LINES = 5000
"""Lines of such a file: the comparison takes a time that grows with their square."""
LONGEST_LINE = 10_000
"""Characters of a line of such a file: what generates longer ones is not read line by line."""
MOST_HELD = 8 << 20
"""Bytes of such files that are held at once; the others have no lines."""
MOST_SHOWN = 2000
"""Lines of all differences."""


@dataclass(frozen=True)
class FileDifference:
    """One file that only one bundle has, or both have with other content."""

    name: str
    sizes: tuple[int | None, int | None]
    """Bytes in the first and the second one; None where it is absent."""
    lines: tuple[str, ...] = ()
    """As `diff -u` has them; empty for a binary or a long file."""


def differences(first: Bundle, second: Bundle, names: tuple[str, str]) -> list[FileDifference]:
    """Return the files in which two bundles differ, in the order of their names.

    Lines begin with the `names` of the two. Once there are too many, the other files have no lines.
    """
    digests = _digests(first), _digests(second)
    every = sorted({*digests[0], *digests[1]})
    unequal = [name for name in every if digests[0].get(name) != digests[1].get(name)]
    wanted = frozenset(unequal)
    texts = _texts(first, wanted), _texts(second, wanted)
    result, shown = [], 0
    for name in unequal:
        sizes = tuple(digest[name][0] if name in digest else None for digest in digests)
        lines = _unified(name, texts, names) if shown < MOST_SHOWN else ()
        lines = lines[: MOST_SHOWN - shown]
        shown += len(lines)
        result.append(FileDifference(name, (sizes[0], sizes[1]), lines))
    return result


def _digests(code: Bundle) -> dict[str, tuple[int, str]]:
    """Return the size and the hash of each file."""
    result = {}
    for name, size, stream in code.members():
        digest = hashlib.sha256()
        while part := stream.read(PART):
            digest.update(part)
        result[name] = size, digest.hexdigest()
    return result


def _texts(code: Bundle, wanted: Collection[str]) -> dict[str, list[str] | None]:
    """Return the lines of some files; None for what is no text, or too long or too much."""
    result: dict[str, list[str] | None] = {}
    left = MOST_HELD
    for name, size, stream in code.members() if wanted else ():
        if name in wanted:
            data = stream.read() if size <= min(LONGEST, left) else b"\0"
            left -= len(data)
            lines = data.decode("utf-8", "replace").splitlines()
            is_text = b"\0" not in data and len(lines) <= MOST_LINES
            result[name] = lines if is_text and max(map(len, lines), default=0) <= LONGEST_LINE else None
    return result


def _unified(
    name: str, texts: tuple[Mapping[str, list[str] | None], ...], names: tuple[str, str]
) -> tuple[str, ...]:
    import difflib  # noqa: PLC0415  slow, and only code that differs needs it

    before, after = (text.get(name, []) for text in texts)
    if before is None or after is None:
        return ()
    old, new = (
        f"{run}/{name}" if name in text else "/dev/null" for run, text in zip(names, texts, strict=True)
    )
    return tuple(_limited(difflib.unified_diff(before, after, old, new, lineterm="")))


def _limited(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number == MOST_SHOWN:
            return
        yield line
