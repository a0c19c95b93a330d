"""Regions: whether a bucket is where TPUs are, and which zones to try first."""

from __future__ import annotations

import pytest

from tpuctl.catalogue.regions import BucketLocation, nearest_first

IN_REGION, AROUND, ELSEWHERE = "in its region", "around it", "elsewhere"


@pytest.mark.parametrize(
    ("location", "zone", "place"),
    [
        (("europe-west4",), "europe-west4-a", IN_REGION),
        (("europe-west4",), "europe-west1-b", ELSEWHERE),
        (("us-east1",), "us-east15-a", ELSEWHERE),
        (("us",), "us-central1-a", AROUND),
        (("us",), "europe-west4-a", ELSEWHERE),
        (("eu",), "europe-west4-a", AROUND),
        (("eu",), "europe-west2-a", ELSEWHERE),
        (("asia",), "asia-east1-c", AROUND),
        (("nam4",), "us-central1-b", IN_REGION),
        (("nam4",), "us-central2-b", ELSEWHERE),
        (("eur4",), "europe-west4-b", IN_REGION),
        (("eur4",), "europe-north1-a", IN_REGION),
        (("eur5",), "europe-west1-b", IN_REGION),
        (("eur5",), "europe-west2-a", IN_REGION),
        (("eur7",), "europe-west2-a", IN_REGION),
        (("eur7",), "europe-west3-a", IN_REGION),
        (("eur8",), "europe-west3-a", IN_REGION),
        (("eur8",), "europe-west6-a", IN_REGION),
        (("asia1",), "asia-northeast1-b", IN_REGION),
        (("asia1",), "asia-northeast2-a", IN_REGION),
        (("nam4",), "us-east1-d", IN_REGION),
        (("eu",), "europe-west6-a", ELSEWHERE),
        (("eu",), "europe-west3-a", AROUND),
        (("us", ("us-east1", "us-west1")), "us-east1-d", IN_REGION),
        (("us", ("us-east1", "us-west1")), "us-central1-a", ELSEWHERE),
        (("eu", ("europe-west1", "europe-west4")), "europe-west4-a", IN_REGION),
    ],
)
def test_where_a_bucket_is(location: tuple[str, ...], zone: str, place: str) -> None:
    bucket = BucketLocation("b", *location)  # type: ignore[arg-type]
    assert bucket.is_in_region(zone) == (place == IN_REGION)
    assert bucket.is_near(zone) == (place != ELSEWHERE)


def test_the_warning_names_both_places() -> None:
    assert BucketLocation("b", "us-east1").warning("us-east1-d") == ""
    assert BucketLocation("b", "us-east1").warning("europe-west4-a") == (
        "The bucket gs://b is in us-east1, and europe-west4-a is in europe-west4: "
        "training reads slowly, and Google bills the traffic between regions."
    )
    assert "us-east1 and us-west1" in BucketLocation("b", "us", ("us-east1", "us-west1")).warning(
        "us-central1-a"
    )
    assert BucketLocation("b", "us").warning("us-central1-a") == (
        "The bucket gs://b is in the multi-region us: reading it from us-central1 may be billed as traffic."
    )


def test_the_warning_about_several_zones_is_one_sentence() -> None:
    bucket = BucketLocation("b", "us-east1")
    assert bucket.warning("us-east1-d", "europe-west4-a") == bucket.warning("europe-west4-a")
    assert bucket.warning("us-east1-d", "europe-west4-a", "us-central1-a", "us-central1-b") == (
        "The bucket gs://b is in us-east1, and europe-west4-a and us-central1-a are in other regions: "
        "training reads slowly there, and Google bills the traffic between regions."
    )
    zones = [f"europe-west{number}-a" for number in range(1, 7)]
    assert "europe-west1-a, europe-west2-a, europe-west3-a and 3 more are in" in bucket.warning(*zones)
    assert BucketLocation("b", "us").warning("us-central1-a", "us-east1-d", "us-east1-c") == (
        "The bucket gs://b is in the multi-region us: reading it from us-central1 and us-east1 may be billed "
        "as traffic."
    )
    both = BucketLocation("b", "us").warning("us-central1-a", "europe-west4-a")
    assert both.endswith("bills the traffic between regions; from us-central1 it may be billed, too.")


ZONES = ["asia-east1-c", "us-central1-a", "europe-west1-b", "us-east1-d", "europe-west4-a"]


