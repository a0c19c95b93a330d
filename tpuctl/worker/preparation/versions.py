"""Compares versions as PEP 440 defines: hosts have no other library for it."""

from __future__ import annotations

import re
import sys
from typing import Iterable, Optional, Tuple

_VERSION = re.compile(
    r"""\s*v?(?:(?P<epoch>[0-9]+)!)?(?P<release>[0-9]+(?:\.[0-9]+)*)
    (?:[-_.]?(?P<phase>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre>[0-9]+)?)?
    (?P<after>-(?P<implicit>[0-9]+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post>[0-9]+)?)?
    (?P<development>[-_.]?dev[-_.]?(?P<dev>[0-9]+)?)?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_PHASES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_CLAUSE = re.compile(r"(===|~=|==|!=|<=|>=|<|>)[ \t]*([A-Za-z0-9._*+!-]+)")


class Version:
    """One version; raises ValueError for a text that is none."""

    def __init__(self, text: str) -> None:
        match = _VERSION.fullmatch(text)
        if not match:
            raise ValueError("%r is not a version" % text)
        phase = (match["phase"] or "").lower()
        self.epoch = int(match["epoch"] or 0)
        self.release = tuple(map(int, match["release"].split(".")))
        self.pre = (_PHASES.get(phase, phase), int(match["pre"] or 0)) if phase else None
        self.post = int(match["implicit"] or match["post"] or 0) if match["after"] else None
        self.dev = int(match["dev"] or 0) if match["development"] else None
        self.local = (
            tuple(map(_local_part, re.split("[-_.]", (match["local"] or "").lower())))
            if match["local"]
            else ()
        )

    @property
    def base(self) -> Tuple[int, Tuple[int, ...]]:
        """Epoch and release: what pre-, post- and development releases have in common."""
        return self.epoch, _without_zeros(self.release)

    @property
    def is_prerelease(self) -> bool:
        """Whether it comes before the release of its numbers."""
        return self.pre is not None or self.dev is not None

    @property
    def public(self) -> Tuple[object, ...]:
        """The order among versions, without the local part."""
        if self.pre is None and self.post is None and self.dev is not None:
            pre: Tuple[object, ...] = (0,)
        else:
            pre = (2,) if self.pre is None else (1, *self.pre)
        dev = (1, 0) if self.dev is None else (0, self.dev)
        return (*self.base, pre, -1 if self.post is None else self.post, dev)

    @property
    def order(self) -> Tuple[object, ...]:
        """The order among all versions."""
        return (*self.public, self.local)


def python_error(specifier: str) -> str:
    """Return why this Python cannot run a script whose header has this `requires-python`, or ""."""
    present = sys.version.partition(" ")[0]
    try:
        if accepts(specifier, present):
            return ""
    except ValueError as error:
        return "requires-python: %s" % error
    return "the script requires Python %s, and the host has %s" % (specifier, present)


def accepts(specifier: str, version: str) -> bool:
    """Return whether a version fulfils every clause of a specifier such as `>=1.26,<3`, empty for any.

    Pre-releases count, as they do for what is installed. Raises ValueError for a malformed specifier; a
    version that is not of PEP 440 fulfils none but the empty one.
    """
    clauses = list(_clauses(specifier))
    try:
        return all(_fulfils(operator, wanted, version) for operator, wanted in clauses)
    except _NoVersion:
        return False


class _NoVersion(Exception):
    """What is installed has a version from before PEP 440."""


def _clauses(specifier: str) -> Iterable[Tuple[str, str]]:
    for clause in filter(None, (part.strip(" \t") for part in specifier.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if not match:
            raise ValueError("%r is not a version specifier" % clause)
        operator, text = match.groups()
        if operator != "===":
            Version(text[:-2] if operator in ("==", "!=") and text.endswith(".*") else text)
        yield operator, text


def _fulfils(operator: str, text: str, version: str) -> bool:
    if operator == "===":
        return text.lower() == version.strip().lower()
    installed = _installed(version)
    if operator in ("==", "!="):
        return _equals(text, installed) == (operator == "==")
    limit = Version(text)
    if operator == "~=":
        return installed.public >= limit.public and _begins(installed, limit.epoch, limit.release[:-1])
    if operator in ("<=", ">="):
        return installed.public <= limit.public if operator == "<=" else installed.public >= limit.public
    return _is_below(installed, limit) if operator == "<" else _is_above(installed, limit)


def _installed(version: str) -> Version:
    try:
        return Version(version)
    except ValueError:
        raise _NoVersion from None


def _equals(text: str, installed: Version) -> bool:
    if not text.endswith(".*"):
        limit = Version(text)
        return installed.order == limit.order if limit.local else installed.public == limit.public
    prefix = Version(text[:-2])
    if prefix.pre is None and prefix.post is None:
        return _begins(installed, prefix.epoch, prefix.release)
    return (installed.base, installed.pre) == (prefix.base, prefix.pre) and prefix.post in (
        None,
        installed.post,
    )


def _is_below(installed: Version, limit: Version) -> bool:
    """`<2` leaves out also the pre-releases of 2."""
    of_limit = limit.post is None or (installed.pre, installed.post) == (limit.pre, limit.post)
    if of_limit and installed.base == limit.base and installed.is_prerelease and not limit.is_prerelease:
        return False
    return installed.order < limit.order


def _is_above(installed: Version, limit: Version) -> bool:
    """`>2` leaves out also the post-releases and the local builds of 2."""
    of_limit = (installed.base, installed.pre) == (limit.base, limit.pre) and limit.dev is None
    if of_limit and installed.post is not None and limit.post is None:
        return False
    if installed.local and installed.public == limit.public:
        return False
    return installed.order > limit.order


def _begins(version: Version, epoch: int, release: Tuple[int, ...]) -> bool:
    padded = version.release + (0,) * (len(release) - len(version.release))
    return version.epoch == epoch and padded[: len(release)] == release


def _without_zeros(release: Tuple[int, ...]) -> Tuple[int, ...]:
    last: Optional[int] = next((place for place in range(len(release), 0, -1) if release[place - 1]), 0)
    return release[:last]


def _local_part(part: str) -> Tuple[int, int, str]:
    """Numbers come after words."""
    return (1, int(part), "") if part.isdigit() else (0, 0, part)
