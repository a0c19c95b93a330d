"""The ifGeneration* and ifMetageneration* conditions, and HTTP's own on ETags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tpuctl.sim.gcs.errors import condition_not_met, invalid, not_modified

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
    """What must hold of the live object (0 and 0 where there is none) for a call to go on."""

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
        """Return the conditions that were given, for `Preconditions(**...)`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, generation: int, metageneration: int, *, reading: bool = False) -> None:
        """Raise 412, or 304 to a reader whose "not match" fails, unless every condition holds."""
        if self.generation_match not in (None, generation):
            raise condition_not_met()
        if self.metageneration_match not in (None, metageneration):
            raise condition_not_met()
        if self.generation_not_match == generation or self.metageneration_not_match == metageneration:
            raise not_modified() if reading else condition_not_met()


def check_etags(headers: Mapping[str, str], etag: str) -> None:
    """Raise 412 or 304 to a reader unless its If-Match and If-None-Match hold."""
    wanted, unwanted = _etags(headers.get("If-Match")), _etags(headers.get("If-None-Match"))
    if wanted and not wanted & {etag, "*"}:
        raise condition_not_met()
    if unwanted & {etag, "*"}:
        raise not_modified()


def parse_number(name: str, text: object) -> int:
    """Return a generation or the like as a number; raise 400 if it is none."""
    try:
        number = int(str(text))
    except ValueError as error:
        raise invalid(f"Invalid value for parameter {name}: {text}") from error
    if not 0 <= number < 1 << 63:
        raise invalid(f"Invalid value for parameter {name}: {text}")
    return number


def _number(source: Mapping[str, object] | Mapping[str, str], name: str) -> int | None:
    text = source.get(name)
    return None if text is None else parse_number(name, text)


def _etags(header: str | None) -> set[str]:
    return {part.strip().strip('"') for part in (header or "").split(",") if part.strip()}
