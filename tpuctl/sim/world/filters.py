"""Filters of lists, in the simple form that tools send: `field=value`, `field:part`, joined by AND."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tpuctl.sim.world.api_errors import problem

TERM = re.compile(
    r"""\s*(?P<not>NOT\s+|-)? (?P<path>[\w.]+) \s*(?P<operator>!=|=|:)\s* (?P<value>"[^"]*"|[^\s()"]+)""",
    re.VERBOSE,
)
AND = re.compile(r"\s+AND\s+|\s+")

MATCHES: dict[str, Callable[[str, str], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    ":": lambda found, wanted: wanted.rstrip("*") in found,
}


def matcher(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a test of an entry in its JSON form; raises INVALID_ARGUMENT for what is no such filter.

    OR and parentheses are refused; the grammar of Google's filters (google.aip.dev/160) has more.
    """
    terms: list[re.Match[str]] = []
    at = 0
    while at < len(text.rstrip()):
        if terms:
            joint = AND.match(text, at)
            at = joint.end() if joint else at
        term = TERM.match(text, at)
        if not term or term["path"] in ("AND", "OR"):
            raise problem("bad_filter", what=f"'{text}' is not understood at '{text[at:]}'")
        terms.append(term)
        at = term.end()
    return lambda entry: all(_holds(term, entry) for term in terms)


def _holds(term: re.Match[str], entry: Mapping[str, Any]) -> bool:
    value: Any = entry
    for part in term["path"].split("."):
        value = value.get(_camel(part)) if isinstance(value, Mapping) else None
    text = str(value).lower() if isinstance(value, bool) else str("" if value is None else value)
    return MATCHES[term["operator"]](text, term["value"].strip('"')) != bool(term["not"])


def _camel(part: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), part)
