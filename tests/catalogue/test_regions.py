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
