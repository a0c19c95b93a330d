"""The formats of values: the examples of Google's documentation are accepted, common mistakes are not."""

from __future__ import annotations

import pytest

from tpuctl.config.formats import FORMATS, normalize
from tpuctl.config.settings import SETTINGS
from tpuctl.errors import UsageError

RIGHT = [
    ("project", "my-project", "my-project"),
    ("project", "example.com:my-project", "example.com:my-project"),
    ("zone", "europe-west4-a", "europe-west4-a"),
    ("zone", "northamerica-northeast2-c", "northamerica-northeast2-c"),
    ("zone", " us-central2-b\n", "us-central2-b"),
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
    )),
]  # fmt: skip
WRONG = [
    *(("project", name) for name in ("123456789012", "My project", "abc", "my-project-", "")),
    *(("zone", name) for name in ("europe-west4", "EU", "europe-west4-a/", "europe-west4-ab")),
    *(("bucket", name) for name in ("My-Bucket", "ab", "-data", "a" * 64, "my-bucket/folder", "s3://my-bucket")),
    *(("bucket", name) for name in ("google-data", "my-google-data", "goog-data", "192.168.5.4")),
    *(("network", name) for name in ("my_network", "global/networks/a", "a" * 64)),
    *(("service_account", name) for name in ("tpu", "serviceAccount:tpu@my-project.iam.gserviceaccount.com")),
    ("external_ips", "true"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "typed", "value"), RIGHT)
def test_a_right_name_is_kept(setting: str, typed: str, value: str) -> None:
    assert normalize(setting, typed) == value


@pytest.mark.parametrize(("setting", "typed"), WRONG)
def test_a_wrong_name_is_refused_with_what_it_should_be(setting: str, typed: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be the {setting.replace('_', ' ')}") as refused:
        normalize(setting, typed)
    assert refused.value.hint == f"It is {FORMATS[setting].description}."


def test_every_form_is_that_of_a_setting() -> None:
    assert set(FORMATS) <= set(SETTINGS)
