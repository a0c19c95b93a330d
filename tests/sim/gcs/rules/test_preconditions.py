"""Preconditions: https://cloud.google.com/storage/docs/request-preconditions."""

from __future__ import annotations

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions, check_etags

EVERY = Preconditions(
    generation_match=1, generation_not_match=2, metageneration_match=3, metageneration_not_match=4
)


def test_they_are_in_the_query_of_the_json_api() -> None:
    names = ("GenerationMatch", "GenerationNotMatch", "MetagenerationMatch", "MetagenerationNotMatch")
    query = {f"if{name}": str(number) for number, name in enumerate(names, 1)}
    source = {f"ifSource{name}": str(number) for number, name in enumerate(names, 1)}
    assert Preconditions.of_query(query) == EVERY
    assert Preconditions.of_query(source, "ifSource") == EVERY
    assert Preconditions.of_query(source) == Preconditions() == Preconditions.of_query({})
    assert Preconditions(**EVERY.to_json()) == EVERY
    assert Preconditions(generation_match=0).to_json() == {"generation_match": 0}


def test_they_are_in_the_headers_of_the_xml_api() -> None:
    names = ("generation-match", "generation-not-match", "metageneration-match", "metageneration-not-match")
    headers = {f"x-goog-if-{name}": str(number) for number, name in enumerate(names, 1)}
    source = {f"x-goog-copy-source-if-{name}": str(number) for number, name in enumerate(names, 1)}
    assert Preconditions.of_headers(headers) == EVERY
    assert Preconditions.of_headers(source, "x-goog-copy-source-if-") == EVERY
    assert Preconditions.of_headers(source) == Preconditions()


@pytest.mark.parametrize("text", ["x", "-1", "", "1.5", str(1 << 63)])
def test_one_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(GcsError, match=f"^Invalid value for parameter ifGenerationMatch: {text}$") as raised:
        Preconditions.of_query({"ifGenerationMatch": text})
    assert raised.value.status == 400


def test_a_number_has_63_bits() -> None:
    largest = (1 << 63) - 1
    assert Preconditions.of_query({"ifGenerationMatch": str(largest)}).generation_match == largest
    assert Preconditions.of_query({"ifGenerationMatch": "0"}).generation_match == 0


@pytest.mark.parametrize(
    ("conditions", "status", "reading"),
    [
        (Preconditions(), 200, 200),
        (Preconditions(generation_match=7, metageneration_match=2), 200, 200),
        (Preconditions(generation_match=8, metageneration_match=2), 412, 412),
        (Preconditions(generation_match=7, metageneration_match=3), 412, 412),
        (Preconditions(generation_match=0), 412, 412),
        (Preconditions(generation_not_match=7), 412, 304),
        (Preconditions(metageneration_not_match=2), 412, 304),
        (Preconditions(generation_not_match=8, metageneration_not_match=3), 200, 200),
        (Preconditions(generation_not_match=8, metageneration_not_match=2), 412, 304),
        (Preconditions(generation_match=8, generation_not_match=7), 412, 412),
    ],
)
def test_every_condition_has_to_hold(conditions: Preconditions, status: int, reading: int) -> None:
    def check(*, reads: bool | None = None) -> int:
        try:
            if reads is None:
                conditions.check(7, 2)
            else:
                conditions.check(7, 2, reading=reads)
        except GcsError as error:
            return error.status
        return 200

    assert (check(), check(reads=False), check(reads=True)) == (status, status, reading)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"If-Match": '"a"'}, 200),
        ({"If-Match": "a"}, 200),
        ({"If-Match": '"b"'}, 412),
        ({"If-Match": '"b", "a"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": ""}, 200),
        ({"If-None-Match": '"b"'}, 200),
        ({"If-None-Match": '"b","a"'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-Match": '"a"', "If-None-Match": '"a"'}, 304),
        ({"If-Match": '"b"', "If-None-Match": '"a"'}, 412),
    ],
)
def test_entity_tags(headers: dict[str, str], status: int) -> None:
    """https://www.rfc-editor.org/rfc/rfc9110#name-preconditions"""
    if status == 200:
        check_etags(headers, "a")
        return
    with pytest.raises(GcsError) as raised:
        check_etags(headers, "a")
    assert raised.value.status == status
