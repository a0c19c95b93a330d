"""Where a bucket is, as the service says it: regions, multi-regions, dual-regions; asked once."""

from __future__ import annotations

import pytest
import requests

from tests.running_simulator import RunningSimulator
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.cloud.endpoints import connect
from tpuctl.config import load


@pytest.mark.parametrize(
    ("resource", "location"),
    [
        ({"location": "EUROPE-WEST4"}, BucketLocation("b-1", "europe-west4")),
        ({"location": "us"}, BucketLocation("b-1", "us")),
        ({"location": "NAM4"}, BucketLocation("b-1", "nam4")),
        (
            {"location": "US", "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]}},
            BucketLocation("b-1", "us", ("us-east1", "us-west1")),
        ),
    ],
)
def test_the_location_is_as_the_service_names_it(
    simulator: RunningSimulator, resource: dict[str, object], location: BucketLocation
) -> None:
    url = f"{simulator.simulator.endpoints['storage']}/storage/v1/b"
    created = requests.post(url, params={"project": "p"}, json={"name": "b-1", **resource}, timeout=60)
    assert created.status_code == 200, created.text
    cloud = connect(load({"bucket": "b-1"}))
    assert cloud.bucket.location() == location
    assert cloud.bucket.location() == location
    cloud.close()
    assert len(simulator.events.find(kind="request", what="buckets.get", resource="b-1*")) == 1
