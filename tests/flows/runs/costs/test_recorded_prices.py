"""The price in the record of an attempt: what is known when a run is submitted, without asking for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.config.files import state_folder
from tpuctl.flows.runs.stored_run import StoredRun

Command = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
ZONE = "europe-west4-a"


@pytest.fixture
def job(node: str) -> str:
    """A script for the node, which ends at once."""
    Path("job.py").write_text(HEADER)
    return "job.py"


def test_submit_records_the_price_that_is_known_and_asks_nobody(
    tpuctl: Command, job: str, bucket: Bucket, simulator: RunningSimulator
) -> None:
    hourly = tpuctl("price", "v3-8", "--zone", ZONE, "--json").json["prices"][0]["on_demand"]
    asked = len(simulator.events.find(service="billing"))
    assert tpuctl("submit", job, "--name", "r1").code == 0
    assert tpuctl("wait", "r1").code == 0
    assert len(simulator.events.find(service="billing")) == asked
    run = StoredRun(bucket, "r1")
    attempt = run.last_attempt().record
    assert attempt.price is not None
    assert attempt.price.amount == hourly["amount"]
    assert attempt.price.as_of == hourly["as_of"]
    verdict = run.verdict()
    assert verdict is not None
    assert verdict.price == attempt.price
    assert verdict.begun
    assert attempt.created <= verdict.begun <= verdict.decided
    Path("tpuctl.toml").write_text("[prices]\n'v3-8' = 1000000\n")
    facts = tpuctl("describe", "r1", "--json").json["run"]["facts"]
    (price,) = (fact for fact in facts if fact["name"] == "price per hour of attempt 1")
    assert price["from"] == f"{hourly['source']}, {hourly['as_of'][:10]}"


def test_without_a_known_price_none_is_recorded_and_the_present_one_is_said_to_be_it(
    tpuctl: Command, job: str, bucket: Bucket
) -> None:
    for file in (state_folder() / "prices" / "sim").glob("*"):
        file.unlink()
    assert tpuctl("submit", job, "--name", "r1").code == 0
    assert StoredRun(bucket, "r1").last_attempt().record.price is None
    assert tpuctl("wait", "r1").code == 0
    facts = tpuctl("describe", "r1", "--json").json["run"]["facts"]
    (price,) = (fact for fact in facts if fact["name"] == "price per hour of attempt 1")
    assert price["from"].endswith(", at the present price")


def test_the_price_of_the_configuration_is_recorded(tpuctl: Command, job: str, bucket: Bucket) -> None:
    Path("tpuctl.toml").write_text("[prices]\ncurrency = 'EUR'\n'v3-8' = 12.5\n")
    assert tpuctl("submit", job, "--name", "r1").code == 0
    price = StoredRun(bucket, "r1").last_attempt().record.price
    assert price is not None
    assert (price.amount, price.currency, price.source) == ("12.5", "EUR", "tpuctl.toml, line 3")
