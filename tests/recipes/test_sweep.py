"""Runs the sweep of docs/recipes, and stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpuctl
from tests.recipes.files import recipe
from tpuctl.errors import StockoutError
from tpuctl.testing import Simulator

sweep = recipe("sweep")


def test_each_rate_trains_on_a_tpu_of_its_own(home: Path, tpu_simulator_environment: Simulator) -> None:
    with tpuctl.Client() as client:
        losses = sweep.sweep(client)
        runs = client.runs()
    assert list(losses) == list(sweep.RATES)
    assert min(losses, key=lambda rate: losses[rate]) == 0.3
    assert len({run.node for run in runs}) == 3
    assert {run.state for run in runs} == {"succeeded"}
    assert tpu_simulator_environment.world.nodes() == []


def test_a_failure_stops_the_others_and_leaves_nothing_that_bills(
    home: Path, tpu_simulator_environment: Simulator
) -> None:
    tpu_simulator_environment.faults.add("stockout", count=1)
    with tpuctl.Client() as client, pytest.raises(StockoutError):
        sweep.sweep(client)
    assert tpu_simulator_environment.world.nodes() == []
