"""What zones offer, through the official client."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2

PROJECT = "projects/rehearsal"
ZONE = f"{PROJECT}/locations/us-central2-b"


def test_a_zone_lists_its_accelerator_types_with_their_topologies(client: tpu_v2.TpuClient) -> None:
    types = {offered.type_: offered for offered in client.list_accelerator_types(parent=ZONE)}
    assert "v4-8" in types
    assert "v3-8" not in types
    (config,) = types["v4-8"].accelerator_configs
    assert (config.type_, config.topology) == (tpu_v2.AcceleratorConfig.Type.V4, "2x2x1")
    assert client.get_accelerator_type(name=f"{ZONE}/acceleratorTypes/v4-8") == types["v4-8"]
    with pytest.raises(exceptions.NotFound):
        client.get_accelerator_type(name=f"{ZONE}/acceleratorTypes/v3-8")


def test_runtime_versions_are_the_bases_and_those_of_tensorflow(client: tpu_v2.TpuClient) -> None:
    versions = {runtime.version for runtime in client.list_runtime_versions(parent=ZONE)}
    assert {"tpu-ubuntu2204-base", "v2-alpha-tpuv6e"} <= versions
    assert {f"tpu-vm-tf-2.17.0{form}" for form in ("-pjrt", "-se", "-pod-pjrt", "-pod-se")} <= versions
    name = f"{ZONE}/runtimeVersions/tpu-ubuntu2204-base"
    assert client.get_runtime_version(name=name).version == "tpu-ubuntu2204-base"


def test_locations_are_the_zones_of_the_catalogue(client: tpu_v2.TpuClient) -> None:
    locations = client.list_locations({"name": PROJECT}).locations
    assert "us-central2-b" in {location.location_id for location in locations}
    location = client.get_location({"name": ZONE})
    assert (location.name, location.labels["cloud.googleapis.com/region"]) == (ZONE, "us-central2")
    with pytest.raises(exceptions.Forbidden):
        client.get_location({"name": f"{PROJECT}/locations/mars"})
