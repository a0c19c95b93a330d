"""Parses filters of lists, in the simple form that tools send: `field=value`, `field:part`, AND."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tpuctl.sim.world.api_errors import api_error

TERM = re.compile(
    r"""\s*(?P<not>NOT\s+|-)? (?P<path>[\w.]+) \s*(?P<operator>!=|=|:)\s* (?P<value>"[^"]*"|[^\s()"]+)""",
    re.VERBOSE,
)
AND = re.compile(r"\s+AND\s+|\s+")

COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda actual, operand: actual == operand,
    "!=": lambda actual, operand: actual != operand,
    ":": lambda actual, operand: operand.rstrip("*") in actual,
}


def matcher(text: str) -> Callable[[Mapping[str, object]], bool]:
    """Return a test of a resource in its JSON form; raises INVALID_ARGUMENT for a text that is no filter.

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
            raise api_error("bad_filter", reason=f"'{text}' is not understood at '{text[at:]}'")
        terms.append(term)
        at = term.end()
    return lambda resource: all(_holds(term, resource) for term in terms)


def _holds(term: re.Match[str], resource: Mapping[str, object]) -> bool:
    value: object = resource
    for part in term["path"].split("."):
        value = value.get(_camel_case(part)) if isinstance(value, Mapping) else None
    text = str(value).lower() if isinstance(value, bool) else str("" if value is None else value)
    return COMPARISONS[term["operator"]](text, term["value"].strip('"')) != bool(term["not"])


def _camel_case(part: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), part)
