"""Defines the filters of a listing of objects, and the page token of its next page."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.rules.parameters import is_true, parse_number

TOKENS = (
    (re.compile(r"\*\*/"), "(?:.*/)?"),  # also no folder at all
    (re.compile(r"\*\*"), ".*"),
    (re.compile(r"\*"), "[^/]*"),
    (re.compile(r"\?"), "[^/]"),
)
"""Wildcard -> its regular expression; the first that matches counts."""
_CLASS = re.compile(r"\[([!^]?)([^\]]+)\]")
_CHOICE = re.compile(r"\{([^{}]*)\}")
LARGEST_PAGE = 1000
"""Objects and prefixes together on one page, at most and by default."""


@dataclass(frozen=True)
class Position:
    """Where a page begins: the first key to read, and the last common prefix that was listed."""

    name: str = ""
    generation: int = 0
    prefix: str = ""

    @classmethod
    def of_token(cls, token: str) -> Position:
        """Parse a page token; raises 400."""
        try:
            name, generation, prefix = json.loads(base64.urlsafe_b64decode(token))
            return cls(str(name), int(generation), str(prefix))
        except (ValueError, TypeError, binascii.Error) as error:
            raise invalid("Invalid value for parameter pageToken.") from error

    def to_token(self) -> str:
        """Return the page token."""
        return base64.urlsafe_b64encode(
            json.dumps([self.name, self.generation, self.prefix]).encode()
        ).decode()


@dataclass(frozen=True)
class ListQuery:
    """The filters, the size and the start of one page of a listing."""

    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    glob: re.Pattern[str] | None = None
    versions: bool = False
    soft_deleted: bool = False
    trailing_delimiter: bool = False
    limit: int = LARGEST_PAGE
    position: Position = Position()

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        """Parse the query parameters of the JSON API's objects.list; raises 400."""
        if is_true(query.get("softDeleted")) and is_true(query.get("versions")):
            raise invalid("softDeleted and versions cannot both be true.")
        limit = parse_number("maxResults", query.get("maxResults") or LARGEST_PAGE)
        token = query.get("pageToken")
        return cls(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start_offset=query.get("startOffset", ""),
            end_offset=query.get("endOffset", ""),
            glob=compile_glob(query["matchGlob"]) if query.get("matchGlob") else None,
            versions=is_true(query.get("versions")),
            soft_deleted=is_true(query.get("softDeleted")),
            trailing_delimiter=is_true(query.get("includeTrailingDelimiter")),
            limit=min(limit, LARGEST_PAGE) or LARGEST_PAGE,
            position=Position.of_token(token) if token else Position(),
        )

    def common_prefix(self, name: str) -> str:
        """Return the common prefix that stands for a name in the listing, or nothing."""
        if not self.delimiter:
            return ""
        at = name.find(self.delimiter, len(self.prefix))
        return name[: at + len(self.delimiter)] if at >= 0 else ""


# matchGlob patterns, https://cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob.


def compile_glob(glob: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; raises 400 for an invalid glob."""
    try:
        return re.compile(_translate(glob), re.DOTALL)
    except re.error as error:
        raise invalid(f"Invalid value for parameter matchGlob: {glob}") from error


def _translate(glob: str) -> str:
    out, at = "", 0
    while at < len(glob):
        piece, at = _next(glob, at)
        out += piece
    return out


def _next(glob: str, at: int) -> tuple[str, int]:
    for token, expression in TOKENS:
        if wildcard := token.match(glob, at):
            return expression, wildcard.end()
    if characters := _CLASS.match(glob, at):
        negated = "^" if characters[1] else ""
        return f"[{negated}{characters[2]}]".replace("\\", "\\\\"), characters.end()
    if choices := _CHOICE.match(glob, at):
        return "(?:" + "|".join(map(_translate, choices[1].split(","))) + ")", choices.end()
    return re.escape(glob[at]), at + 1
