"""The region guard: a TPU in another region than the bucket is refused, unless the user pays for traffic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
FAR = "us-east1-d"


@pytest.fixture(autouse=True)
def _guarded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPUCTL_CROSS_REGION")


def test_a_bucket_elsewhere_is_refused_with_the_price_and_the_option(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    refused = tpuctl("up", "v3-8", "--zone", FAR, "--yes")
    assert refused.code == 2
    assert f"is in europe-west4, and {FAR} is in us-east1" in refused.err
    assert "each TiB that is read there costs about 51.20 USD of traffic (0.05 USD per GiB" in refused.err
    assert "--cross-region" in refused.err
    assert len(simulator.events.find(kind="request", what="buckets.get")) == 1, "the location is asked once"
    assert tpuctl("ls", "--json").json["nodes"] == []
    paid = tpuctl("up", "v3-8", "--zone", FAR, "--name", "n1", "--yes", "--cross-region")
    assert paid.code == 0
    assert "Google bills the traffic between regions" in paid.err
    assert tpuctl("up", "v3-8", "--name", "n2", "--yes").code == 0


@pytest.mark.usefixtures("simulator")
def test_of_any_zone_those_near_the_bucket_are_tried_and_the_rest_is_said(tpuctl: Tpuctl) -> None:
    asked = tpuctl("up", "v3-8", "--zone", "any")
    assert asked.code == 10
    assert "zone            europe-west4-a\n" in asked.err
    assert "Not tried, since gs://sim-project-tpuctl is in another region" in asked.err
    every = tpuctl("up", "v3-8", "--zone", "any", "--cross-region")
    assert every.err.count("Warning: The bucket") == 1
    assert every.err.count("Google bills the traffic") == 1


def test_a_run_is_refused_with_the_price_of_one_pass_before_anything_bills(
    simulator: RunningSimulator, tpuctl: Tpuctl, tmp_path: Path
) -> None:
    (tmp_path / "work" / "rows.csv").write_text("a,b\n" + "1,2\n" * 500)
    assert tpuctl("data", "upload", "rows", "rows.csv", "--format", "csv").code == 0
    script = tmp_path / "work" / "train.py"
    script.write_text("print(1)\n")
    made = tpuctl("run", "train.py", "--up", "v3-8", "--zone", FAR, "--name", "r1", "--yes")
    assert made.code == 2
    assert tpuctl("ls", "--json").json["nodes"] == []
    assert tpuctl("up", "v3-8", "--zone", FAR, "--name", "n1", "--yes", "--cross-region").code == 0
    refused = tpuctl("submit", "train.py", "--tpu", "n1", "--dataset", "rows", "--name", "r2")
    assert refused.code == 2
    assert "one pass over rows/1.0.0 (" in refused.err
    assert " costs about 0.01 USD of traffic (0.05 USD per GiB" in refused.err
    assert tpuctl("runs", "--json").json["runs"] == []
    started = tpuctl(
        "submit", "train.py", "--tpu", "n1", "--dataset", "rows", "--name", "r2", "--cross-region"
    )
    assert started.code == 0
    simulator.faults.add("permission", method="storage.buckets.get")
    unread = tpuctl("submit", "train.py", "--tpu", "n1", "--name", "r3", "--queue")
    assert unread.code == 0
    assert "here gs://sim-project-tpuctl is cannot be read: traffic" in unread.err


def test_zones_of_restarts_near_the_bucket_are_kept(
    simulator: RunningSimulator, tpuctl: Tpuctl, tmp_path: Path
) -> None:
    (tmp_path / "work" / "train.py").write_text("print(1)\n")
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    started = tpuctl("submit", "train.py", "--restarts", "1", "--restart-zone", FAR, "--name", "r1")
    assert started.code == 0
    assert f"Restarts leave out {FAR}: gs://sim-project-tpuctl is in another region." in started.err


def test_a_bucket_that_does_not_say_is_a_warning(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    simulator.faults.add("permission", method="storage.buckets.get")
    result = tpuctl("up", "v3-8")
    assert "Warning: where gs://sim-project-tpuctl is cannot be read" in result.err
    assert result.code == 10, "it asks as always"
