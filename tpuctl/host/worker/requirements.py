"""Reads requirements, on laptop and host: PEP 508 and addresses of git, so that none is an option of pip.

`packaging` is imported where it is used: that takes 25 ms, and most commands read no requirement.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence, Tuple

_TEXT = re.compile(r"[\t -#%-\[\]-~]{1,2000}")
"""ASCII in one line, without what joins lines in a file of pip (a backslash), or is a variable there."""
_URL = re.compile(r"(?:git\+)?https://[A-Za-z0-9][A-Za-z0-9.:@_~%+-]*/[A-Za-z0-9._~:/?#&'()*+,;=%!@-]*")
SOURCE = re.compile(
    r"--(?:extra-index-url|index-url|find-links) https://[A-Za-z0-9][A-Za-z0-9.:_~%+-]*/[A-Za-z0-9._~:/?&=%+-]*"
)
"""An option that says where packages come from; the URL has no password."""
_HASH = re.compile(r"[ \t]--hash=(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})(?=[ \t]|$)")
_COMMENT = re.compile(r"(^|[ \t])#.*$")
_PIN = re.compile("===?[A-Za-z0-9._+!-]+")


_NAMELESS = re.compile(
    r"git\+https://[^#\s]+/([A-Za-z0-9][A-Za-z0-9._-]*?)(?:\.git)?/?(?:@[^@/#;\s]+)?(?:(?:#|\s*;).*)?"
)
"""What pip takes without a name: the repository's counts until it is built."""


class RequirementError(ValueError):
    """A text is not a requirement."""


class Requirement(NamedTuple):
    """One requirement; `text` is what pip gets."""

    text: str
    name: str
    """Normalized as in PEP 503."""
    extras: Tuple[str, ...] = ()
    specifier: str = ""
    url: str = ""
    marker: str = ""
    hashes: Tuple[str, ...] = ()
    """Of a locked requirement: `sha256:...`, one for each file that may be installed."""

    @property
    def masked(self) -> str:
        """The text for a message: without user and password of the URL."""
        return re.sub("//[^/]*@", "//***@", self.text)


def normalized(name: str) -> str:
    """Return the name of a distribution as PEP 503 compares names."""
    return re.sub("[-_.]+", "-", name).lower()


def accepts(specifier: str, version: str) -> bool:
    """Return whether a version fulfils every clause of a specifier such as `>=1.26,<3`, empty for any.

    Pre-releases count, as they do for what is installed. Raises ValueError for a malformed specifier; a
    version that is not of PEP 440 fulfils none but the empty one.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    clauses = SpecifierSet(specifier)
    try:
        return not specifier or clauses.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def accepts_python(python: str, requires: str, version: str) -> bool:
    """Return whether a version is the `python` that was asked for, such as 3.12, and fulfils a specifier.

    Either may be empty. Raises ValueError for a malformed specifier.
    """
    is_asked = not python or (version + ".").startswith(python + ".")
    return accepts(requires, version) and is_asked


def parse(text: str) -> Requirement:
    """Return a requirement: of PEP 508, or the bare address of a git repository.

    Raises RequirementError for anything else, such as an option or a path.
    """
    import packaging.requirements

    text = text.strip(" \t")
    error = RequirementError("'%s' is not a requirement" % shown(text[:2000]))
    if not _TEXT.fullmatch(text):
        raise error
    bare = _NAMELESS.fullmatch(text)
    try:
        read = packaging.requirements.Requirement("%s @ %s" % (bare.group(1), text) if bare else text)
    except (ValueError, RecursionError):  # the latter for brackets in each other
        raise error from None
    url, marker = read.url or "", str(read.marker or "")
    if url and not _URL.fullmatch(url):
        raise error
    if re.search("@-|/-[^/]*@", url):
        raise RequirementError("%s: its URL holds an option of git" % error)
    extras = tuple(sorted(map(normalized, read.extras)))
    return Requirement(text, normalized(read.name), extras, str(read.specifier), url, marker)


def shown(text: str) -> str:
    """Return text for a message: in tracebacks, too, it steers no terminal."""
    return ascii(text)[1:-1]


def parse_lock(text: str) -> Sequence[Requirement]:
    """Return the requirements of a lock file: pip's format, each one pinned and with hashes.

    It is what `uv pip compile --generate-hashes` and `pip-compile --generate-hashes` write. Raises
    RequirementError, which names the line, for options and for a requirement without a version or a hash.
    """
    return [_locked(number, line) for number, line in logical_lines(text)]


def lock_text(requirements: Sequence[Requirement]) -> str:
    """Return a lock file of these requirements and nothing else."""
    return "".join(
        "%s %s\n" % (requirement.text, " ".join("--hash=" + digest for digest in requirement.hashes))
        for requirement in requirements
    )


def _locked(number: int, line: str) -> Requirement:
    hashes = tuple(_HASH.findall(line))
    try:
        requirement = parse(_HASH.sub("", line))
    except RequirementError as error:
        raise RequirementError("line %d: %s" % (number, error)) from None
    if not hashes:
        raise RequirementError("line %d: '%s' has no hash" % (number, requirement.text))
    if not requirement.url and (not _PIN.fullmatch(requirement.specifier)):
        raise RequirementError("line %d: '%s' is not pinned by ==" % (number, requirement.text))
    return requirement._replace(hashes=hashes)


def logical_lines(text: str) -> Sequence[Tuple[int, str]]:
    """Lines without comments, those that end in a backslash joined; each with the number of its first."""
    lines, start, pending = [], 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        start = start or number
        content = _COMMENT.sub("", line).rstrip(" \t")
        pending += " " + content.rstrip("\\")
        if not content.endswith("\\"):
            if pending.strip(" \t"):
                lines.append((start, pending.strip(" \t")))
            start, pending = 0, ""
    return lines + ([(start, pending.strip(" \t"))] if pending.strip(" \t") else [])
