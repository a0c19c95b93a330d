"""What bills in a project now, also what tpuctl did not make, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Callable

import requests

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]


def make(simulator: RunningSimulator, place: str, **fields: object) -> str:
    """Make a resource of Compute Engine as gcloud does, and return its URL."""
    url = f"{simulator.simulator.endpoints['compute_rest']}/compute/v1/projects/sim-project/{place}"
    requests.post(url, json=fields, timeout=30).raise_for_status()
    return f"{url}/{fields['name']}"


def test_everything_that_bills_is_listed_whoever_made_it(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--data-disk", "data", "--yes").code == 0
    assert tpuctl("up", "v2-8", "--zone", "us-central1-b", "--name", "stopped", "--yes").code == 0
    assert tpuctl("stop", "stopped", "--yes").code == 0
    make(simulator, "zones/europe-west4-a/disks", name="data", sizeGb=200)
    spare = make(simulator, "zones/us-east1-d/disks", name="spare", type="zones/us-east1-d/diskTypes/pd-ssd")
    make(simulator, "regions/us-east1/addresses", name="front")
    make(simulator, "regions/us-east1/addresses", name="inner", addressType="INTERNAL")
    listed = tpuctl("cost", "--now", "--json").json
    seen = {(bill["kind"], bill["name"], bill["place"]): bill for bill in listed["bills"]}
    assert set(seen) == {
        ("TPU", "n1", "europe-west4-a"), ("TPU", "stopped", "us-central1-b"),
        ("disk", "data", "europe-west4-a"), ("disk", "spare", "us-east1-d"),
        ("address", "front", "us-east1"), ("bucket", "gs://sim-project-tpuctl", "europe-west4"),
    }  # fmt: skip
    assert seen["TPU", "n1", "europe-west4-a"]["what"] == "v3-8 READY, 1 external address"
    assert seen["TPU", "n1", "europe-west4-a"]["price_per_hour"]["amount"] == "9.768"
    assert "its boot disk bills" in seen["TPU", "stopped", "us-central1-b"]["what"]
    assert seen["disk", "data", "europe-west4-a"]["what"] == "200 GB pd-standard, attached to n1"
    assert seen["disk", "spare", "us-east1-d"]["what"] == "500 GB pd-ssd, attached to no TPU"
    assert "nothing uses it" in seen["address", "front", "us-east1"]["what"]
    assert listed["total_per_hour"]["amounts"] == {"USD": "9.77"}
    requests.delete(spare, timeout=30).raise_for_status()
    shown = tpuctl("cost", "--now")
    assert "spare" not in shown.out
    assert "TPUs cost 9.77 USD per hour; disks, addresses and storage bill besides." in shown.err
    assert "not looked at" in shown.err


def test_what_is_in_a_bucket_is_counted_with_former_versions(
    simulator: RunningSimulator, tpuctl: Tpuctl, cloud: object
) -> None:
    bucket = cloud.bucket  # type: ignore[attr-defined]
    bucket.create("a", b"x" * 1500)
    bucket.create("b/c", b"x" * 500)
    (held,) = tpuctl("cost", "--now", "--json").json["bills"]
    assert held["what"] == "2 kB in 2 objects"
    assert bucket.usage(1) == type(bucket.usage(1))(1, 1500, is_complete=False)


def test_what_cannot_be_looked_at_is_said_and_the_rest_is_listed(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    simulator.faults.add("unreachable", zone="us-east1-d")
    simulator.faults.add("permission", method="storage.buckets.list")
    listed = tpuctl("cost", "--now", "--json").json
    assert listed["total_per_hour"] == {"amounts": {"USD": "9.77"}, "unknown": ["no answer from us-east1-d"]}
    assert "TPUs cost at least 9.77 USD per hour" in tpuctl("cost", "--now").err
    assert [bill["name"] for bill in listed["bills"]] == ["n1", "gs://sim-project-tpuctl"]
    missing = "\n".join(listed["missing"])
    assert "No answer from us-east1-d: what is there may bill." in missing
    assert "The buckets were not looked at: No permission" in missing
