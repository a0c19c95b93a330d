"""Checks preconditions of requests: ifGeneration*, ifMetageneration*, If-Match and If-None-Match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tpuctl.sim.gcs.errors import condition_not_met, not_modified
from tpuctl.sim.gcs.rules.parameters import parse_number

QUERY_NAMES = {
    "generation_match": "GenerationMatch",
    "generation_not_match": "GenerationNotMatch",
    "metageneration_match": "MetagenerationMatch",
    "metageneration_not_match": "MetagenerationNotMatch",
}
"""Field -> its name in the JSON API after `if` or `ifSource`."""

HEADER_NAMES = {
    "generation_match": "generation-match",
    "generation_not_match": "generation-not-match",
    "metageneration_match": "metageneration-match",
    "metageneration_not_match": "metageneration-not-match",
}
"""Field -> its header in the XML API after `x-goog-if-` or `x-goog-copy-source-if-`."""


@dataclass(frozen=True)
class Preconditions:
    """Conditions on the generations of the live object; an absent object has generation 0."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    @classmethod
    def of_query(cls, query: Mapping[str, object], prefix: str = "if") -> Preconditions:
        """Read the conditions of a JSON API call; `prefix` is `ifSource` for those on a copy's source."""
        return cls(**{field: _number(query, prefix + name) for field, name in QUERY_NAMES.items()})

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], prefix: str = "x-goog-if-") -> Preconditions:
        """Read the conditions of an XML API call."""
        return cls(**{field: _number(headers, prefix + name) for field, name in HEADER_NAMES.items()})

    def to_json(self) -> dict[str, int]:
        """Return the conditions that are set, for `Preconditions(**...)`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, generation: int, metageneration: int, *, reading: bool = False) -> None:
        """Raise 412 unless every condition holds; a reader whose "not match" fails gets 304."""
        if self.generation_match not in (None, generation):
            raise condition_not_met()
        if self.metageneration_match not in (None, metageneration):
            raise condition_not_met()
        if self.generation_not_match == generation or self.metageneration_not_match == metageneration:
            raise not_modified() if reading else condition_not_met()


def check_etags(headers: Mapping[str, str], etag: str) -> None:
    """Raise 412 unless If-Match holds for a reader, 304 unless If-None-Match does."""
    match, none_match = _etags(headers.get("If-Match")), _etags(headers.get("If-None-Match"))
    if match and not match & {etag, "*"}:
        raise condition_not_met()
    if none_match & {etag, "*"}:
        raise not_modified()


def _number(parameters: Mapping[str, object] | Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name)
    return None if text is None else parse_number(name, text)


def _etags(header: str | None) -> set[str]:
    return {part.strip().strip('"') for part in (header or "").split(",") if part.strip()}