@pytest.mark.parametrize(
    ("location", "first"),
    [
        (BucketLocation("b", "europe-west4"), ["europe-west4-a", "europe-west1-b", "asia-east1-c"]),
        (BucketLocation("b", "nam4"), ["us-central1-a", "us-east1-d", "asia-east1-c"]),
        (BucketLocation("b", "eu"), ["europe-west1-b", "europe-west4-a", "asia-east1-c"]),
        (
            BucketLocation("b", "us", ("us-east1", "us-west1")),
            ["us-east1-d", "us-central1-a", "asia-east1-c"],
        ),
        (None, ZONES[:3]),
    ],
)
def test_zones_near_the_bucket_come_first(location: BucketLocation | None, first: list[str]) -> None:
    ordered = nearest_first(ZONES, location)
    assert ordered[:3] == first
    assert sorted(ordered) == sorted(ZONES)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("nam4", "us-central1", "us-east1"),
        ("eur4", "europe-north1", "europe-west4"),
        ("eur5", "europe-west1", "europe-west2"),
        ("eur7", "europe-west2", "europe-west3"),
        ("eur8", "europe-west3", "europe-west6"),
        ("asia1", "asia-northeast1", "asia-northeast2"),
    ],
)
def test_a_dual_region_is_in_both_of_its_regions_as_documented(name: str, one: str, other: str) -> None:
    bucket = BucketLocation("b", name)
    assert bucket.is_in_region(f"{one}-a")
    assert bucket.is_in_region(f"{other}-a")
    assert bucket.warning("us-west4-a") == (
        f"The bucket gs://b is in {one} and {other}, and us-west4-a is in us-west4: "
        "training reads slowly, and Google bills the traffic between regions."
    )


@pytest.mark.parametrize("region", ["europe-west2", "europe-west6"])
def test_the_regions_outside_of_the_european_union_are_not_in_its_multi_region(region: str) -> None:
    assert not BucketLocation("b", "eu").is_near(f"{region}-a")


def test_a_configured_dual_region_is_not_its_whole_multi_region() -> None:
    bucket = BucketLocation("b", "us", ("us-east1", "us-west1"))
    assert bucket.warning("us-central1-a").startswith(
        "The bucket gs://b is in us-east1 and us-west1, and us-central1-a is in us-central1: "
    )


@pytest.mark.parametrize(
    ("zones", "named"),
    [(["us-west1-a"], "us-west1"), (["us-west1-a", "us-east1-b"], "us-west1 and us-east1"),
     (["us-west1-a", "us-east1-b", "us-south1-a"], "us-west1, us-east1 and us-south1"),
     (["us-west1-a", "us-east1-b", "us-south1-a", "us-east4-a"], "us-west1, us-east1, us-south1 and 1 more")],
)  # fmt: skip
def test_a_warning_names_the_first_three_of_many(zones: list[str], named: str) -> None:
    assert BucketLocation("b", "us").warning(*zones) == (
        f"The bucket gs://b is in the multi-region us: reading it from {named} may be billed as traffic."
    )


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        (BucketLocation("b", "us-east1"), BucketLocation("c", "us-east1"), None),
        (BucketLocation("b", "us"), BucketLocation("c", "us"), None),
        (BucketLocation("b", "us-east1"), BucketLocation("c", "us-west1"), ("us-east1", "us-west1")),
        (BucketLocation("b", "us"), BucketLocation("c", "us-west1"), ("us", "us-west1")),
        (
            BucketLocation("b", "us", ("us-east1", "us-west1")),
            BucketLocation("c", "us", ("us-east1", "us-south1")),
            ("us-east1 and us-west1", "us-east1 and us-south1"),
        ),
    ],
)
def test_a_copy_to_another_location_is_told_with_its_size(
    one: BucketLocation, other: BucketLocation, places: tuple[str, str] | None
) -> None:
    expected = ""
    if places:
        expected = (
            f"The bucket gs://b is in {places[0]}, and gs://c in {places[1]}: "
            f"Google bills the 12.0 GB that leave {places[0]} as traffic."
        )
    assert one.traffic(other, "12.0 GB") == expected


@pytest.mark.parametrize(
    ("location", "continent"),
    [
        (BucketLocation("b", "eu"), "europe"),
        (BucketLocation("b", "us"), "us"),
        (BucketLocation("b", "asia"), "asia"),
        (BucketLocation("b", "europe-west4"), "europe"),
        (BucketLocation("b", "asia1"), "asia"),
        (BucketLocation("b", "us", ("us-east1", "us-west1")), "us"),
    ],
)
def test_the_continent_of_a_bucket(location: BucketLocation, continent: str) -> None:
    assert location.continent == continent


def test_around_a_multi_region_its_continent_comes_before_others() -> None:
    assert nearest_first(["asia-east1-c", "europe-west2-a", "europe-west4-a"], BucketLocation("b", "eu")) == [
        "europe-west4-a",
        "europe-west2-a",
        "asia-east1-c",
    ]
