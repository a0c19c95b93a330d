"""The names of scopes, as the help of `gcloud compute instances create --scopes` lists them."""

from __future__ import annotations

import pytest

from tpuctl.cloud.tpu.rules import scope_urls
from tpuctl.errors import UsageError

SCOPE_PREFIX = "https://www.googleapis.com/auth/"
GCLOUD = """
bigquery                bigquery
cloud-platform          cloud-platform
cloud-source-repos      source.full_control
cloud-source-repos-ro   source.read_only
compute-ro              compute.readonly
compute-rw              compute
datastore               datastore
default                 devstorage.read_only logging.write monitoring.write pubsub
default                 service.management.readonly servicecontrol trace.append
gke-default             devstorage.read_only logging.write monitoring
gke-default             service.management.readonly servicecontrol trace.append
logging-write           logging.write
monitoring              monitoring
monitoring-read         monitoring.read
monitoring-write        monitoring.write
pubsub                  pubsub
service-control         servicecontrol
service-management      service.management.readonly
sql                     sqlservice
sql-admin               sqlservice.admin
storage-full            devstorage.full_control
storage-ro              devstorage.read_only
storage-rw              devstorage.read_write
taskqueue               taskqueue
trace                   trace.append
userinfo-email          userinfo.email
"""


def test_the_names_of_gcloud_are_its_scopes() -> None:
    expected: dict[str, list[str]] = {}
    for name, *ends in map(str.split, GCLOUD.strip().splitlines()):
        expected.setdefault(name, []).extend(SCOPE_PREFIX + end for end in ends)
    assert {name: [*scope_urls([name])] for name in expected} == expected


@pytest.mark.parametrize("url", [f"{SCOPE_PREFIX}a", f"{SCOPE_PREFIX}a.b-c/d_e", "https://mail.google.com/"])
def test_a_url_stays_as_it_is(url: str) -> None:
    assert scope_urls([url]) == (url,)


@pytest.mark.parametrize(
    "scope",
    [
        SCOPE_PREFIX,
        f"{SCOPE_PREFIX}ä",
        f"{SCOPE_PREFIX}a b",
        f"{SCOPE_PREFIX}a\n",
        "http://www.googleapis.com/auth/a",
        "https://mail.google.com",
    ],
)
def test_what_is_like_a_url_of_google_is_refused(scope: str) -> None:
    with pytest.raises(UsageError) as refused:
        scope_urls([scope])
    assert refused.value.message == f"'{scope}' is no OAuth scope."
    assert refused.value.facts == {"scope": scope}


def test_a_misspelt_name_has_the_nearest_and_another_has_all() -> None:
    with pytest.raises(UsageError) as refused:
        scope_urls(["storage-row"])
    assert refused.value.hint == "Did you mean storage-rw?"
    with pytest.raises(UsageError) as refused:
        scope_urls(["xyzzy"])
    assert refused.value.hint.startswith(
        f"Give {SCOPE_PREFIX}NAME or bigquery, cloud-platform, cloud-source-repos, "
    )
