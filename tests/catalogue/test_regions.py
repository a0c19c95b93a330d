"""Regions: whether a bucket is where TPUs are, and which zones to try first.

What a bucket's own rules do to a run: refused, told, or of no matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import pytest

from tpuctl.catalogue.bucket_rules import BucketRules
from tpuctl.catalogue.regions import BucketLocation, nearest_first
from tpuctl.errors import ConfigError

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


TODAY = date(2026, 11, 29)


def rules(condition: Mapping[str, object], action: str = "Delete") -> BucketRules:
    return BucketRules("b", lifecycle=({"action": {"type": action}, "condition": condition},))


def texts(judged: BucketRules) -> list[str]:
    return [concern.text for concern in judged.concerns(TODAY)]


def test_a_bucket_without_rules_is_of_no_concern() -> None:
    assert texts(BucketRules("b", soft_delete_seconds=604_800)) == []
    assert BucketRules("b").facts() == "keeps nothing that is deleted"
    assert BucketRules("b", soft_delete_seconds=604_800).facts() == (
        "keeps, and bills, for 7d what is deleted or overwritten"
    )


@pytest.mark.parametrize(
    ("judged", "words", "flag"),
    [
        (BucketRules("b", retention_seconds=3600), "keeps each object for 1h", "--clear-retention-period"),
        (BucketRules("b", has_default_hold=True), "puts a hold", "--no-default-event-based-hold"),
        (BucketRules("b", is_requester_pays=True), "requester pays", "--no-requester-pays"),
        (
            rules({"age": 1}),
            "deletes runs/ (records, logs and checkpoints of runs); nodes/",
            "--lifecycle-file",
        ),
        (rules({"createdBefore": "2027-01-01"}), ", at once", "--lifecycle-file"),
        (rules({"age": 0, "matchesSuffix": [".json"]}), "what ends with .json in runs/", "--lifecycle-file"),
    ],
)
def test_what_no_run_can_work_with_is_refused_with_the_command(
    judged: BucketRules, words: str, flag: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        judged.require_usable(TODAY)
    assert words in raised.value.message
    assert f"gcloud storage buckets update gs://b {flag}" in raised.value.hint


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (
            {"age": 7},
            "runs/ (records, logs and checkpoints of runs); nodes/ (what ran on each TPU); bundles/ (the "
            "code, which a restart needs), 7 days after it was written",
        ),
        (
            {"age": 29, "matchesPrefix": ["bundles/"], "matchesSuffix": [".tar.gz"]},
            "what ends with .tar.gz in bundles/, 29 days after it was written",
        ),
        (
            {"age": 1, "matchesPrefix": ["tmp/", "runs/old"]},
            "runs/old*, 1 day after it was written",
        ),
        (
            {"age": 0, "matchesPrefix": ["run"], "matchesSuffix": [".log"]},
            "what ends with .log in runs/, at once",
        ),
    ],
)
def test_what_deletes_records_of_runs_that_go_on_is_told(condition: Mapping[str, object], told: str) -> None:
    (concern,) = rules(condition).require_usable(TODAY)
    assert concern.text == f"A lifecycle rule of gs://b deletes {told}"


def test_what_no_object_of_a_run_meets_is_of_no_concern() -> None:
    for condition in (
        {"age": 30},
        {"age": 1, "isLive": False},
        {"age": 1, "daysSinceNoncurrentTime": 1},
        {"numNewerVersions": 3},
        {"daysSinceCustomTime": 1},
        {"age": 1, "matchesStorageClass": ["NEARLINE"]},
        {"createdBefore": "2026-11-29"},
        {"age": 1, "matchesPrefix": ["datasets/", "tmp/"]},
        {"age": 1, "matchesSuffix": [".tmp"]},
    ):
        assert texts(rules(condition)) == [], condition
    for action in ("AbortIncompleteMultipartUpload", "SetStorageClass"):
        assert texts(rules({"age": 1}, action)) == [], action
    assert len(texts(rules({"age": 1, "matchesStorageClass": ["STANDARD"]}))) == 1


def test_versions_without_end_are_told_by_doctor_alone() -> None:
    (concern,) = BucketRules("b", has_versions=True).concerns(TODAY)
    assert "every former version" in concern.text
    assert BucketRules("b", has_versions=True).require_usable(TODAY) == []
    for condition in ({"numNewerVersions": 3}, {"isLive": False, "age": 7}, {"daysSinceNoncurrentTime": 7}):
        lifecycle = ({"action": {"type": "Delete"}, "condition": condition},)
        assert texts(BucketRules("b", has_versions=True, lifecycle=lifecycle)) == [], condition
    dated = rules({"daysSinceCustomTime": 7}).lifecycle
    assert len(texts(BucketRules("b", has_versions=True, lifecycle=dated))) == 1, "it deletes no version"


def test_the_worst_comes_first() -> None:
    worst = BucketRules(
        "b", has_versions=True, retention_seconds=60, lifecycle=rules({"age": 5}).lifecycle
    ).concerns(TODAY)
    assert [concern.is_fatal for concern in worst] == [True, False, False]
