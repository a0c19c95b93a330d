"""The formats of values: the examples of Google's documentation are accepted, common mistakes are not."""

from __future__ import annotations

import pytest

from tpuctl import accelerators
from tpuctl.config.settings import FORMATS, SETTINGS, normalize
from tpuctl.errors import UsageError

RIGHT = [
    ("project", "my-project", "my-project"),
    ("project", "example.com:my-project", "example.com:my-project"),
    ("zone", "europe-west4-a", "europe-west4-a"),
    ("zone", "northamerica-northeast2-c", "northamerica-northeast2-c"),
    ("zone", " us-central2-b\n", "us-central2-b"),
    ("zone", "us-south1-ai1b", "us-south1-ai1b"),
    ("bucket", "my_bucket-1", "my_bucket-1"),
    ("bucket", "gs://my-bucket/", "my-bucket"),
    ("bucket", "data.example.com", "data.example.com"),
    ("data_bucket", "gs://my-data", "my-data"),
    ("network", "default", "default"),
    *((setting, name, name) for setting, name in (
        ("network", "projects/host-project/global/networks/shared"),
        ("subnetwork", "projects/host-project/regions/us-east1/subnetworks/a"),
        ("service_account", "tpu@my-project.iam.gserviceaccount.com"),
        ("service_account", "123-compute@developer.gserviceaccount.com"),
        ("external_ips", "no"),
        ("iap", "yes"),
        ("host_keys", "first-contact"),
    )),
]  # fmt: skip
WRONG = [
    *(("project", name) for name in ("123456789012", "My project", "abc", "my-project-", "")),
    *(("zone", name) for name in ("EU", "europe-west4-a/", "europe-west4-ab", "us-south1-ai1")),
    *(("bucket", name) for name in ("My-Bucket", "ab", "-data", "a" * 64, "s3://my-bucket")),
    *(("bucket", name) for name in ("google-data", "my-google-data", "goog-data", "192.168.5.4")),
    *(("network", name) for name in ("my_network", "global/networks/a", "a" * 64)),
    *(("service_account", name) for name in ("tpu", "serviceAccount:tpu@my-project.iam.gserviceaccount.com")),
    ("external_ips", "maybe"), ("iap", "auto"),
    *(("ssh_user", name) for name in ("ada lovelace", "Ada", "ada:x", "-ada", "a" * 33)),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "typed", "value"), RIGHT)
def test_a_right_name_is_kept(setting: str, typed: str, value: str) -> None:
    assert normalize(setting, typed) == value


@pytest.mark.parametrize(("setting", "typed"), WRONG)
def test_a_wrong_name_is_refused_with_what_it_should_be(setting: str, typed: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be the {setting.replace('_', ' ')}") as refused:
        normalize(setting, typed)
    assert refused.value.hint == f"It is {FORMATS[setting].description}."


def test_a_region_as_zone_is_refused_with_the_zones_it_has() -> None:
    with pytest.raises(UsageError, match="'europe-west4' cannot be the zone: it is a region") as refused:
        normalize("zone", "europe-west4")
    assert refused.value.hint == "Its zones with TPUs: europe-west4-a, europe-west4-b."


def test_a_region_without_tpus_is_refused_as_such() -> None:
    with pytest.raises(UsageError, match="it is a region") as refused:
        normalize("zone", "us-west2")
    assert refused.value.hint == "No TPUs are known in us-west2."


@pytest.mark.parametrize("value", ["gs://my-bucket/sub/", "my-bucket/sub", "gs://my-bucket//"])
def test_a_folder_as_bucket_is_refused_with_the_bucket_alone(value: str) -> None:
    with pytest.raises(UsageError, match="cannot be the bucket: it is a folder in a bucket") as refused:
        normalize("bucket", value)
    assert refused.value.hint == "Name the bucket alone: my-bucket"


def test_every_zone_of_the_catalogue_can_be_configured() -> None:
    assert [zone for zone in accelerators.zones() if normalize("zone", zone) != zone] == []


def test_every_form_is_that_of_a_setting() -> None:
    assert set(FORMATS) <= set(SETTINGS)


@pytest.mark.parametrize(
    ("written", "value"), [("true", "yes"), ("True", "yes"), ("1", "yes"), ("false", "no"), ("0", "no")]
)
@pytest.mark.parametrize("setting", ["external_ips", "iap"])
def test_yes_and_no_may_be_written_as_toml_and_the_environment_do(
    setting: str, written: str, value: str
) -> None:
    assert normalize(setting, written) == value
