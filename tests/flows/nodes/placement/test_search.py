"""Where `up` looks for capacity: what zones names mean, and which options contradict each other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tpuctl.accelerators import accelerator
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.placement.rounds import Search, Terms, check_search, expand, is_zone

V3 = accelerator("v3-8")
ONE, TWO = ("us-central1-a",), ("us-central1-a", "europe-west4-a")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("us-central1-a", True), ("us-central1", False), ("any", False), ("europe-west4", False),
        ("nowhere", False), ("us-x", True),
    ],
)  # fmt: skip
def test_a_zone_is_told_from_a_region(name: str, expected: bool) -> None:
    assert is_zone(name) is expected


class TestExpand:
    def test_zones_are_taken_as_they_are_and_once(self) -> None:
        assert expand(["us-x", "us-central1-a", "us-x"], V3) == ("us-x", "us-central1-a")

    def test_a_region_stands_for_its_zones_with_the_type(self) -> None:
        zones = expand(["europe-west4"], V3)
        assert zones
        assert set(zones) == {zone for zone in V3.zones if zone.startswith("europe-west4-")}
        assert expand(["us-x", "europe-west4"], V3) == ("us-x", *zones)

    def test_any_stands_for_all(self) -> None:
        assert set(expand(["any"], V3)) == set(V3.zones)

    def test_documented_zones_come_first_then_the_cheaper_ones_and_last_those_that_lack_something(
        self,
    ) -> None:
        v6e = accelerator("v6e-8")
        assert set(v6e.documented) < set(v6e.zones)
        documented = expand(["any"], v6e)[: len(v6e.documented)]
        assert set(documented) == set(v6e.documented)
        prices = {zone: Terms(spot_price=Decimal(100 - place)) for place, zone in enumerate(documented)}
        prices[documented[0]] = Terms("no quota", Decimal(1))
        order = expand(["any"], v6e, terms=lambda zones: prices)
        assert order[: len(documented) - 1] == tuple(reversed(documented[1:]))
        assert order[-1] == documented[0]

    def test_the_bucket_comes_before_documentation_and_price(self) -> None:
        v6e, near = accelerator("v6e-8"), BucketLocation("b", "us-east4")
        zones = expand(["any"], v6e, near, lambda zones: {"us-east4-a": Terms(spot_price=Decimal(99))})
        assert "us-east4-a" not in v6e.documented
        assert zones[0] == "us-east4-a"

    @pytest.mark.parametrize(
        ("name", "suggestion"),
        [("europe-west5", "Did you mean europe-west4? "), ("anny", "Did you mean any? "), ("zzzzz", "")],
    )
    def test_a_region_without_the_type_is_refused(self, name: str, suggestion: str) -> None:
        with pytest.raises(UsageError) as error:
            expand(["us-x", name], V3)
        assert error.value.message == f"No zone of '{name}' is known to offer v3-8."
        assert error.value.hint == f"{suggestion}It is available in {', '.join(V3.zones)}."


class TestContradictions:
    @pytest.mark.parametrize(
        ("search", "is_queued", "message"),
        [
            (Search(ONE, race=True), True, "--race takes several zones."),
            (Search(TWO, race=True), True, ""),
            (Search(TWO, detach=True), True,
             "--detach leaves at once, and with several zones somebody has to wait, and cancel the rest."),
            (Search(ONE, detach=True), False, ""),
            (Search(ONE, detach=True, wait=60.0), False,
             "--detach leaves at once, and --wait-capacity waits."),
            (Search(ONE, detach=True, wait=60.0), True, ""),
            (Search(ONE, wait=60.0), False, ""),
            (Search(TWO), False, ""),
        ],
    )  # fmt: skip
    def test_which_options_exclude_each_other(self, search: Search, is_queued: bool, message: str) -> None:
        if message:
            with pytest.raises(UsageError) as error:
                check_search(search, is_queued=is_queued)
            assert error.value.message == message
        else:
            check_search(search, is_queued=is_queued)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (Search(ONE), ()),
        (Search(ONE, named=("us-central1-a",)), ("--zone", "us-central1-a")),
        (Search(TWO, named=("any", "a b"), race=True, wait=3600.0),
         ("--zone", "any", "--zone", "a b", "--race", "--wait-capacity", "1h")),
    ],
)  # fmt: skip
def test_a_search_is_repeated_by_its_words(search: Search, words: tuple[str, ...]) -> None:
    assert search.words == words
